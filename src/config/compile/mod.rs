//! Compiles a document: one file for each section.
//!
//! Each function reads its whole section, also after an error, so that no problem hides another.

mod listeners;
mod route;
mod server;
mod timeouts;
mod tls;
mod trace;
mod upstream;

mod admin;
mod check;
mod etcd_members;
mod etcd_url;
mod fleet;
mod grpc;
mod headers;
mod hold;
mod log;
mod peers;
mod service;
mod snapshot;
mod store;
mod takeover;

mod access;
mod forward_as;
mod guards;
mod identity;

mod allowed;
mod cost;
mod key;
pub(in crate::config) mod limit;
mod matching;
mod on_limit;
mod override_key;
mod overrides;
mod remote;
mod rule;
mod settle;

mod derived;
mod rate_warnings;
mod warnings;

use std::sync::Arc;

use toml::de::DeTable;

pub use admin::AdminSettings;
pub use derived::InForce;
pub(in crate::config) use derived::{Absent, DerivedDefaults};
pub use grpc::GrpcSettings;
pub use peers::PeerSettings;

use fleet::Fleet;
use listeners::Listeners;

use crate::base::telemetry;
use crate::config::diagnostics::Diagnostics;
use crate::config::effective::Written;
use crate::config::overrides::{OverrideSet, RunTimeOverrides};
use crate::config::reader::context::Context;
use crate::config::reader::{Located, Table};
use crate::config::sources::Sources;
use crate::engine::policy::Policy;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::route::Routes;
use crate::engine::store::snapshot::Settings as SnapshotSettings;
use crate::engine::{gate, policy};
use crate::fleet::stores::RemoteSettings;
use crate::transport::proxy;
use crate::transport::proxy::settings::Settings;

/// A configuration, compiled.
#[derive(Debug)]
pub struct Config {
    /// Fixed at start.
    pub fixed: proxy::settings::StartupSettings,
    /// The listener for checks of other proxies; fixed at start.
    pub check_listener: Option<proxy::settings::CheckListener>,
    /// The data path.
    pub proxy: proxy::settings::Settings,
    /// Limits, identities, access lists and plans.
    pub policy: policy::Policy,
    /// The stores of limits that replicas share. A `Strategy` has the index of its store.
    pub stores: Vec<RemoteSettings>,
    /// The secret of the fleet; fixed at start.
    pub fleet_secret: Option<policy::FleetSecret>,
    /// Bounds on waiting requests.
    pub hold: gate::HoldCaps,
    /// The maximum number of cached verified tokens.
    pub max_tokens: usize,
    /// The admin listener.
    pub admin: AdminSettings,
    /// The limiter service; `None` if there is none.
    pub grpc: Option<GrpcSettings>,
    /// The connections between replicas; `None` if there are none.
    pub peers: Option<PeerSettings>,
    /// Snapshots of the state; fixed at start.
    pub snapshot: Option<SnapshotSettings>,
    /// Overrides set at run time.
    pub run_time: RunTimeOverrides,
    /// Warnings about the configuration.
    pub warnings: Diagnostics,
    /// Logs. Only the access log changes on reload.
    pub log: telemetry::LogSettings,
    /// The files that were read: the configuration, keys, secrets. A change of one is a reason to reload.
    pub sources: Sources,
    /// The text.
    pub written: Written,
}

