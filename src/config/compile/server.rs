//! `[server]`, `[timeouts]` and `[hold]`: the addresses for clients, the reading of their requests, and the bounds on both.

use std::path::PathBuf;

use ipnet::IpNet;

use super::warnings::{of_everyone, together};
use crate::base::time::saturating_ns;
use crate::config::reader::{Fault, Located, Optional, Table, units, whole};
use crate::config::schema::words;
use crate::engine::gate::HoldCaps;
use crate::engine::policy::RefusalLogRules;
use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
use crate::engine::policy::path::{EncodedSlashes, Fold, PathRules, Slashes};
use crate::engine::store::Usage;
use crate::transport::http1::Underscores;
use crate::transport::net::pace::MinRate;
use crate::transport::net::{ListenAddress, Timeouts};
use crate::transport::proxy::settings::{Bounds, StartupSettings};

/// Reads the rules for paths of requests. All patterns that are read later use them.
pub(super) fn paths(server: &Table<'_>) {
    let table = server.table("paths");
    let fold = Fold {
        case: table.switch("ignore_case").unwrap_or_default(),
        trailing_slash: table.switch("ignore_trailing_slash").unwrap_or_default(),
        params: table.switch("ignore_params").unwrap_or_default(),
    };
    // If `merge_slashes` has an error, slashes are kept: every pattern is valid then, so no further error follows.
    let merges = server.switch("merge_slashes").unwrap_or(false);
    let slashes = if merges { Slashes::Merge } else { Slashes::Keep };
    let encoded_slashes = server.choice("encoded_slashes", &words::ENCODED_SLASHES).unwrap_or(EncodedSlashes::Keep);
    server.context.paths.set(PathRules { slashes, encoded_slashes, fold });
}

pub(super) fn fixed(
    server: &Table<'_>,
    [listen, tls_listen]: [Option<&[Located<ListenAddress>]>; 2],
    takeover: Optional<Located<PathBuf>>,
) -> Option<StartupSettings> {
    let places = |all: &[Located<ListenAddress>]| all.iter().map(|place| place.get_ref().clone()).collect();
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    whole!(StartupSettings {
        listen: listen.map(places),
        tls_listen: tls_listen.map(places),
        unix_mode: server.parsed("unix_mode", units::mode),
        takeover: takeover.map(|takeover| takeover.map(Located::into_inner)),
        workers: Some(server.count("workers").unwrap_or_else(cpus)),
        max_connections: Some(server.count("max_connections")),
        shutdown_grace: server.duration("shutdown_grace"),
        watches: server.choice("reload", &words::RELOADS),
    })
}

pub(super) fn client_ip(server: &Table<'_>) -> Option<ClientIpRules> {
    let trusted = server.list_at("trusted_proxies", units::network);
    warn_of_trust(server, "trusted_proxies", trusted.as_deref().unwrap_or_default());
    whole!(ClientIpRules {
        trusted: trusted.map(|trusted| trusted.into_iter().map(Located::into_inner).collect()),
        header: address_header(server),
        prefixes: whole!(Prefixes { v4: server.count("ipv4_prefix"), v6: server.count("ipv6_prefix") }),
    })
}

/// Warns of peers that can choose their address, and are more than proxies.
fn warn_of_trust(table: &Table<'_>, key: &str, trusted: &[Located<IpNet>]) {
    of_everyone(table, key, trusted, "trusts_everyone", "any client can choose its own address");
    warn_of_private_networks(table, key, trusted);
}

/// The networks of private addresses (RFC 1918, RFC 4193).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

