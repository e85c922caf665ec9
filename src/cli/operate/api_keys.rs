//! `weir apikeys`: edits the file of API keys, which a running Weir reads again by itself. Only the list can ask a running
//! Weir, which knows when keys were used.

use std::io::{self, BufRead, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, text};
use crate::admin::{ApiKeyOwnerBody, OVERLAP_DEFAULT, rfc3339};
use crate::app::remote::ConfigAddress;
use crate::base::time::system_now;
use crate::cli::ask::{AdminAddress, Credentials};
use crate::cli::output::{Exit, complain, deliver, fail, failed, goes_nowhere, say};
use crate::cli::source::ConfigArg;
use crate::cli::table::table;
use crate::config::api_keys;
use crate::engine::policy::api_keys::{EditedKeys, KeyChange, KeyEdit};

/// More than the longest key.
const LINE_BYTES_MAX: u64 = 1024;

#[derive(Debug, Args)]
pub(in crate::cli) struct ApiKeysArgs {
    #[command(subcommand)]
    action: ApiKeysAction,
}

#[derive(Debug, Subcommand)]
enum ApiKeysAction {
    /// Make the first key of an owner, and print it: it cannot be shown again.
    New {
        /// The name of the owner, which is the identity of its requests.
        #[arg(long)]
        name: String,
        /// The plan of the owner.
        #[arg(long)]
        plan: Option<String>,
        /// The life of the key, such as `90d`; without it, it is valid until it is revoked.
        #[arg(long, value_name = "LENGTH", value_parser = length)]
        expires: Option<Duration>,
        #[command(flatten)]
        place: KeyFileArgs,
    },
    /// Read a key of another system from standard input, and make it the first key of an owner.
    Adopt {
        /// The name of the owner.
        #[arg(long)]
        name: String,
        /// The plan of the owner.
        #[arg(long)]
        plan: Option<String>,
        #[command(flatten)]
        place: KeyFileArgs,
    },
    /// List owners and their keys, without the keys themselves.
    List {
        #[command(flatten)]
        place: KeyFileArgs,
        /// The admin listener of a running Weir, to show its keys with the hour of their last use.
        #[arg(long, value_name = "URL", conflicts_with_all = ["place", "config", "file"])]
        admin: Option<AdminAddress>,
        #[command(flatten)]
        credentials: Credentials,
        /// Print JSON, also on a terminal.
        #[arg(long)]
        json: bool,
    },
    /// Make another key for an owner, and print it; the old key stays valid for a while.
    Rotate {
        /// The name of the owner.
        #[arg(long)]
        name: String,
        /// The rest of the old key's life; `0s` ends it at once.
        #[arg(long, value_name = "LENGTH", default_value = OVERLAP_DEFAULT, value_parser = length_or_none)]
        overlap: Duration,
        /// The life of the new key; by default as long as that of the old one.
        #[arg(long, value_name = "LENGTH", value_parser = length)]
        expires: Option<Duration>,
        #[command(flatten)]
        place: KeyFileArgs,
    },
    /// Revoke all keys of an owner, or one of them.
    Revoke {
        /// The name of the owner.
        #[arg(long)]
        name: String,
        /// The id of one key, as the list shows it.
        #[arg(long)]
        id: Option<String>,
        #[command(flatten)]
        place: KeyFileArgs,
    },
}

/// The file of keys.
#[derive(Debug, Args)]
struct KeyFileArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// The name of the identity; needed if several have API keys.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// The file of keys, in place of the one that the configuration names.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["place", "config", "identity"])]
    file: Option<PathBuf>,
}

impl KeyFileArgs {
    /// The name of the identity, empty for a file without its configuration, and the file. The error is the exit code.
    fn find(self) -> Result<(String, PathBuf), ExitCode> {
        if let Some(file) = self.file {
            return Ok((String::new(), file));
        }
        let ConfigAddress::File(config) = self.config.address()? else {
            return Err(fail(&"a remote configuration names its file of keys for other machines; name it by --file"));
        };
        api_keys::locate(&config, self.identity.as_deref()).map_err(failed)
    }
}

fn length_or_none(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "expected a length such as `90d`")
}

fn length(text: &str) -> Result<Duration, &'static str> {
    let read = length_or_none(text)?;
    if read.is_zero() { Err("must be above zero") } else { Ok(read) }
}

