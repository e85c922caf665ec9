//! `[admin]`: the address of the admin listener, the credentials of operators, and the files that they change.

use std::path::PathBuf;

use super::identity::secret_of;
use super::tls;
use super::warnings::{of_appended, of_folder};
use super::written_files::file_to_write;
use crate::admin::{OperatorToken, Role};
use crate::config::files::sibling;
use crate::config::reader::{Fault, Located, Problem, Table, units, whole};
use crate::config::schema::words;
use crate::engine::policy::bearer::{BearerToken, TOKEN_BYTES_MIN};
use crate::engine::policy::host::{host, is_authority};
use crate::transport::net::ListenAddress;
use crate::transport::net::tls::ServerTls;

/// The admin listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The address; `None` if there is no admin listener. Fixed at start.
    pub listen: Option<ListenAddress>,
    /// The certificates; `None` without TLS. Whether there is TLS is fixed at start.
    pub tls: Option<ServerTls>,
    /// Host names that requests may have beside addresses, in lower case.
    pub hosts: Box<[Box<str>]>,
    /// The tokens of operators; none if no token is required.
    pub tokens: Box<[OperatorToken]>,
    /// The audit log, if changes have a file beside the log.
    pub audit: Option<PathBuf>,
    /// The file of bans; `None` if the configuration names none and is not from a file. Fixed at start.
    pub bans: Option<PathBuf>,
}

/// The name of the token of `admin.token`.
const ONLY_NAME: &str = "admin";
const NAME_BYTES_MAX: usize = 64;

/// Compiles the address of the admin listener; `None` for `off`.
pub(super) fn listen(table: &Table<'_>) -> Option<Located<Option<ListenAddress>>> {
    let dir = table.context.dir;
    let parse = |text: &str| if text == "off" { Ok(None) } else { units::listen(text, dir).map(Some) };
    table.parsed_at("listen", parse)
}

/// Compiles the other settings of the admin listener, which has the address `listen`.
pub(super) fn admin(table: &Table<'_>, listen: Option<&Located<Option<ListenAddress>>>) -> Option<AdminSettings> {
    let (tls_table, is_insecure) = (table.table("tls"), table.switch("insecure"));
    let own_bans = table.context.own.map(|own| sibling(own, "bans.jsonl"));
    let tokens = tokens(table);
    let has_token = tokens.as_ref().is_none_or(|tokens| !tokens.is_empty());
    let settings = whole!(AdminSettings {
        listen: listen.map(|listen| listen.get_ref().clone()),
        tls: Some(tls::tls(&tls_table)),
        hosts: table.list("hosts", admin_host).map(Into::into),
        tokens: tokens.map(Into::into),
        audit: Some(audit(table)),
        bans: Some(if table.has("bans") { new_file(table, "bans") } else { own_bans }),
    });
    let address = listen?;
    if address.get_ref().as_ref().is_some_and(units::is_elsewhere) {
        let demand = |what: &str, help| table.fault("listen", address.span(), Fault::new(what).help(help).absence());
        if !tls_table.is_present() && is_insecure == Some(false) {
            let help = "add `[admin.tls]`, or `insecure = true` if that network is trusted";
            demand("other machines can reach this address without TLS", help);
        }
        if !has_token {
            let help = "add `token = { env = \"NAME\" }` or `token = { file = \"path\" }`";
            demand("other machines can reach this address without a token", help);
        }
    }
    is_insecure?;
    settings
}

/// Checks that Weir can write the file of overrides, if the option names one.
pub(super) fn overrides(table: &Table<'_>) {
    let value = table.get("overrides").and_then(|value| value.get_ref().as_str());
    if !matches!(value, Some("off" | "memory")) {
        new_file(table, "overrides");
    }
}

/// The audit log, if the option names one.
fn audit(table: &Table<'_>) -> Option<PathBuf> {
    let file = file_to_write(table, "audit")?;
    of_appended(table, "audit", file.span(), file.get_ref());
    Some(file.into_inner())
}

/// The path of a file that Weir creates in its folder, if the option names one.
fn new_file(table: &Table<'_>, key: &str) -> Option<PathBuf> {
    let file = file_to_write(table, key)?;
    of_folder(table, key, file.span(), file.get_ref());
    Some(file.into_inner())
}

/// The tokens of `token` and `tokens`; `None` if one has an error.
fn tokens(table: &Table<'_>) -> Option<Vec<OperatorToken>> {
    let only = table.optional("token", |_| token(table));
    let only = only.map(|token| token.map(|token| OperatorToken { name: ONLY_NAME.into(), role: Role::Write, token }));
    let mut is_valid = only.is_some();
    let mut tokens: Vec<OperatorToken> = only.into_iter().flatten().collect();
    for item in table.tables("tokens") {
        let name = item.parsed_at("name", token_name);
        let role = item.choice("role", &words::ROLES);
        if !item.has("token") {
            let problem = Problem::new(item.span(), "`admin.tokens.token` is missing").absence();
            item.context.note(problem.help("write `token = { file = \"path\" }` or `token = { env = \"NAME\" }`"));
        }
        let token = token(&item);
        if let Some(name) = &name
            && tokens.iter().any(|known| *known.name == **name.get_ref())
        {
            item.fault("name", name.span(), "another token has this name");
            is_valid = false;
        }
        let (Some(name), Some(role), Some(token)) = (name, role, token) else {
            is_valid = false;
            continue;
        };
        if tokens.iter().any(|known| known.token == token) {
            item.context.note(Problem::new(item.span(), "two names have the same token"));
            is_valid = false;
        }
        tokens.push(OperatorToken { name: name.into_inner(), role, token });
    }
    is_valid.then_some(tokens)
}

fn token_name(text: &str) -> Result<Box<str>, Fault> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name { Ok(text.into()) } else { Err("is no name: write up to 64 letters, digits and signs".into()) }
}

fn token(table: &Table<'_>) -> Option<BearerToken> {
    let what = || format!("a token needs at least {TOKEN_BYTES_MIN} bytes, all of them visible ASCII");
    secret_of(table, "token", |bytes| BearerToken::new(&bytes).ok_or_else(what))
}

fn admin_host(text: &str) -> Result<Box<str>, Fault> {
    if text.contains(':') || !is_authority(text) {
        return Err((format!("`{text}` is not a host"), "write the host without a port").into());
    }
    Ok(host(text).into())
}
