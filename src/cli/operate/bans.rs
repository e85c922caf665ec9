//! `weir bans`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use super::target::{ApiRequest, Target, key_of, text};
use crate::cli::output::Exit;
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct BansArgs {
    #[command(subcommand)]
    action: BansAction,
}

#[derive(Debug, Subcommand)]
enum BansAction {
    /// List the bans of operators and of limits.
    List {
        /// The name of one limit.
        limit: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Ban a key of a limit, or an address for all limits.
    Add {
        #[command(flatten)]
        clients: BannedArgs,
        #[command(flatten)]
        length: LengthArgs,
        /// The reason.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Lift a ban, or all bans of a limit or a network.
    Lift {
        #[command(flatten)]
        clients: BannedArgs,
        /// Lift all bans of the limit, or all bans of addresses within the network.
        #[arg(long, conflicts_with_all = ["text", "id"])]
        all: bool,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// The length of a ban.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct LengthArgs {
    /// The length, such as `10min` or `24h`.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// Ban for good, until the ban is lifted.
    #[arg(long)]
    forever: bool,
}

/// The clients of a ban.
#[derive(Debug, Args)]
struct BannedArgs {
    /// The name of the limit.
    #[arg(required_unless_present_any = ["limit_option", "address"], conflicts_with = "address")]
    limit: Option<String>,
    /// The name of the limit.
    #[arg(long = "limit", value_name = "LIMIT", conflicts_with_all = ["limit", "address"])]
    limit_option: Option<String>,
    /// The key: its parts with `|` between them, or a JSON object with the parts by name.
    #[arg(value_name = "KEY")]
    text: Option<String>,
    /// The id of the key, in place of its text.
    #[arg(long, conflicts_with_all = ["text", "address"])]
    id: Option<String>,
    /// An address, or a network such as 192.0.2.0/24, for all limits.
    #[arg(long)]
    address: Option<String>,
}

pub(in crate::cli) fn bans(BansArgs { action }: BansArgs) -> Exit {
    match action {
        BansAction::List { limit, target } => target
            .run(ApiRequest::query(Method::GET, "/v1/bans", vec![("limit", limit)]), |bans| show_bans(&bans["bans"])),
        BansAction::Add { clients, length, reason, target } => {
            let BannedArgs { limit, limit_option, text, id, address } = clients;
            let limit = limit.or(limit_option);
            let length = length.length.or_else(|| length.forever.then(|| "forever".to_owned()));
            let key = text.as_deref().map(key_of);
            let ban = [("limit", limit), ("id", id), ("address", address), ("for", length), ("reason", reason)];
            let mut body: serde_json::Map<_, _> =
                ban.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect();
            body.extend(key.map(|key| ("key".to_owned(), key)));
            target.run(ApiRequest::post("/v1/bans", &body.into()), show_changed_ban)
        }
        BansAction::Lift { clients, all, reason, target } => {
            let BannedArgs { limit, limit_option, text, id, address } = clients;
            let limit = limit.or(limit_option);
            if all {
                let query = vec![("limit", limit), ("address", address), ("reason", reason)];
                return target.run(ApiRequest::query(Method::DELETE, "/v1/bans/all", query), show_lifted);
            }
            let query = vec![("limit", limit), ("key", text), ("id", id), ("address", address), ("reason", reason)];
            target.run(ApiRequest::query(Method::DELETE, "/v1/bans", query), show_changed_ban)
        }
    }
}

fn show_lifted(lifted: &Value) -> String {
    let [by_operators, by_limit] = ["by_operators", "by_limit"].map(|name| text(&lifted[name]));
    format!("lifted {by_operators} bans of operators, and {by_limit} that the limit set{}", warning(lifted))
}

/// The warning that a change is not on disk; empty if it is.
fn warning(changed: &Value) -> String {
    changed["not_kept"].as_str().map(|why| format!("\nends with the process: {why}")).unwrap_or_default()
}

pub(super) fn show_bans(bans: &Value) -> String {
    let row = |ban: &Value| {
        let clients = if ban["address"].is_null() { text(&ban["key"]) } else { text(&ban["address"]) };
        let until = if ban["until"].is_null() { "for good".to_owned() } else { text(&ban["until"]) };
        vec![text(&ban["limit"]), clients, until, text(&ban["by"]), text(&ban["reason"])]
    };
    let rows: Vec<_> = bans.as_array().into_iter().flatten().map(row).collect();
    table(&["LIMIT", "CLIENTS", "UNTIL", "BY", "REASON"], &rows)
}

fn show_changed_ban(changed: &Value) -> String {
    let ban = if changed["ban"].is_null() { &changed["was"] } else { &changed["ban"] };
    let did = if changed["ban"].is_null() { "lifted" } else { "in force" };
    format!("{did}\n{}{}", show_bans(&Value::Array(vec![ban.clone()])), warning(changed))
}