pub(in crate::cli) fn api_keys(ApiKeysArgs { action }: ApiKeysArgs) -> Exit {
    match action {
        ApiKeysAction::New { name, plan, expires: lifetime, place } => {
            edit(place, &KeyEdit { name, change: KeyChange::New { plan, lifetime } })
        }
        ApiKeysAction::Adopt { name, plan, place } => {
            let secret = first_line(stdin().lock());
            let secret = secret.map_err(|error| fail(&format_args!("the key cannot be read: {error}")))?;
            edit(place, &KeyEdit { name, change: KeyChange::Adopt { secret, plan } })
        }
        ApiKeysAction::Rotate { name, overlap, expires: lifetime, place } => {
            edit(place, &KeyEdit { name, change: KeyChange::Rotate { overlap, lifetime } })
        }
        ApiKeysAction::Revoke { name, id, place } => edit(place, &KeyEdit { name, change: KeyChange::Revoke { id } }),
        ApiKeysAction::List { place, admin, credentials, json } => {
            let target = Target { admin, config: None, credentials, json };
            if target.admin.is_some() {
                let query = vec![("identity", place.identity)];
                return target.run(ApiRequest::query(Method::GET, "/v1/apikeys", query), |all| show(&all["owners"]));
            }
            list(place, target.wants_json())
        }
    }
}

/// The first line, without its end and without spaces around it.
fn first_line(from: impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Edits the file. Standard output has a new key and nothing else.
fn edit(place: KeyFileArgs, edit: &KeyEdit) -> Exit {
    let (_, file) = place.find()?;
    if matches!(edit.change, KeyChange::New { .. } | KeyChange::Rotate { .. }) && goes_nowhere() {
        return Err(fail(&"a key is printed once, and standard output is closed or `/dev/null`; nothing was changed"));
    }
    let EditedKeys { secret, after, .. } = api_keys::edit(&file, edit, system_now()).map_err(failed)?;
    let (name, file) = (&edit.name, file.display());
    if matches!(edit.change, KeyChange::Adopt { .. }) {
        return Ok(complain(&format_args!("weir: `{name}` has its key in {file} now"), 0));
    }
    let Some(secret) = secret else {
        let left = after.map_or_else(String::new, |owner| format!("; it has {} left", owner.keys.len()));
        return Ok(complain(&format_args!("weir: revoked in {file}: API keys of `{name}`{left}"), 0));
    };
    let old = after.as_ref().and_then(|owner| owner.keys.iter().rev().nth(1)?.end());
    let until = old.map_or_else(String::new, |until| format!("; the old key is valid until {}", rfc3339(until)));
    complain(&format_args!("weir: `{name}` has a new API key in {file}, which is not shown again{until}"), 0);
    let Err(error) = deliver(&secret) else { return Ok(ExitCode::SUCCESS) };
    let id = after.and_then(|owner| Some(owner.keys.last()?.id())).unwrap_or_default();
    Err(fail(&format_args!(
        "standard output: {error}; the key is in the file, but was not printed; `revoke --id {id}` revokes it"
    )))
}

fn list(place: KeyFileArgs, wants_json: bool) -> Exit {
    let (identity, file) = place.find()?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("cannot be read: {error}"));
    let owners = text.and_then(|text| api_keys::read(&text));
    let owners = owners.map_err(|what| fail(&format_args!("`{}` {what}", file.display())))?;
    let now = system_now();
    let owners: Vec<_> = owners.iter().map(|owner| ApiKeyOwnerBody::of(&identity, owner, None, now)).collect();
    let all = json!({ "owners": owners, "more": 0 });
    if wants_json { say(&format_args!("{all:#}")) } else { say(&show(&all["owners"])) }
}

fn show(owners: &Value) -> String {
    let row = |(owner, key): (&Value, &Value)| {
        let state = match (owner["disabled"] == true, key["expired"] == true) {
            (true, _) => "disabled",
            (false, true) => "expired",
            (false, false) => "valid",
        };
        let [name, plan] = ["name", "plan"].map(|field| text(&owner[field]));
        let [id, created, expires, used] = ["id", "created", "expires", "last_used"].map(|field| text(&key[field]));
        vec![name, plan, id, state.to_owned(), created, expires, used]
    };
    let owners = owners.as_array().into_iter().flatten();
    let keys = owners.flat_map(|owner| owner["keys"].as_array().into_iter().flatten().map(move |key| (owner, key)));
    let rows: Vec<_> = keys.map(row).collect();
    table(&["NAME", "PLAN", "ID", "STATE", "CREATED", "EXPIRES", "LAST USED"], &rows)
}
