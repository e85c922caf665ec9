//! `weir audit`.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::target::{ApiRequest, Target, text};
use crate::cli::output::Exit;
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct AuditArgs {
    /// The name of one limit.
    limit: Option<String>,
    /// The kind of the changes, such as `ban`, `override` or `reload`.
    #[arg(long)]
    action: Option<String>,
    /// The number of changes.
    #[arg(short, long, default_value_t = 20)]
    n: usize,
    #[command(flatten)]
    target: Target,
}

pub(in crate::cli) fn audit(AuditArgs { limit, action, n, target }: AuditArgs) -> Exit {
    let query = vec![("n", Some(n.to_string())), ("limit", limit), ("action", action)];
    target.run(ApiRequest::query(Method::GET, "/v1/audit", query), show_changes)
}

fn show_changes(changes: &Value) -> String {
    let row = |change: &Value| {
        ["at", "token", "address", "action", "limit", "target", "before", "after", "reason"]
            .map(|name| text(&change[name]))
            .into()
    };
    let rows: Vec<_> = changes.as_array().into_iter().flatten().map(row).collect();
    table(&["AT", "OPERATOR", "ADDRESS", "CHANGE", "LIMIT", "TARGET", "BEFORE", "AFTER", "REASON"], &rows)
}
