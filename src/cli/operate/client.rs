//! `weir client`.

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::bans::show_bans;
use super::tap;
use super::target::{ApiRequest, Target, text};
use crate::cli::output::{Exit, fail};
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct ClientArgs {
    /// The client: identities, `ip` or other parts of keys, as in `seller=777 ip=203.0.113.7`.
    #[arg(value_name = "NAME=TEXT", required = true)]
    parts: Vec<String>,
    /// The plan by whose numbers limits decide.
    #[arg(long)]
    plan: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(in crate::cli) fn client(ClientArgs { parts, plan, target }: ClientArgs) -> Exit {
    let mut named = serde_json::Map::new();
    for part in &parts {
        let Some((name, text)) = part.split_once('=') else {
            return Err(fail(&format_args!("`{part}`: expected a name and a text, as in `seller=777`")));
        };
        if named.insert(name.to_owned(), json!(text)).is_some() {
            return Err(fail(&format_args!("`{name}` occurs twice")));
        }
    }
    let key = Value::Object(named).to_string();
    let query = vec![("key", Some(key)), ("plan", plan)];
    target.run(ApiRequest::query(Method::GET, "/v1/client", query), show_client)
}

fn show_client(client: &Value) -> String {
    let items = |of: &'static str| client[of].as_array().into_iter().flatten();
    let mut shown = vec![text(&client["verdict"])];
    let keys = items("limits").flat_map(|limit| limit["keys"].as_array().into_iter().flatten());
    let row = |own: &Value| {
        let key = &own["key"];
        let until = own["override_until"].as_str().map(|until| format!(", until {until}"));
        let from = text(&key["from"]) + &until.unwrap_or_default();
        let verdict = text(&own["verdict"]);
        vec![text(&key["limit"]), text(&key["key"]), text(&key["remaining"]), text(&key["rule"]), from, verdict]
    };
    let rows: Vec<_> = keys.map(row).collect();
    shown.push(table(&["LIMIT", "KEY", "REMAINING", "RULE", "FROM", "VERDICT"], &rows));
    for limit in items("limits").filter(|limit| limit["keys"].as_array().is_some_and(Vec::is_empty)) {
        let missing: Vec<_> = limit["missing"].as_array().into_iter().flatten().map(text).collect();
        shown.push(format!("{} also counts by {}: name it, too", text(&limit["limit"]), missing.join(", ")));
    }
    if items("bans").next().is_some() {
        shown.push(format!("bans of its address\n{}", show_bans(&client["bans"])));
    }
    let decisions = &client["decisions"];
    let requests: Vec<_> = decisions["requests"].as_array().into_iter().flatten().map(tap::shown).collect();
    shown.push(match (decisions["count"].as_u64(), requests.is_empty()) {
        (None, _) => "no list of its last requests: all taps are open".to_owned(),
        (Some(_), true) => "Its requests are kept from now on, until nobody looks for half a minute.".to_owned(),
        (Some(_), false) => format!("{}\n{}", tap::heading(), requests.join("\n")),
    });
    shown.join("\n\n")
}
