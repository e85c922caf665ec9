//! `weir keys`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, duration, key_of, text};
use crate::admin::units_in_words;
use crate::cli::output::Exit;
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct KeysArgs {
    #[command(subcommand)]
    action: KeysAction,
}

#[derive(Debug, Subcommand)]
enum KeysAction {
    /// Show a key: what remains, its ban, its waiting requests.
    Show {
        #[command(flatten)]
        key: KeyArgs,
        /// The plan by whose numbers the limit decides.
        #[arg(long)]
        plan: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// List the keys that a limit refuses now, or on which requests wait.
    Limited {
        /// The name of the limit.
        limit: String,
        /// The number of keys, at most 1000.
        #[arg(short, long, default_value_t = 100)]
        n: usize,
        /// The page after this one: `next` of the JSON.
        #[arg(long)]
        after: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// List the keys with the most refused or held requests in the last minute, then of late.
    Top {
        /// The name of the limit.
        limit: String,
        /// The number of keys, at most 512.
        #[arg(short, long, default_value_t = 20)]
        n: usize,
        #[command(flatten)]
        target: Target,
    },
    /// Charge a key, or give units back.
    #[command(allow_negative_numbers = true)]
    Charge {
        /// The name of the limit.
        limit: String,
        /// The key: its parts with `|` between them, or a JSON object with the parts by name.
        #[arg(value_name = "KEY")]
        key_text: String,
        /// Whole units; a negative number gives units back.
        units: i64,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Give all units of a key back, or of all keys.
    Reset {
        #[command(flatten)]
        key: KeyArgs,
        /// Reset all keys of the limit that this Weir remembers.
        #[arg(long, conflicts_with_all = ["text", "id"])]
        all: bool,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// A key of a limit.
#[derive(Debug, Args)]
struct KeyArgs {
    /// The name of the limit.
    limit: String,
    /// The key: its parts with `|` between them, or a JSON object with the parts by name.
    #[arg(value_name = "KEY")]
    text: Option<String>,
    /// The id of the key, in place of its text.
    #[arg(long, conflicts_with = "text")]
    id: Option<String>,
}

pub(in crate::cli) fn keys(KeysArgs { action }: KeysArgs) -> Exit {
    let of_key = |method, KeyArgs { limit, text, id }: KeyArgs, more: (&'static str, Option<String>)| {
        ApiRequest::query(method, "/v1/keys", vec![("limit", Some(limit)), ("key", text), ("id", id), more])
    };
    match action {
        KeysAction::Show { key, plan, target } => target.run(of_key(Method::GET, key, ("plan", plan)), show_key),
        KeysAction::Limited { limit, n, after, target } => {
            let (limited, n) = (Some("true".to_owned()), Some(n.to_string()));
            let query = vec![("limit", Some(limit)), ("limited", limited), ("n", n), ("after", after)];
            target.run(ApiRequest::query(Method::GET, "/v1/keys", query), show_limited)
        }
        KeysAction::Top { limit, n, target } => {
            let query = vec![("limit", Some(limit)), ("n", Some(n.to_string()))];
            target.run(ApiRequest::query(Method::GET, "/v1/top", query), show_top)
        }
        KeysAction::Charge { limit, key_text, units, reason, target } => {
            let charge = json!({ "limit": limit, "key": key_of(&key_text), "units": units, "reason": reason });
            target.run(ApiRequest::post("/v1/spend", &charge), show_balance)
        }
        KeysAction::Reset { key, all: true, reason, target } => {
            let query = vec![("limit", Some(key.limit)), ("reason", reason)];
            target.run(ApiRequest::query(Method::DELETE, "/v1/keys/all", query), |reset| match &reset["more"] {
                more if *more == 0 => format!("{} keys were reset", reset["reset"]),
                more => format!("{} keys were reset; repeat the command for {more} others", reset["reset"]),
            })
        }
        KeysAction::Reset { key, all: false, reason, target } => target
            .run(of_key(Method::DELETE, key, ("reason", reason)), |reset| {
                format!("before\n{}\n\nafter\n{}", show_key(&reset["before"]), show_key(&reset["after"]))
            }),
    }
}

fn show_key(key: &Value) -> String {
    let rows =
        ["limit", "key", "id", "rule", "from", "remaining", "debt", "limited", "waiting", "banned_until", "decided_by"];
    let value = |name: &str| match (name, key[name].as_u64()) {
        ("remaining" | "debt", Some(units)) => units_in_words(units, key["unit"].as_str()),
        _ => text(&key[name]),
    };
    let mut rows: Vec<_> = rows.into_iter().map(|name| vec![name.replace('_', " "), value(name)]).collect();
    rows.push(vec!["reset after".to_owned(), duration(&key["reset_after_ms"])]);
    rows.push(vec!["retry after".to_owned(), duration(&key["retry_after_ms"])]);
    let unused = key["unused"] == true;
    let remark = if unused { "\nno state of this key: it was never seen, or has all of its units again" } else { "" };
    table(&["FIELD", "VALUE"], &rows) + remark
}

fn show_top(top: &Value) -> String {
    let keys = top["limits"][0]["keys"].as_array().into_iter().flatten();
    let row = |key: &Value| ["key", "last_minute", "count", "error"].map(|name| text(&key[name])).into();
    table(&["KEY", "LAST MINUTE", "OF LATE", "AT MOST TOO HIGH BY"], &keys.map(row).collect::<Vec<_>>())
}

fn show_balance(balance: &Value) -> String {
    let mut rows: Vec<_> =
        ["limit", "remaining", "debt"].map(|name| vec![name.to_owned(), text(&balance[name])]).into();
    rows.push(vec!["reset after".to_owned(), duration(&balance["reset_after_ms"])]);
    table(&["FIELD", "VALUE"], &rows)
}

fn show_limited(page: &Value) -> String {
    let row = |key: &Value| {
        vec![
            text(&key["key"]),
            text(&key["id"]),
            text(&key["waiting"]),
            text(&key["remaining"]),
            duration(&key["retry_after_ms"]),
        ]
    };
    let rows: Vec<_> = page["keys"].as_array().into_iter().flatten().map(row).collect();
    let more = page["next"].as_str().map(|next| format!("\n{} keys in all; --after {next}", text(&page["count"])));
    table(&["KEY", "ID", "WAITING", "REMAINING", "RETRY AFTER"], &rows) + &more.unwrap_or_default()
}
