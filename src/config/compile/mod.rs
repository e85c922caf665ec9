//! Compiles a document: one file for each section.
//!
//! Each function reads its whole section, also after an error, so that no problem hides another.

mod acme;
mod body_units;
mod client_api;
mod listeners;
mod route;
mod server;
mod tls;
mod upstream;
mod urls;

mod admin;
mod fleet;
mod grpc;
mod headers;
mod log;
mod peers;
mod snapshot;
mod stale;
pub(in crate::config) mod store;

mod access;
mod forward_as;
mod guards;
mod identity;
mod priority;

mod adapt;
mod adaptive;
mod allowed;
mod candidate;
mod cost;
mod fair_share;
mod key;
pub(in crate::config) mod limit;
mod matching;
mod on_limit;
mod override_key;
mod overrides;
mod plan_rates;
mod ramp;
mod refusal_answer;
mod remote;
mod rule;
mod settle;

mod rate_warnings;
mod warnings;
mod written_files;

use std::sync::Arc;

use toml::de::DeTable;

pub use admin::AdminSettings;
pub use grpc::GrpcSettings;
pub use peers::PeerSettings;

use fleet::Fleet;
use listeners::Listeners;
use warnings::{NamedLimits, Served};

use crate::base::telemetry;
use crate::config::diagnostics::Diagnostics;
use crate::config::overrides::{OverrideSet, RunTimeOverrides};
use crate::config::reader::context::Context;
use crate::config::reader::{Located, Table, whole};
use crate::config::sources::Sources;
use crate::config::written::Written;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::route::Routes;
use crate::engine::policy::{Limit, Policy};
use crate::engine::store::snapshot::Settings as SnapshotSettings;
use crate::engine::{gate, policy};
use crate::fleet::stores::driver::RemoteSettings;
use crate::transport::proxy;
use crate::transport::proxy::settings::Settings;
use crate::transport::respond::Profiles;

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
    let requests = listeners.requests.as_deref();
    server::paths(&server);
    let bounds = server::bounds(&server);
    let proxied_from = server::proxied_from(&server.table("proxy_protocol"));
    let traces = root.table("trace").if_present(log::trace);
    let tls_table = server.table("tls");
    let tls = tls::server(&tls_table, [requests, listeners.tls_requests.as_deref()]);
    let timeouts = server::timeouts(&root.table("timeouts"));
    let name_servers = upstream::name_servers(&root.table("dns"));
    let compiled = upstream::upstreams(&root, requests);
    let routes = route::routes(&root, &compiled);
    admin::overrides(&admin_table);
    written_files::check(&root);
    let headers = root.table("headers");
    let (profiles, replicas) = (headers::profiles(&headers), fleet_table.count("replicas"));
    let peers = peers::peers(&fleet_table, replicas, listeners.fleet, name_servers.as_ref());
    let compiled_stores = store::stores(&root.table("store"));
    let known_peers = peers.as_ref().and_then(|peers| peers.as_ref().map(|peers| &peers.settings));
    let fleet = fleet::fleet(&fleet_table, replicas, &compiled_stores, known_peers);
    let tables = (&server, &headers, &grpc_table);
    let policy = policy(&root, tables, tls_table.has("client_ca"), &fleet, overrides, routes.as_ref());
    let retirements = policy.as_ref().is_some_and(|policy| policy.limits().iter().any(Limit::retires));
    let profiles = profiles.map(|profiles| Profiles { retirements, ..profiles });
    let (fleet_secret, limiters) = (fleet.secret, fleet.limiters.into_inner());
    let (check_listener, check) = listeners.checks.map(Option::unzip).unzip();
    whole!(Config {
        fixed: server::fixed(&server, [requests, listeners.tls_requests.as_deref()], listeners.takeover),
        check_listener: check_listener.map(|listener| listener.map(Located::into_inner)),
        proxy: whole!(Settings {
            proxied_from,
            tls: Some(tls), // an error of it is noted
            plain: tls::plain(&tls_table),
            upstreams: compiled.upstreams,
            name_servers,
            routes,
            timeouts,
            bounds,
            forwarded: server.switch("forwarded"),
            request_id: server.switch("request_id"),
            traces,
            profiles,
            check,
        }),
        policy: policy.map(|policy| policy.with_listed(profiles.is_some_and(|profiles| profiles.ietf))),
        stores: compiled_stores.stores.map(|stores| stores.into_iter().chain(limiters).collect()),
        fleet_secret,
        hold: server::hold(&root.table("hold")),
        max_tokens: root.table("tokens").count("max_cached"),
        admin: admin::admin(&admin_table, listeners.operators.as_ref()),
        grpc: grpc::grpc(&grpc_table, listeners.grpc, profiles),
        peers,
        snapshot: root.table("snapshot").if_present(snapshot::snapshot),
        run_time: Some(RunTimeOverrides::default()),
        warnings: Some(Diagnostics::default()),
        log: log::log(&root.table("log")),
        sources: Some(Sources::default()),
        written: Some(Written::default()),
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
    let (access, bypass) = access::access(root, &names, identities.as_deref().unwrap_or_default());
    let identity_headers = forward_as::identity_headers(root, server, &names);
    let prefixes = client_ip.as_ref().map_or(Prefixes::WHOLE, |rules| rules.prefixes);
    let limits = limit::limits(root, (&names, identities.as_deref().unwrap_or_default()), prefixes, fleet, overrides);
    let parts = limits.zip(identities).zip(client_ip);
    let policy = parts.map(|((limits, identities), client_ip)| {
        let mut policy = Policy::new(limits, identities, client_ip);
        policy.paths = root.context.paths.get();
        policy
    });
    let descriptors = grpc::descriptors(grpc, policy.as_ref());
    let client_api = client_api::client_api(&root.table("client_api"), policy.as_ref());
    let refusal_log = server::refusals(&root.table("refusals"));
    let mut policy = policy?;
    policy.refusal_log = refusal_log?;
    policy.client_api = client_api?.map(Arc::new);
    policy.free_preflights = free_preflights?;
    let plans = plans?;
    let (priorities, overload) = (priority::priorities(root, server), priority::overload(root));
    policy.descriptors = descriptors?;
    let policy = policy.with_access(access, plans).with_identity_headers(identity_headers);
    let policy = policy.with_priorities(priorities, overload);
    warnings::of_unused_stores(root, &fleet.stores.names, &policy);
    let limits = NamedLimits::of(root, &policy);
    guards::of_unused_identities(root, &names, &policy, routes);
    guards::of_partly_guarded(&limits, &policy, routes);
    guards::of_evaded_denials(root, &policy, routes);
    limits.warn_of_shadowed();
    limits.warn_of_void(&bypass);
    limits.warn_of_invented_keys(&policy);
    if root.has("check") && upstream::is_omitted(root) {
        limits.warn_of_unsettled();
    }
    limits.warn_of_unnamed();
    warnings::of_unknown_plans(root, policy.limits());
    warnings::of_plans_of_keys(root, &policy);
    if let Some(served) = Served::of(root, routes) {
        limits.warn_of_unserved(&served);
        served.warn_of_access(root);
    }
    Some(policy.shared_by(fleet.members))
}
