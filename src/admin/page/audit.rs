//! The last changes in the audit log.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::fields::FormFields;
use super::pages::Pages;
use super::shell::{Shell, Visitor, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::audit;

/// Most changes of the page.
const CHANGES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "audit.html", config = "src/admin/page/askama.toml")]
struct AuditPage {
    shell: Shell,
    /// Whether the configuration has a file.
    has_file: bool,
    /// Why the file cannot be read.
    missing: Option<String>,
    /// The newest change first.
    changes: Vec<ChangeRow>,
}

/// A line of the file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ChangeLine {
    at: String,
    token: Option<String>,
    address: String,
    action: String,
    limit: Option<String>,
    target: Value,
    before: Value,
    after: Value,
    reason: Option<String>,
}

struct ChangeRow {
    line: ChangeLine,
    at: String,
    target: String,
    before: String,
    after: String,
}

/// The page.
pub(super) async fn show(State(pages): State<Arc<Pages>>, Extension(visitor): Extension<Visitor>, uri: Uri) -> Answer {
    let query = FormFields::parse(uri.query().unwrap_or_default().as_bytes());
    let shell = Shell::new(&visitor, "Audit log", &query);
    let Some(path) = pages.admin.access.load().audit.clone() else {
        return page(StatusCode::OK, &AuditPage { shell, has_file: false, missing: None, changes: Vec::new() });
    };
    let read = spawn_blocking(move || audit::last_lines(&path)).await;
    let (text, missing) = match read.map_err(std::io::Error::other).flatten() {
        Ok(text) => (text, None),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    let changes = lines.take(CHANGES_MAX).map(ChangeRow::of).collect();
    page(StatusCode::OK, &AuditPage { shell, has_file: true, missing, changes })
}

/// A state before or after a change in words; of a ban it has the end.
fn state(json: &Value) -> String {
    match json.get("until") {
        Some(Value::String(until)) => format!("banned until {}", words::instant(until)),
        Some(Value::Null) => "banned for good".to_owned(),
        _ => words::value(json),
    }
}

impl ChangeRow {
    fn of(line: ChangeLine) -> Self {
        Self {
            at: words::instant(&line.at),
            target: words::value(&line.target),
            before: state(&line.before),
            after: state(&line.after),
            line,
        }
    }
}