pub(in crate::config) fn config(
    context: &Context<'_>,
    document: &DeTable<'_>,
    overrides: &OverrideSet<'_>,
) -> Option<Config> {
    let root = Table::root(context, document);
    let server = root.table("server");
    let admin_table = root.table("admin");
    let grpc_table = root.table("grpc");
    let fleet_table = root.table("fleet");
    let listeners = Listeners::read(&root, &server, (&admin_table, &grpc_table, &fleet_table));
    server::paths(&server);
    let bounds = server::bounds(&server);
    let (forwarded, proxied_from) = (server.switch("forwarded"), server::proxied_from(&server.table("proxy_protocol")));
    let (request_id, traces) = (server.switch("request_id"), trace::trace(&root.table("trace")));
    let tls_table = server.table("tls");
    let tls = tls::tls(&tls_table);
    let (timeouts, dns) = (timeouts::timeouts(&root.table("timeouts")), root.table("dns"));
    let name_servers = upstream::name_servers(&dns);
    let compiled = upstream::upstreams(&root, listeners.requests.as_deref());
    let (routes, upstreams) = (route::routes(&root, &compiled), compiled.upstreams);
    let admin = admin::admin(&admin_table, listeners.operators.as_ref());
    admin::overrides(&admin_table);
    let fixed = server::fixed(&server, listeners.requests.as_deref(), listeners.takeover);
    let (headers, max_tokens) = (root.table("headers"), root.table("tokens").count("max_cached"));
    let profiles = headers::profiles(&headers);
    let grpc = grpc::grpc(&grpc_table, listeners.grpc, profiles);
    let peers = peers::peers(&fleet_table, listeners.fleet, name_servers.as_ref());
    let (hold, log) = (hold::hold(&root.table("hold")), log::log(&root.table("log")));
    let snapshot = snapshot::snapshot(&root.table("snapshot"), &admin_table);
    let compiled_stores = store::stores(&root.table("store"));
    let known_peers = peers.as_ref().and_then(|peers| peers.as_ref().map(|peers| &peers.settings));
    let fleet = fleet::fleet(&fleet_table, &compiled_stores, known_peers);
    let tables = (&server, &headers, &grpc_table);
    let policy = policy(&root, tables, tls_table.has("client_ca"), &fleet, overrides, routes.as_ref());
    let (fleet_secret, limiters) = fleet.into_parts();
    let (check_listener, check) = listeners.checks?.unzip();
    Some(Config {
        fixed: fixed?,
        check_listener: check_listener.map(Located::into_inner),
        proxy: Settings {
            proxied_from: proxied_from?,
            tls, // an error of it is noted
            upstreams: upstreams?,
            name_servers: name_servers?,
            routes: routes?,
            timeouts: timeouts?,
            bounds: bounds?,
            forwarded: forwarded?,
            request_id: request_id?,
            traces: traces?,
            profiles: profiles?,
            check,
        },
        policy: policy?.with_listed(profiles.is_some_and(|profiles| profiles.ietf)),
        stores: compiled_stores.stores?.into_iter().chain(limiters.into_iter().map(RemoteSettings::Service)).collect(),
        fleet_secret: fleet_secret?,
        hold: hold?,
        max_tokens: max_tokens?.into_inner(),
        admin: admin?,
        grpc: grpc?,
        peers: peers?,
        snapshot: snapshot?,
        run_time: RunTimeOverrides::default(),
        warnings: Diagnostics::default(),
        log: log?,
        sources: Sources::default(),
        written: Written::default(),
    })
}

/// Compiles identities, plans, access lists and limits. `shows_certificates` says whether clients may send a certificate.
fn policy(
    root: &Table<'_>,
    (server, headers, grpc): (&Table<'_>, &Table<'_>, &Table<'_>),
    shows_certificates: bool,
    fleet: &Fleet<'_>,
    overrides: &OverrideSet<'_>,
    routes: Option<&Option<Arc<Routes>>>,
) -> Option<Policy> {
    let routes = routes.and_then(|routes| routes.as_deref());
    let client_ip = server::client_ip(server);
    let free_preflights = headers::free_preflights(headers);
    let (names, identities) = identity::identities(&root.table("identity"), shows_certificates);
    let (plans, identities) = access::plans(root, &names, identities);
    let (access, bypass) = access::access(root, &names);
    let identity_headers = forward_as::identity_headers(server, &names, root.has("plans"));
    let prefixes = client_ip.as_ref().map_or(Prefixes::WHOLE, |rules| rules.prefixes);
    let limits = limit::limits(root, &names, prefixes, fleet, overrides);
    let parts = limits.zip(identities).zip(client_ip);
    let policy = parts.map(|((limits, identities), client_ip)| {
        Policy::new(limits, identities, client_ip).with_paths(root.context.paths.get())
    });
    let descriptors = grpc::descriptors(grpc, policy.as_ref());
    let policy = policy?.with_free_preflights(free_preflights?).with_access(access, plans?);
    let policy = policy.with_descriptors(descriptors?).with_identity_headers(identity_headers);
    warnings::of_unused_stores(root, fleet.store_names(), &policy);
    guards::of_unused_identities(root, &names, &policy, routes);
    guards::of_partly_guarded(root, &policy, routes);
    guards::of_evaded_denials(root, &policy, routes);
    warnings::of_shadowed(root, policy.limits());
    warnings::of_void_limits(root, policy.limits(), &bypass);
    warnings::of_invented_keys(root, &policy);
    if root.has("check") && upstream::is_omitted(root) {
        warnings::of_unsettled(root, policy.limits());
    }
    warnings::of_unnamed_limits(root, &policy);
    warnings::of_unknown_plans(root, policy.limits());
    if let Some(served) = warnings::Served::of(root, routes) {
        served.warn_of_limits(root, policy.limits());
        served.warn_of_access(root);
    }
    Some(match fleet.members() {
        Some(members) => policy.shared_by(members),
        None => policy,
    })
}
