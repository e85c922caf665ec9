//! `[check]`: the listener at which other proxies and services ask whether a request may pass.

use super::tls;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::transport::net::tls::ServerTls;
use crate::transport::proxy::settings::{CheckHeaders, CheckListener, CheckSettings};

/// Compiles the listener and its settings; the inner option is `None` without `[check]`. The listener has its position.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn check(table: &Table<'_>, server: &Table<'_>) -> Option<Option<(Located<CheckListener>, CheckSettings)>> {
    if !table.is_present() {
        return Some(None);
    }
    let dir = table.context.dir;
    let listen = table.parsed("listen", |text| units::listen(text, dir));
    let words = [("x-forwarded", CheckHeaders::XForwarded), ("x-original", CheckHeaders::XOriginal)];
    let headers = table.choice("headers", &words);
    let max_connections = table.count("max_connections");
    let tls = tls::tls(&table.table("tls")).map(ServerTls::http1_only);
    let listen = listen?;
    let trusted = server.get("trusted_proxies").map(toml::Spanned::get_ref);
    if trusted.is_none_or(|trusted| trusted.as_array().is_some_and(|all| all.is_empty())) {
        let help = "add the addresses of the proxies that ask, as in `trusted_proxies = [\"10.0.0.0/24\"]`";
        let fault = Fault::new("without `server.trusted_proxies` nobody may ask").help(Some(help.to_owned()));
        table.fault("listen", listen.span(), Fault { absence: true, ..fault });
    }
    let span = listen.span();
    let listener = CheckListener { listen: listen.into_inner(), max_connections: max_connections?.into_inner() };
    Some(Some((Located::new(span, listener), CheckSettings { headers: headers?, tls })))
}
