//! The last changes in the audit log.

use askama::Template;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::pages::PageRequest;
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::{Answer, Refused};

#[derive(Template)]
#[template(path = "audit.html", config = "src/admin/page/askama.toml")]
struct AuditPage {
    shell: Shell,
    /// Why there is no list.
    missing: Option<String>,
    /// The newest change first.
    changes: Vec<ChangeLine>,
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
    outcome: Option<String>,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    let shell = Shell::new(&visitor, "Audit log", &query);
    let listed = pages.api.get::<Vec<Value>>(&visitor.operator, "/v1/audit", &[]).await;
    let (lines, missing) = match listed {
        Ok(lines) => (lines, None),
        Err(Refused(_, detail)) => (Vec::new(), Some(detail)),
    };
    let changes = lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect();
    page(StatusCode::OK, &AuditPage { shell, missing, changes })
}

/// A state before or after a change in words; of a ban it has the end.
fn state(json: &Value) -> String {
    match json.get("until") {
        Some(Value::String(until)) => format!("banned until {}", words::instant(until)),
        Some(Value::Null) => "banned for good".to_owned(),
        _ => words::value(json),
    }
}
