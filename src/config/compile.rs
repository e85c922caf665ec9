//! All sections but upstreams, routes, identities, plans, access and limits.
//!
//! Each function reads its whole section before it gives up, so that no problem hides another.

use std::path::PathBuf;

use ipnet::IpNet;
use toml::de::{DeTable, DeValue};

use super::compile_warnings::of_everyone;
use super::context::Context;
use super::diagnostics::Problem;
use super::reader::{Located, Table};
use super::time_units;
use super::units::{self, Fault};
use super::{
    Config, Diagnostics, RunTime, Sources, compile_access, compile_admin, compile_identity, compile_limit,
    compile_route, compile_snapshot, compile_takeover, compile_tls, compile_upstream, compile_warnings,
};
use crate::gate::HoldCaps;
use crate::limit::{Algorithm, Quota, Rate};
use crate::policy::Policy;
use crate::policy::client_ip::{AddressHeader, ClientIpRules};
use crate::policy::path::{EncodedSlashes, Fold, Rules, Slashes};
use crate::proxy::Listen;
use crate::proxy::settings::{Bounds, Fixed, MinRate, Settings, Timeouts, Underscores};
use crate::respond::Profiles;
use crate::store::Share;
use crate::telemetry;
use crate::telemetry::{AccessLog, LogFormat, LogSettings};

pub(super) fn config(context: &Context<'_>, document: &DeTable<'_>) -> Option<Config> {
    let root = Table::root(context, document);
    let server = root.table("server");
    let listen = server.list("listen", |text| units::listen(text, context.dir));
    paths(&server);
    let takeover = compile_takeover::takeover(&server);
    let bounds = bounds(&server);
    let forwarded = server.switch("forwarded");
    let proxied_from = proxied_from(&server.table("proxy_protocol"));
    let tls_table = server.table("tls");
    let tls = compile_tls::tls(&tls_table);

    let timeouts = timeouts(&root.table("timeouts"));
    let name_servers = compile_upstream::name_servers(&root.table("dns"));
    let compiled = compile_upstream::upstreams(&root, listen.as_deref());
    let routes = compile_route::routes(&root, &compiled);
    let upstreams = compiled.upstreams;
    let admin_table = root.table("admin");
    let admin_listen = compile_admin::listen(&admin_table, listen.as_deref());
    let admin = compile_admin::admin(&admin_table, admin_listen.as_ref());
    compile_admin::overrides(&admin_table);
    if let Some(Some(takeover)) = &takeover {
        compile_takeover::check_apart(&server, takeover, listen.as_deref(), admin_listen.as_ref());
    }
    let fixed = fixed(&server, listen.as_deref(), takeover);
    let headers = root.table("headers");
    let profiles = profiles(&headers);
    let is_listed = profiles.is_some_and(|profiles| profiles.ietf);
    let hold = hold(&root.table("hold"));
    let max_tokens = root.table("tokens").count("max_cached");
    let snapshot = compile_snapshot::snapshot(&root.table("snapshot"), &admin_table);
    let log = log(&root.table("log"));

    let policy = policy(&root, &server, &headers, tls_table.has("client_ca"));
    let admin = admin?;

    Some(Config {
        fixed: fixed?,
        proxy: Settings {
            proxied_from: proxied_from?,
            tls, // if something is wrong with it, that is noted
            upstreams: upstreams?,
            name_servers: name_servers?,
            routes: routes?,
            timeouts: timeouts?,
            bounds: bounds?,
            forwarded: forwarded?,
            profiles: profiles?,
        },
        policy: policy?.with_listed(is_listed),
        hold: hold?,
        max_tokens: max_tokens?.into_inner(),
        admin_listen: admin_listen?.into_inner(),
        admin: admin.0,
        admin_tls: admin.1,
        snapshot: snapshot?,
        run_time: RunTime::default(),
        warnings: Diagnostics::default(),
        log: log?,
        sources: Sources::default(),
    })
}

/// Reads how paths are read, for all patterns that follow.
fn paths(server: &Table<'_>) {
    let table = server.table("paths");
    let fold = Fold {
        case: table.switch("ignore_case").unwrap_or_default(),
        trailing_slash: table.switch("ignore_trailing_slash").unwrap_or_default(),
        params: table.switch("ignore_params").unwrap_or_default(),
    };
    // What is a path if slashes are merged is one if they are kept: no problem follows from another.
    let merges = server.switch("merge_slashes").unwrap_or(false);
    let slashes = if merges { Slashes::Merge } else { Slashes::Keep };
    let words = [("refuse", EncodedSlashes::Refuse), ("keep", EncodedSlashes::Keep)];
    let encoded_slashes = server.choice("encoded_slashes", &words).unwrap_or(EncodedSlashes::Keep);
    server.context.paths.set(Rules { slashes, encoded_slashes, fold });
}

