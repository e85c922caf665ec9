//! `weir keys`, `weir bans` and `weir overrides`: what operators ask of a running Weir, over the admin API.
//!
//! On a terminal the answer is a table, elsewhere it is the JSON of the API.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Method, Request, header};
use serde_json::{Value, json};

use super::ask::{AdminAddress, Credentials, ask};
use super::output::{fail, invalid, say};
use super::table::table;
use crate::config::{self, Origin};
use crate::net::ListenAddress;

/// The Weir that is asked, and the form of its answer.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// The admin listener: a host and a port, a URL, or `unix:` and a path. The default is that of --config, then the
    /// environment variable `WEIR_ADMIN`, then 127.0.0.1:9901.
    #[arg(long, value_name = "URL")]
    admin: Option<AdminAddress>,
    /// The configuration file that names the admin listener.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    #[command(flatten)]
    credentials: Credentials,
    /// Print JSON, also on a terminal.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct KeysArgs {
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
    /// List the keys that a limit denies now, or on which requests wait.
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
    /// Give all units of a key back.
    Reset {
        #[command(flatten)]
        key: KeyArgs,
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

#[derive(Debug, Args)]
pub(super) struct BansArgs {
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
        clients: ClientArgs,
        /// The length, such as `10min` or `24h`; without it the ban is for good.
        #[arg(long = "for", value_name = "TIME")]
        length: Option<String>,
        /// The reason.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Lift a ban.
    Lift {
        #[command(flatten)]
        clients: ClientArgs,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// The clients of a ban.
#[derive(Debug, Args)]
struct ClientArgs {
    /// The name of the limit.
    #[arg(required_unless_present = "address", conflicts_with = "address")]
    limit: Option<String>,
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

#[derive(Debug, Args)]
pub(super) struct OverridesArgs {
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

/// A request of the API.
struct ApiRequest {
    method: Method,
    path: &'static str,
    query: Vec<(&'static str, String)>,
    body: Value,
}

impl ApiRequest {
    fn query(method: Method, path: &'static str, query: Vec<(&'static str, Option<String>)>) -> Self {
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Self { method, path, query, body: Value::Null }
    }

    fn post(path: &'static str, body: Value) -> Self {
        Self { method: Method::POST, path, query: Vec::new(), body }
    }
}

/// A key as JSON: an object if the text is one, else the text.
fn key_of(text: &str) -> Value {
    json_or_text(text, Value::is_object)
}

fn json_or_text(text: &str, is_json: impl Fn(&Value) -> bool) -> Value {
    serde_json::from_str(text).ok().filter(is_json).unwrap_or_else(|| Value::from(text))
}

pub(super) fn keys(KeysArgs { action }: KeysArgs) -> ExitCode {
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
        KeysAction::Reset { key, reason, target } => target
            .run(of_key(Method::DELETE, key, ("reason", reason)), |reset| {
                format!("before\n{}\n\nafter\n{}", show_key(&reset["before"]), show_key(&reset["after"]))
            }),
    }
}

pub(super) fn bans(BansArgs { action }: BansArgs) -> ExitCode {
    match action {
        BansAction::List { limit, target } => target
            .run(ApiRequest::query(Method::GET, "/v1/bans", vec![("limit", limit)]), |bans| show_bans(&bans["bans"])),
        BansAction::Add { clients: ClientArgs { limit, text, id, address }, length, reason, target } => {
            let key = text.as_deref().map(key_of);
            let ban = [("limit", limit), ("id", id), ("address", address), ("for", length), ("reason", reason)];
            let mut body: serde_json::Map<_, _> =
                ban.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect();
            body.extend(key.map(|key| ("key".to_owned(), key)));
            target.run(ApiRequest::post("/v1/bans", body.into()), show_changed_ban)
        }
        BansAction::Lift { clients: ClientArgs { limit, text, id, address }, reason, target } => {
            let query = vec![("limit", limit), ("key", text), ("id", id), ("address", address), ("reason", reason)];
            target.run(ApiRequest::query(Method::DELETE, "/v1/bans", query), show_changed_ban)
        }
    }
}

pub(super) fn overrides(OverridesArgs { action }: OverridesArgs) -> ExitCode {
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

/// The bound on the time of the admin listener.
const AT_MOST: Duration = Duration::from_secs(15);

impl Target {
    /// Sends a request, and prints the answer: with `show` on a terminal, else as JSON.
    fn run(self, asked: ApiRequest, show: impl Fn(&Value) -> String) -> ExitCode {
        let admin = match self.address() {
            Ok(admin) => admin,
            Err(code) => return code,
        };
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&asked.query).finish();
        let target = if query.is_empty() { asked.path.to_owned() } else { format!("{}?{query}", asked.path) };
        let head = Request::builder().method(asked.method).uri(target);
        let (head, body) = match asked.body {
            Value::Null => (head, Vec::new()),
            body => (head.header(header::CONTENT_TYPE, "application/json"), body.to_string().into_bytes()),
        };
        let (status, body) = match ask(&admin, &self.credentials, head, body, AT_MOST) {
            Ok(answer) => answer,
            Err(error) => return fail(&error),
        };
        let answer = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        if !status.is_success() {
            let detail = answer.get("detail").and_then(Value::as_str).map(|detail| format!(": {detail}"));
            return fail(&format_args!("{admin} answers {status}{}", detail.unwrap_or_default()));
        }
        if self.json || !io::stdout().is_terminal() { say(&format_args!("{answer:#}")) } else { say(&show(&answer)) }
    }

    /// The admin listener. The error is the exit code.
    fn address(&self) -> Result<AdminAddress, ExitCode> {
        if let Some(admin) = &self.admin {
            return Ok(admin.clone());
        }
        let wrong = |text: &str| fail(&format_args!("`{text}` is no admin listener"));
        let Some(file) = &self.config else {
            let text = std::env::var("WEIR_ADMIN").unwrap_or_else(|_| "127.0.0.1:9901".to_owned());
            return text.parse().map_err(|_| wrong(&text));
        };
        let admin = config::load(&Origin::File(file.clone())).map_err(|diagnostics| invalid(&diagnostics))?.admin;
        let text = match &admin.listen {
            None => return Err(fail(&"the configuration has no admin listener")),
            Some(ListenAddress::Unix(path)) => format!("unix:{}", path.display()),
            Some(ListenAddress::Tcp(address)) => {
                let mut address = *address;
                if address.ip().is_unspecified() {
                    address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
                }
                format!("{}{address}", if admin.tls.is_some() { "https://" } else { "" })
            }
        };
        text.parse().map_err(|_| wrong(&text))
    }
}

/// The text of a value: without quotes, and `-` for none.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(parts) => {
            parts.iter().map(|(name, part)| format!("{name}={}", text(part))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

fn duration(ms: &Value) -> String {
    let duration = ms.as_u64().map(|ms| humantime::format_duration(Duration::from_millis(ms)).to_string());
    duration.unwrap_or_else(|| "-".to_owned())
}

fn show_key(key: &Value) -> String {
    let rows =
        ["limit", "key", "id", "rule", "from", "remaining", "debt", "limited", "waiting", "banned_until", "decided_by"];
    let mut rows: Vec<_> = rows.into_iter().map(|name| vec![name.replace('_', " "), text(&key[name])]).collect();
    rows.push(vec!["whole again in".to_owned(), duration(&key["reset_after_ms"])]);
    rows.push(vec!["next unit in".to_owned(), duration(&key["retry_after_ms"])]);
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
    table(&["KEY", "ID", "WAITING", "REMAINING", "NEXT UNIT IN"], &rows) + &more.unwrap_or_default()
}

fn show_bans(bans: &Value) -> String {
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
    let warning = changed["not_kept"].as_str().map(|why| format!("\nends with the process: {why}"));
    format!("{did}\n{}{}", show_bans(&Value::Array(vec![ban.clone()])), warning.unwrap_or_default())
}

fn show_overrides(overrides: &Value) -> String {
    let all = overrides.as_array().cloned().unwrap_or_else(|| vec![overrides.clone()]);
    let row = |one: &Value| {
        vec![text(&one["limit"]), text(&one["key"]), text(&one["to"]), text(&one["was"]), text(&one["why"])]
    };
    table(&["LIMIT", "KEY", "TO", "WAS", "LEFT OUT"], &all.iter().map(row).collect::<Vec<_>>())
}