/// Warns of trusted networks that contain all private addresses of a kind, and so more than proxies.
fn warn_of_private_networks(table: &Table<'_>, key: &str, trusted: &[Located<IpNet>]) {
    let all = together(trusted);
    let private: Vec<IpNet> = PRIVATE.iter().filter_map(|network| network.parse().ok()).collect();
    let warn = |network: &Located<IpNet>, what: String| {
        let what = format!("`{}` {what}: each host in it can choose its address", network.get_ref());
        let help = "name the addresses of your proxies only, such as the network of the ingress nodes";
        table.warn(key, network.span(), "trusts_private_network", (what, help));
    };
    if all.iter().any(|network| network.prefix_len() == 0) {
        return; // reported as every address
    }
    for network in trusted {
        let own = network.get_ref();
        match private.iter().find(|private| own.contains(*private)) {
            Some(_) if own.prefix_len() == 1 => warn(network, "is half of all addresses".to_owned()),
            Some(private) if own == private => warn(network, "is a whole private network".to_owned()),
            Some(private) => warn(network, format!("contains the whole private network `{private}`")),
            None => {}
        }
    }
    let entries = || trusted.iter().map(|network| (network.get_ref(), network));
    for private in private.iter().filter(|private| all.iter().any(|network| network.contains(*private))) {
        let by_one = entries().any(|(own, _)| own.contains(private));
        if let Some((_, first)) = entries().find(|(own, _)| !by_one && private.contains(*own)) {
            warn(first, format!("and other entries are together the whole private network `{private}`"));
        }
    }
}

fn address_header(server: &Table<'_>) -> Option<AddressHeader> {
    let key = "address_header";
    if server.get(key).is_some_and(|value| value.get_ref().is_array()) {
        let help = "a proxy changes one of these headers, and forwards the other as the client sent it";
        server.fault_at(key, ("Weir can trust only one header", help));
        return None;
    }
    if !server.has("trusted_proxies") {
        server.fault_if_present(key, Fault::new("has no effect without `server.trusted_proxies`").absence());
    }
    server.choice(key, &words::ADDRESS_HEADERS)
}

/// The peers that send PROXY headers; empty without `proxy_protocol`.
pub(super) fn proxied_from(table: &Table<'_>) -> Option<Box<[IpNet]>> {
    if !table.is_present() {
        return Some(Box::default());
    }
    let from = table.list_at("from", units::network)?;
    warn_of_trust(table, "from", &from);
    Some(from.into_iter().map(Located::into_inner).collect())
}

pub(super) fn bounds(server: &Table<'_>) -> Option<Bounds> {
    let underscores = server.choice("underscores", &words::UNDERSCORES);
    // After an error, no header counts as removed.
    server.context.keeps_all_names.set(!matches!(underscores, Some(Underscores::Drop | Underscores::Refuse)));
    whole!(Bounds {
        max_head_bytes: server.size("max_head_bytes"),
        max_headers: server.count("max_headers"),
        max_uri_bytes: server.size("max_uri_bytes"),
        max_body_bytes: server.size("max_body_bytes"),
        max_requests: server.count("max_requests_per_connection"),
        max_per_ip: server.count("max_connections_per_ip"),
        max_requests_per_ip: server.count("max_requests_per_ip"),
        max_untaken_bytes: server.size("max_untaken_bytes"),
        max_h2_streams: server.count("max_h2_streams"),
        underscores,
    })
}

pub(super) fn timeouts(table: &Table<'_>) -> Option<Timeouts> {
    let window = table.duration("rate_window");
    let min_rate = |key| {
        let (bytes_per_s, window) = (table.size(key)?, window?);
        Some(Some(MinRate { bytes_per_s, window }).filter(|rate| rate.bytes_per_s != u64::MAX))
    };
    whole!(Timeouts {
        request_head: table.duration("request_head"),
        keep_alive: table.duration("keep_alive"),
        connect: table.duration("connect"),
        response_head: table.duration("response_head"),
        body_idle: table.duration("body_idle"),
        min_send: min_rate("min_send_rate"),
        min_read: min_rate("min_read_rate"),
        total: table.duration_or("total"),
        upgraded_idle: table.duration("upgraded_idle"),
    })
}

/// The bounds on kept refusals.
pub(super) fn refusals(table: &Table<'_>) -> Option<RefusalLogRules> {
    whole!(RefusalLogRules {
        keep_ns: table.duration_or("keep").map(|keep| keep.map_or(0, saturating_ns)),
        max: table.count("max"),
    })
}

/// Bounds on all waiting requests, and on those of one client.
pub(super) fn hold(table: &Table<'_>) -> Option<HoldCaps> {
    whole!(HoldCaps {
        all: whole!(Usage { count: table.count("max_waiting"), bytes: table.size("max_waiting_bytes") }),
        per_client: whole!(Usage {
            count: table.count("max_waiting_per_client"),
            bytes: table.size("max_waiting_bytes_per_client"),
        }),
    })
}