/// Identities, plans, lists and limits. `shows_certificates` says whether clients may show any.
fn policy(root: &Table<'_>, server: &Table<'_>, headers: &Table<'_>, shows_certificates: bool) -> Option<Policy> {
    let client_ip = client_ip(server);
    let free_preflights = free_preflights(headers);
    let (names, identities) = compile_identity::identities(&root.table("identity"), shows_certificates);
    let (plans, identities) = compile_access::plans(root, &names, identities);
    let access = compile_access::access(root, &names);
    let ipv6_prefix = client_ip.as_ref().map_or(128, |rules| rules.ipv6_prefix);
    let limits = compile_limit::limits(root, &names, ipv6_prefix);
    let policy = Policy::new(limits?, identities?, client_ip?)
        .with_free_preflights(free_preflights?)
        .with_paths(root.context.paths.get())
        .with_access(access, plans?);
    compile_warnings::of_unused_identities(root, &names, &policy);
    compile_warnings::of_shadowed(root, policy.limits());
    compile_warnings::of_invented_keys(root, &policy);
    Some(policy)
}

#[expect(clippy::option_option, reason = "the outer option is whether it could be read, as everywhere here")]
fn fixed(
    server: &Table<'_>,
    listen: Option<&[Located<Listen>]>,
    takeover: Option<Option<Located<PathBuf>>>,
) -> Option<Fixed> {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = server.count("workers").map_or_else(cpus, Located::into_inner);
    let max_connections = server.count("max_connections");
    let shutdown_grace = server.duration("shutdown_grace");
    let unix_mode = server.parsed("unix_mode", units::mode);
    Some(Fixed {
        listen: listen?.iter().map(|place| place.get_ref().clone()).collect(),
        unix_mode: unix_mode?.into_inner(),
        takeover: takeover?.map(Located::into_inner),
        workers,
        max_connections: max_connections.map(Located::into_inner),
        shutdown_grace: shutdown_grace?,
    })
}

fn client_ip(server: &Table<'_>) -> Option<ClientIpRules> {
    let trusted = server.list("trusted_proxies", units::network);
    let consequence = "any client can choose the address that it is limited by";
    of_everyone(server, "trusted_proxies", trusted.as_deref().unwrap_or_default(), "trusts_everyone", consequence);
    let header = address_header(server);
    let ipv6_prefix = server.count("ipv6_prefix");
    let trusted = trusted?.into_iter().map(Located::into_inner).collect();
    Some(ClientIpRules { trusted, header: header?, ipv6_prefix: ipv6_prefix?.into_inner() })
}

fn address_header(server: &Table<'_>) -> Option<AddressHeader> {
    let key = "address_header";
    let headers = [("x-forwarded-for", AddressHeader::XForwardedFor), ("forwarded", AddressHeader::Forwarded)];
    if let Some(value) = server.get(key) {
        if value.get_ref().is_array() {
            let help = "proxies add to the one they know and pass on the other as the client wrote it";
            server.fault(key, value.span(), Fault::new("one header is believed, not several").help(Some(help.into())));
            return None;
        }
        if !server.has("trusted_proxies") {
            let fault = Fault::new("nobody is believed without `server.trusted_proxies`");
            server.fault(key, value.span(), Fault { absence: true, ..fault });
        }
    }
    server.choice(key, &headers)
}

/// None of them if there is no such table.
fn proxied_from(table: &Table<'_>) -> Option<Box<[IpNet]>> {
    if !table.is_present() {
        return Some(Box::default());
    }
    let from = table.list("from", units::network)?;
    let consequence = "any client can choose the address that it is limited by";
    of_everyone(table, "from", &from, "trusts_everyone", consequence);
    Some(from.into_iter().map(Located::into_inner).collect())
}

fn bounds(server: &Table<'_>) -> Option<Bounds> {
    let max_head_bytes = server.size("max_head_bytes");
    let max_headers = server.count("max_headers");
    let max_uri_bytes = server.size("max_uri_bytes");
    let max_body_bytes = server.size_or("max_body_bytes");
    let max_requests = server.count("max_requests_per_connection");
    let max_per_ip = server.count("max_connections_per_ip");
    let max_requests_per_ip = server.count("max_requests_per_ip");
    let max_untaken_bytes = server.size("max_untaken_bytes");
    let max_h2_streams = server.count("max_h2_streams");
    let words = [("drop", Underscores::Drop), ("keep", Underscores::Keep), ("refuse", Underscores::Refuse)];
    let underscores = server.choice("underscores", &words);
    // What could not be read must not seem to remove anything.
    server.context.has_underscores.set(!matches!(underscores, Some(Underscores::Drop | Underscores::Refuse)));
    Some(Bounds {
        max_head_bytes: max_head_bytes?,
        max_headers: max_headers?.into_inner(),
        max_uri_bytes: max_uri_bytes?,
        max_body_bytes: max_body_bytes?,
        max_requests: max_requests?.into_inner(),
        max_per_ip: max_per_ip?.into_inner(),
        max_requests_per_ip: max_requests_per_ip?.into_inner(),
        max_untaken_bytes: max_untaken_bytes?,
        max_h2_streams: max_h2_streams?.into_inner(),
        underscores: underscores?,
    })
}

