//! All listeners: their addresses, which must differ, and `[check]`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::grpc::listener;
use super::{admin, peers, tls, upstream};
use crate::config::reader::{Fault, Located, Optional, Problem, Table, units};
use crate::config::schema::words;
use crate::fleet::grpc::settings::ServiceListener;
use crate::transport::net::ListenAddress;
use crate::transport::net::tls::ServerTls;
use crate::transport::proxy::settings::{CheckListener, CheckSettings};

/// The listeners of a configuration. A field is `None` after an error.
pub(super) struct Listeners {
    /// For requests; empty if Weir only answers checks.
    pub(super) requests: Option<Vec<Located<ListenAddress>>>,
    /// For requests over TLS, if `requests` have none.
    pub(super) tls_requests: Option<Vec<Located<ListenAddress>>>,
    /// For checks; the inner option is `None` without `[check]`.
    pub(super) checks: Optional<(Located<CheckListener>, CheckSettings)>,
    /// For callers of the limiter service, with TLS; the inner option is `None` without `[grpc]`.
    pub(super) grpc: Optional<(Located<ServiceListener>, Option<ServerTls>)>,
    /// For other replicas; the inner option is `None` without `fleet.listen`.
    pub(super) fleet: Optional<Located<ListenAddress>>,
    /// The admin listener; the inner option is `None` for `off`.
    pub(super) operators: Option<Located<Option<ListenAddress>>>,
    /// For a successor; the inner option is `None` without `takeover`.
    pub(super) takeover: Optional<Located<PathBuf>>,
}

impl Listeners {
    /// Compiles the listeners of `server`, `admin`, `grpc`, `fleet` and `[check]`.
    pub(super) fn read(
        root: &Table<'_>,
        server: &Table<'_>,
        (admin, grpc, fleet): (&Table<'_>, &Table<'_>, &Table<'_>),
    ) -> Self {
        let dir = root.context.dir;
        let requests = server.list_at("listen", |text| units::listen(text, dir));
        let tls = server.table("tls");
        let tls_requests = tls.optional("listen", |key| tls.list_at(key, |text| units::listen(text, dir)));
        // Without a service there is nothing to forward to.
        let if_served = |places| if upstream::is_omitted(root) { Some(Vec::new()) } else { places };
        let listeners = Self {
            requests: if_served(requests),
            tls_requests: if_served(tls_requests.map(Option::unwrap_or_default)),
            checks: root.table("check").if_present(|table| check(table, server)),
            grpc: grpc.if_present(listener),
            fleet: peers::listener(fleet),
            operators: admin::listen(admin),
            takeover: server.optional("takeover", |key| server.parsed_at(key, |text| takeover(dir, text))),
        };
        listeners.check_apart(root, server.has("listen"));
        listeners
    }

    /// Notes an error for each listener that has an address of an earlier one; that of requests may be the default.
    fn check_apart(&self, root: &Table<'_>, is_chosen: bool) {
        let mut seen: Vec<(&str, Range<usize>, ListenAddress)> = Vec::new();
        for (name, span, place) in self.all() {
            let is_chosen_later = matches!(place, ListenAddress::Tcp(address) if address.port() == 0);
            if let Some((other_name, other, _)) = seen.iter().find(|(_, _, other)| other.overlaps(&place)) {
                let title = format!("`{name}` and `{other_name}` have an address in common");
                let problem = Problem::new(span.clone(), title);
                root.context.note(if is_chosen || *other_name != "server.listen" {
                    problem.also(other.clone(), "here")
                } else {
                    problem.help(format!("the default of `{other_name}` is `{place}`"))
                });
            }
            if !is_chosen_later {
                seen.push((name, span, place));
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, Range<usize>, ListenAddress)> {
        let Self { requests, tls_requests, checks, grpc, fleet, operators, takeover } = self;
        let requests = requests.iter().flatten();
        let requests = requests.map(|place| ("server.listen", place.span(), place.get_ref().clone()));
        let tls_requests = tls_requests.iter().flatten();
        let tls_requests = tls_requests.map(|place| ("server.tls.listen", place.span(), place.get_ref().clone()));
        let checks = checks.iter().flatten();
        let checks = checks.map(|(one, _)| ("check.listen", one.span(), one.get_ref().listen.clone()));
        let grpc = grpc.iter().flatten();
        let grpc = grpc.map(|(one, _)| ("grpc.listen", one.span(), one.get_ref().listen.clone()));
        let fleet = fleet.iter().flatten().map(|one| ("fleet.listen", one.span(), one.get_ref().clone()));
        let operators = operators.iter();
        let operators = operators.filter_map(|one| Some(("admin.listen", one.span(), one.get_ref().clone()?)));
        let takeover = takeover.iter().flatten();
        let takeover = takeover.map(|one| ("server.takeover", one.span(), ListenAddress::Unix(one.get_ref().clone())));
        requests.chain(tls_requests).chain(checks).chain(grpc).chain(fleet).chain(operators).chain(takeover)
    }
}

/// Compiles the listener for checks, with its position, and its settings.
fn check(table: &Table<'_>, server: &Table<'_>) -> Option<(Located<CheckListener>, CheckSettings)> {
    let listen = table.parsed_at("listen", |text| units::listen(text, table.context.dir));
    let (headers, max_connections) = (table.choice("headers", &words::CHECK_HEADERS), table.count("max_connections"));
    let tls = tls::tls(&table.table("tls")).map(ServerTls::http1_only);
    let listen = listen?;
    let trusted = server.get("trusted_proxies").map(toml::Spanned::get_ref);
    if trusted.is_none_or(|trusted| trusted.as_array().is_some_and(|all| all.is_empty())) {
        let help = "add the addresses of the proxies that ask, as in `trusted_proxies = [\"10.0.0.0/24\"]`";
        let fault = Fault::new("without `server.trusted_proxies` nobody may ask").help(help);
        table.fault("listen", listen.span(), fault.absence());
    }
    let span = listen.span();
    let listener = CheckListener { listen: listen.into_inner(), max_connections: max_connections? };
    Some((Located::new(span, listener), CheckSettings { headers: headers?, tls }))
}

/// Parses the path of the socket for a successor.
fn takeover(dir: &Path, text: &str) -> Result<PathBuf, Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        let help = format!("it is always a Unix socket; write {path:?}");
        return Err(("is a path, without `unix:`", help).into());
    }
    if text.is_empty() || text.ends_with('/') || text.contains('\0') {
        return Err((format!("`{text}` names no file"), "write it like \"/run/weir/takeover.sock\"").into());
    }
    units::socket_path(dir.join(text))
}
