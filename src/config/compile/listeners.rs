//! All listeners: their addresses, which must differ.

use std::ops::Range;
use std::path::PathBuf;

use super::check::check;
use super::grpc::listener;
use super::takeover::takeover;
use super::{admin, peers, upstream};
use crate::config::diagnostics::Problem;
use crate::config::reader::{Located, Table, units};
use crate::fleet::grpc::settings::ServiceListener;
use crate::transport::net::ListenAddress;
use crate::transport::net::tls::ServerTls;
use crate::transport::proxy::settings::{CheckListener, CheckSettings};

/// The listeners of a configuration. A field is `None` after an error.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) struct Listeners {
    /// For requests; empty if Weir only answers checks.
    pub(super) requests: Option<Vec<Located<ListenAddress>>>,
    /// For checks; the inner option is `None` without `[check]`.
    pub(super) checks: Option<Option<(Located<CheckListener>, CheckSettings)>>,
    /// For callers of the limiter service, with TLS; the inner option is `None` without `[grpc]`.
    pub(super) grpc: Option<Option<(Located<ServiceListener>, Option<ServerTls>)>>,
    /// For other replicas; the inner option is `None` without `fleet.listen`.
    pub(super) fleet: Option<Option<Located<ListenAddress>>>,
    /// The admin listener; the inner option is `None` for `off`.
    pub(super) operators: Option<Located<Option<ListenAddress>>>,
    /// For a successor; the inner option is `None` without `takeover`.
    pub(super) takeover: Option<Option<Located<PathBuf>>>,
}

impl Listeners {
    /// Compiles the listeners of `server`, `admin`, `grpc`, `fleet` and `[check]`.
    pub(super) fn read(
        root: &Table<'_>,
        server: &Table<'_>,
        (admin, grpc, fleet): (&Table<'_>, &Table<'_>, &Table<'_>),
    ) -> Self {
        let requests = server.list("listen", |text| units::listen(text, root.context.dir));
        // Without a service there is nothing to forward to.
        let requests = if upstream::is_omitted(root) { Some(Vec::new()) } else { requests };
        let checks = check(&root.table("check"), server);
        let (grpc, fleet, operators) = (listener(grpc), peers::listener(fleet), admin::listen(admin));
        let listeners = Self { requests, checks, grpc, fleet, operators, takeover: takeover(server) };
        listeners.check_apart(root);
        listeners
    }

    /// Notes an error for each listener that has the address of an earlier one.
    fn check_apart(&self, root: &Table<'_>) {
        let mut seen: Vec<(&str, Range<usize>, ListenAddress)> = Vec::new();
        for (name, span, place) in self.all() {
            let is_chosen_later = matches!(place, ListenAddress::Tcp(address) if address.port() == 0);
            if let Some((other_name, other, _)) = seen.iter().find(|(_, _, other)| *other == place) {
                let title = format!("`{name}` and `{other_name}` are the same address");
                root.context.note(Problem::new(span.clone(), title).also(other.clone(), "here"));
            }
            if !is_chosen_later {
                seen.push((name, span, place));
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, Range<usize>, ListenAddress)> {
        let Self { requests, checks, grpc, fleet, operators, takeover } = self;
        let requests = requests.iter().flatten();
        let requests = requests.map(|place| ("server.listen", place.span(), place.get_ref().clone()));
        let checks = checks.iter().flatten();
        let checks = checks.map(|(one, _)| ("check.listen", one.span(), one.get_ref().listen.clone()));
        let grpc = grpc.iter().flatten();
        let grpc = grpc.map(|(one, _)| ("grpc.listen", one.span(), one.get_ref().listen.clone()));
        let fleet = fleet.iter().flatten().map(|one| ("fleet.listen", one.span(), one.get_ref().clone()));
        let operators = operators.iter();
        let operators = operators.filter_map(|one| Some(("admin.listen", one.span(), one.get_ref().clone()?)));
        let takeover = takeover.iter().flatten();
        let takeover = takeover.map(|one| ("server.takeover", one.span(), ListenAddress::Unix(one.get_ref().clone())));
        requests.chain(checks).chain(grpc).chain(fleet).chain(operators).chain(takeover)
    }
}
