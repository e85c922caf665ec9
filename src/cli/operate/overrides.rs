//! `weir overrides`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, TermArgs, ends, json_or_text, key_of, remarks, text};
use crate::cli::output::Exit;
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
        /// Only overrides that do not fit the configuration, and so do not apply.
        #[arg(long)]
        left_out: bool,
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
        /// A rate such as 500/min, a factor such as x2 or x0.5, `unlimited`, or JSON such as {"rate": "500/min", "burst": 100}, also a list of rates.
        to: String,
        #[command(flatten)]
        terms: TermArgs,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Remove the override of a key, or all that do not fit the configuration.
    Remove {
        /// The name of the limit.
        #[arg(required_unless_present = "left_out")]
        limit: Option<String>,
        /// The key, as for `set`.
        #[arg(value_name = "KEY", required_unless_present = "left_out", conflicts_with = "left_out")]
        text: Option<String>,
        /// All overrides that do not fit the configuration, of one limit or of all.
        #[arg(long)]
        left_out: bool,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

pub(in crate::cli) fn overrides(OverridesArgs { action }: OverridesArgs) -> Exit {
    let left_out = |is_set: bool| is_set.then(|| "true".to_owned());
    match action {
        OverridesAction::List { limit, left_out: only, target } => {
            let query = vec![("limit", limit), ("left_out", left_out(only))];
            target.run(ApiRequest::query(Method::GET, "/v1/overrides", query), show_overrides)
        }
        OverridesAction::Set { limit, text, to, terms: TermArgs { length, replace }, reason, target } => {
            let to = json_or_text(&to, |to| to.is_object() || to.is_array());
            let (key, length) = (key_of(&text), length.as_deref());
            let change =
                json!({ "limit": limit, "key": key, "to": to, "for": length, "replace": replace, "reason": reason });
            target.run(ApiRequest::post("/v1/overrides", &change), show_overrides)
        }
        OverridesAction::Remove { limit, text, left_out: all, reason, target } => {
            let query = vec![("limit", limit), ("key", text), ("left_out", left_out(all)), ("reason", reason)];
            target.run(ApiRequest::query(Method::DELETE, "/v1/overrides", query), show_overrides)
        }
    }
}

fn show_overrides(overrides: &Value) -> String {
    let all = overrides.as_array().cloned().unwrap_or_else(|| vec![overrides.clone()]);
    let row = |one: &Value| {
        let (limit, key, to) = (text(&one["limit"]), text(&one["key"]), text(&one["to"]));
        vec![limit, key, to, ends(one), text(&one["was"]), text(&one["why"])]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    table(&["LIMIT", "KEY", "TO", "ENDS", "WAS", "LEFT OUT"], &rows) + &remarks(&all)
}
