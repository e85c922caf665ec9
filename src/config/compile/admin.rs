//! `[admin]`: the address of the admin listener, the credentials of operators, and the files that they change.

use std::path::PathBuf;

use super::identity::secret_of;
use super::tls;
use super::warnings::of_folder;
use crate::admin::{OperatorToken, Role};
use crate::config::diagnostics::Problem;
use crate::config::files::{is_same, sibling};
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
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
    table.parsed("listen", parse)
}

/// Compiles the other settings of the admin listener, which has the address `listen`.
pub(super) fn admin(table: &Table<'_>, listen: Option<&Located<Option<ListenAddress>>>) -> Option<AdminSettings> {
    let hosts = table.list("hosts", admin_host);
    let is_insecure = table.switch("insecure");
    let tls_table = table.table("tls");
    let tls = tls::tls(&tls_table);
    let tokens = tokens(table);
    let has_token = tokens.as_ref().is_none_or(|tokens| !tokens.is_empty());
    let audit = file_to_write(table, "audit");
    let own = table.context.own.map(|own| sibling(own, "bans.jsonl"));
    let bans = if table.has("bans") { file_to_write(table, "bans") } else { own };
    let address = listen?;
    let is_elsewhere = |place: &ListenAddress| match place {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix(_) => false,
    };
    if address.get_ref().as_ref().is_some_and(is_elsewhere) {
        let demand = |what: &str, help: &str| {
            let fault = Fault::new(what).help(Some(help.to_owned()));
            table.fault("listen", address.span(), Fault { absence: true, ..fault });
        };
        if !tls_table.is_present() && is_insecure == Some(false) {
            let help = "add `[admin.tls]`, or `insecure = true` if that network is trusted";
            demand("other machines can reach this address without TLS", help);
        }
        if !has_token {
            demand(
                "other machines can reach this address without a token",
                "add `token = { env = \"NAME\" }` or `token = { file = \"path\" }`",
            );
        }
    }
    let hosts = hosts?.into_iter().map(Located::into_inner).collect();
    is_insecure?;
    Some(AdminSettings { listen: address.get_ref().clone(), tls, hosts, tokens: tokens?.into(), audit, bans })
}

/// Checks that Weir can write the file of overrides, if the option names one.
pub(super) fn overrides(table: &Table<'_>) {
    let value = table.get("overrides").and_then(|value| value.get_ref().as_str());
    if !matches!(value, Some("off" | "memory")) {
        file_to_write(table, "overrides");
    }
}

/// The path of a file that Weir writes, if the option names one.
fn file_to_write(table: &Table<'_>, key: &str) -> Option<PathBuf> {
    let path = table.text(key)?;
    let context = table.context;
    let file = context.path(path.get_ref());
    if path.get_ref().ends_with('/') {
        table.fault(key, path.span(), Fault::new("is a folder; name a file in it"));
    } else if context.own.is_some_and(|own| is_same(own, &file)) {
        let help = "Weir writes this file, and would overwrite the configuration".to_owned();
        table.fault(key, path.span(), Fault::new("is the configuration file").help(Some(help)));
    } else {
        of_folder(table, key, path.span(), &file);
    }
    Some(file)
}

/// The tokens of `token` and `tokens`; `None` if one has an error.
fn tokens(table: &Table<'_>) -> Option<Vec<OperatorToken>> {
    let mut tokens: Vec<OperatorToken> = Vec::new();
    let mut is_valid = true;
    if table.has("token") {
        match token(table) {
            Some(token) => tokens.push(OperatorToken { name: ONLY_NAME.into(), role: Role::Write, token }),
            None => is_valid = false,
        }
    }
    for item in table.tables("tokens") {
        let name = item.parsed("name", token_name);
        let role = item.choice("role", &[("read", Role::Read), ("write", Role::Write)]);
        if !item.has("token") {
            let problem = Problem::new(item.span(), "`admin.tokens.token` is missing").absence();
            item.context
                .note(problem.help("write `token = { file = \"path\" }` or `token = { env = \"NAME\" }`".to_owned()));
        }
        let token = token(&item);
        if let Some(name) = &name
            && tokens.iter().any(|known| *known.name == **name.get_ref())
        {
            item.fault("name", name.span(), Fault::new("another token has this name"));
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
    if is_name { Ok(text.into()) } else { Err(Fault::new("is no name: write up to 64 letters, digits and signs")) }
}

fn token(table: &Table<'_>) -> Option<BearerToken> {
    let (span, bytes) = secret_of(table, "token")?;
    let token = BearerToken::new(&bytes);
    if token.is_none() {
        let what = format!("a token needs at least {TOKEN_BYTES_MIN} bytes, all of them visible ASCII");
        table.context.note(Problem::new(span, what));
    }
    token
}

fn admin_host(text: &str) -> Result<Box<str>, Fault> {
    if text.contains(':') || !is_authority(text) {
        return Err(
            Fault::new(format!("`{text}` is not a host")).help(Some("write the host without a port".to_owned()))
        );
    }
    Ok(host(text).into())
}
