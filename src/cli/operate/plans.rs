//! `weir plans`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, TermArgs, ends, key_of, remarks, text};
use crate::cli::output::Exit;
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct PlansArgs {
    #[command(subcommand)]
    action: PlansAction,
}

#[derive(Debug, Subcommand)]
enum PlansAction {
    /// List the plans that are assigned to keys.
    List {
        /// The name of one limit.
        limit: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Assign a plan of a limit to a key.
    Set {
        /// The name of the limit.
        limit: String,
        /// The key: its parts with `|` between them, or a JSON object with the parts by name.
        #[arg(value_name = "KEY")]
        text: String,
        /// The name of one of the limit's plans.
        plan: String,
        #[command(flatten)]
        terms: TermArgs,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Remove the plan of a key.
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

pub(in crate::cli) fn plans(PlansArgs { action }: PlansArgs) -> Exit {
    match action {
        PlansAction::List { limit, target } => {
            target.run(ApiRequest::query(Method::GET, "/v1/plans", vec![("limit", limit)]), show_plans)
        }
        PlansAction::Set { limit, text, plan, terms: TermArgs { length, replace }, reason, target } => {
            let (key, length) = (key_of(&text), length.as_deref());
            let plan = json!({ "limit": limit, "key": key, "plan": plan, "for": length, "replace": replace, "reason": reason });
            target.run(ApiRequest::post("/v1/plans", &plan), show_plans)
        }
        PlansAction::Remove { limit, text, reason, target } => {
            let query = vec![("limit", Some(limit)), ("key", Some(text)), ("reason", reason)];
            target.run(ApiRequest::query(Method::DELETE, "/v1/plans", query), show_plans)
        }
    }
}

fn show_plans(plans: &Value) -> String {
    let all = plans.as_array().cloned().unwrap_or_else(|| vec![plans.clone()]);
    let row = |one: &Value| {
        let (limit, key, plan) = (text(&one["limit"]), text(&one["key"]), text(&one["plan"]));
        vec![limit, key, plan, ends(one), text(&one["was"]), text(&one["why"])]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    table(&["LIMIT", "KEY", "PLAN", "ENDS", "WAS", "LEFT OUT"], &rows) + &remarks(&all)
}
