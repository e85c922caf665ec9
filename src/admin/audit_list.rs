//! `GET /v1/audit`: the last changes that operators made.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use super::answer::{Answer, json, problem};
use super::audit::{ACTIONS, last_lines};
use super::body::Parameters;
use super::state::Admin;

/// The default number of changes.
const LISTED_DEFAULT: usize = 200;
const LISTED_MAX: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// The number of changes, from 1 to 1000; 200 by default.
    n: Option<usize>,
    /// The name of one limit; all changes by default.
    limit: Option<String>,
    /// The kind of the changes, such as `ban`; all by default.
    action: Option<String>,
}

/// The last changes that operators made, as far as the last 128 KiB of the file of `admin.audit` have them.
#[utoipa::path(
    get,
    path = "/v1/audit",
    params(AuditQuery),
    responses(
        (status = 200, body = [Object], description = "the lines of the file, the newest first"),
        (status = 404, description = "the configuration has no `admin.audit`"),
    )
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<AuditQuery>) -> Answer {
    if let Some(action) = asked.action.as_deref().filter(|action| !ACTIONS.contains(action)) {
        let detail = format!("action: `{action}` is none of {}", ACTIONS.join(", "));
        return problem(StatusCode::BAD_REQUEST, detail);
    }
    if asked.n.is_some_and(|n| !(1..=LISTED_MAX).contains(&n)) {
        return problem(StatusCode::BAD_REQUEST, format!("n: expected a whole number from 1 to {LISTED_MAX}"));
    }
    let Some(path) = admin.access.load().audit.clone() else {
        return problem(
            StatusCode::NOT_FOUND,
            "the configuration has no `admin.audit`, so changes are in the log only",
        );
    };
    let read = spawn_blocking(move || last_lines(&path)).await;
    match read.map_err(io::Error::other).flatten() {
        Ok(text) => {
            let AuditQuery { n, limit, action } = asked;
            let is_asked = |line: &Value| {
                let fields = [("limit", &limit), ("action", &action)];
                fields.iter().all(|(name, asked)| asked.as_ref().is_none_or(|asked| line[name] == **asked))
            };
            let lines = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).filter(is_asked);
            json(StatusCode::OK, &lines.take(n.unwrap_or(LISTED_DEFAULT)).collect::<Vec<_>>())
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the file cannot be read: {error}")),
    }
}
