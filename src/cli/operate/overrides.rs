//! `weir overrides`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, json_or_text, key_of, text};
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct OverridesArgs {
    #[command(subcommand)]
    action: OverridesAction,
}

#[derive(Debug, Subcommand)]
enum OverridesAction {
    /// List the overrides that are set.
    List {
        /// The name of one limit.
        limit: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Set other numbers for a key.
    Set {
        /// The name of the limit.
        limit: String,
        /// The key: its parts with `|` between them, or a JSON object with the parts by name.
        #[arg(value_name = "KEY")]
        text: String,
        /// A rate such as 500/min, `unlimited`, or JSON such as {"rate": "500/min", "burst": 100}.
        to: String,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Remove the override of a key.
    Remove {
        /// The name of the limit.
        limit: String,
        /// The key, as for `set`.
        #[arg(value_name = "KEY")]
        text: String,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

pub(in crate::cli) fn overrides(OverridesArgs { action }: OverridesArgs) -> ExitCode {
    let change = |limit, key: &str, to, reason: Option<String>| {
        ApiRequest::post("/v1/overrides", json!({ "limit": limit, "key": key_of(key), "to": to, "reason": reason }))
    };
    match action {
        OverridesAction::List { limit, target } => {
            target.run(ApiRequest::query(Method::GET, "/v1/overrides", vec![("limit", limit)]), show_overrides)
        }
        OverridesAction::Set { limit, text, to, reason, target } => {
            let to = json_or_text(&to, |to| to.is_object() || to.is_array());
            target.run(change(limit, &text, to, reason), show_overrides)
        }
        OverridesAction::Remove { limit, text, reason, target } => {
            target.run(change(limit, &text, Value::Null, reason), show_overrides)
        }
    }
}

fn show_overrides(overrides: &Value) -> String {
    let all = overrides.as_array().cloned().unwrap_or_else(|| vec![overrides.clone()]);
    let row = |one: &Value| {
        vec![text(&one["limit"]), text(&one["key"]), text(&one["to"]), text(&one["was"]), text(&one["why"])]
    };
    table(&["LIMIT", "KEY", "TO", "WAS", "LEFT OUT"], &all.iter().map(row).collect::<Vec<_>>())
}
