//! `[admin]`: the address of the admin listener, and the credentials of operators.

use super::identity::secret_of;
use super::tls;
use super::warnings::of_folder;
use crate::config::diagnostics::Problem;
use crate::config::files::is_same;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::net::ListenAddress;
use crate::net::tls::ServerTls;
use crate::policy::bearer::{BearerToken, TOKEN_BYTES_MIN};
use crate::policy::host::{host, is_authority};

/// The admin listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The address; `None` if there is no admin listener. Fixed at start.
    pub listen: Option<ListenAddress>,
    /// The certificates; `None` without TLS. Whether there is TLS is fixed at start.
    pub tls: Option<ServerTls>,
    /// Host names that requests may have beside addresses, in lower case.
    pub hosts: Box<[Box<str>]>,
    /// The token of operators; `None` if none is required.
    pub token: Option<BearerToken>,
}

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
    let token = table.has("token").then(|| token(table));
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
        if token.is_none() {
            demand(
                "other machines can reach this address without a token",
                "add `token = { env = \"NAME\" }` or `token = { file = \"path\" }`",
            );
        }
    }
    let hosts = hosts?.into_iter().map(Located::into_inner).collect();
    let token = token.map_or(Some(None), |token| token.map(Some))?;
    is_insecure?;
    Some(AdminSettings { listen: address.get_ref().clone(), tls, hosts, token })
}

/// Checks that Weir can write the file of overrides.
pub(super) fn overrides(table: &Table<'_>) {
    let Some(path) = table.text("overrides") else { return };
    let context = table.context;
    if path.get_ref().ends_with('/') {
        table.fault("overrides", path.span(), Fault::new("is a folder; name a file in it"));
    } else if context.own.is_some_and(|own| is_same(own, &context.path(path.get_ref()))) {
        let help = "Weir writes this file, and would overwrite the configuration".to_owned();
        table.fault("overrides", path.span(), Fault::new("is the configuration file").help(Some(help)));
    } else {
        of_folder(table, "overrides", path.span(), &context.path(path.get_ref()));
    }
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