fn timeouts(table: &Table<'_>) -> Option<Timeouts> {
    let request_head = table.duration("request_head");
    let keep_alive = table.duration("keep_alive");
    let connect = table.duration("connect");
    let response_head = table.duration("response_head");
    let body_idle = table.duration("body_idle");
    let window = table.duration("rate_window");
    let [min_send, min_read] = ["min_send_rate", "min_read_rate"].map(|key| {
        let (bytes_per_s, window) = (table.size_or(key)?, window?);
        Some(Some(MinRate { bytes_per_s, window }).filter(|rate| rate.bytes_per_s != u64::MAX))
    });
    let total = table.duration_or("total");
    let upgraded_idle = table.duration("upgraded_idle");
    Some(Timeouts {
        request_head: request_head?,
        keep_alive: keep_alive?,
        connect: connect?,
        response_head: response_head?,
        body_idle: body_idle?,
        min_send: min_send?,
        min_read: min_read?,
        total: total?,
        upgraded_idle: upgraded_idle?,
    })
}

/// None within if all preflights are charged.
#[expect(clippy::option_option, reason = "the outer option is whether it could be read, as everywhere here")]
fn free_preflights(headers: &Table<'_>) -> Option<Option<Algorithm>> {
    let key = "free_preflights";
    let read = headers.read(key, |option, value| match value.get_ref() {
        DeValue::Boolean(false) => Some(None),
        DeValue::Boolean(true) => {
            let help = "write a rate for each client address, such as \"50/s\", or `false`".to_owned();
            headers.fault(key, value.span(), Fault::new("anybody could send any number of them").help(Some(help)));
            None
        }
        DeValue::String(text) => {
            let rate = |text: &str| time_units::rate(text).and_then(|rate| rate.rate());
            let quota = |rate: Rate| Quota::new(rate, rate.count).map_err(|error| Fault::new(error.to_string()));
            let quota = headers.parse(key, value.span(), text, |text| rate(text).and_then(quota))?;
            Some(Some(Algorithm::TokenBucket(quota)))
        }
        _ => {
            headers.mismatch(key, &option.kind.to_string(), value);
            None
        }
    });
    read.map(Located::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Profile {
    XRatelimit,
    Ietf,
    Wildberries,
}

fn profiles(headers: &Table<'_>) -> Option<Profiles> {
    use Profile::{Ietf, Wildberries, XRatelimit};
    let names = [("x-ratelimit", XRatelimit), ("ietf", Ietf), ("wildberries", Wildberries)];
    let chosen = headers.list("profiles", units::one_of(&names))?;
    let find = |profile| chosen.iter().find(|one| *one.get_ref() == profile);
    if let (Some(one), Some(other)) = (find(XRatelimit), find(Wildberries)) {
        let (first, second) = if one.span().start < other.span().start { (one, other) } else { (other, one) };
        let title = "`headers.profiles`: `x-ratelimit` and `wildberries` write the same fields; choose one";
        headers.context.note(Problem::new(second.span(), title).also(first.span(), "and here"));
    }
    let has = |profile| find(profile).is_some();
    Some(Profiles { x_ratelimit: has(XRatelimit), ietf: has(Ietf), wildberries: has(Wildberries) })
}

fn hold(table: &Table<'_>) -> Option<HoldCaps> {
    let max_waiting = table.count("max_waiting");
    let max_waiting_bytes = table.size("max_waiting_bytes");
    let per_client = table.count("max_waiting_per_client");
    let per_client_bytes = table.size("max_waiting_bytes_per_client");
    Some(HoldCaps {
        all: Share { count: max_waiting?.into_inner(), bytes: max_waiting_bytes? },
        per_client: Share { count: per_client?.into_inner(), bytes: per_client_bytes? },
    })
}

fn log(table: &Table<'_>) -> Option<telemetry::LogSettings> {
    let formats = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    let accesses = [("off", AccessLog::Off), ("all", AccessLog::All), ("refused", AccessLog::Refused)];
    let format = table.choice("format", &formats);
    let level = table.choice("level", &levels);
    let access = table.choice("access", &accesses);
    Some(LogSettings { format: format?, level: level?, access: access? })
}
