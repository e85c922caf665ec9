//! `[server]`: the addresses for clients, the reading of their requests, and the bounds on both.

use std::path::PathBuf;

use ipnet::IpNet;

use super::warnings::{of_everyone, together};
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::engine::policy::access::canonical;
use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
use crate::engine::policy::path::{EncodedSlashes, Fold, PathRules, Slashes};
use crate::transport::http1::Underscores;
use crate::transport::net::ListenAddress;
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
    let words = [("refuse", EncodedSlashes::Refuse), ("keep", EncodedSlashes::Keep)];
    let encoded_slashes = server.choice("encoded_slashes", &words).unwrap_or(EncodedSlashes::Keep);
    server.context.paths.set(PathRules { slashes, encoded_slashes, fold });
}

#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn fixed(
    server: &Table<'_>,
    listen: Option<&[Located<ListenAddress>]>,
    takeover: Option<Option<Located<PathBuf>>>,
) -> Option<StartupSettings> {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = server.count("workers").map_or_else(cpus, Located::into_inner);
    let max_connections = server.count("max_connections");
    let shutdown_grace = server.duration("shutdown_grace");
    let unix_mode = server.parsed("unix_mode", units::mode);
    let watches = server.choice("reload", &[("watch", true), ("manual", false)]);
    Some(StartupSettings {
        listen: listen?.iter().map(|place| place.get_ref().clone()).collect(),
        unix_mode: unix_mode?.into_inner(),
        takeover: takeover?.map(Located::into_inner),
        workers,
        max_connections: max_connections.map(Located::into_inner),
        shutdown_grace: shutdown_grace?,
        watches: watches?,
    })
}

pub(super) fn client_ip(server: &Table<'_>) -> Option<ClientIpRules> {
    let trusted = server.list("trusted_proxies", units::network);
    let consequence = "any client can choose its own address";
    of_everyone(server, "trusted_proxies", trusted.as_deref().unwrap_or_default(), "trusts_everyone", consequence);
    warn_of_private_networks(server, "trusted_proxies", trusted.as_deref().unwrap_or_default());
    let header = address_header(server);
    let (v4, v6) = (server.count("ipv4_prefix"), server.count("ipv6_prefix"));
    let trusted = trusted?.into_iter().map(Located::into_inner).collect();
    let prefixes = Prefixes { v4: v4?.into_inner(), v6: v6?.into_inner() };
    Some(ClientIpRules { trusted, header: header?, prefixes })
}

/// The networks of private addresses (RFC 1918, RFC 4193).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

/// Warns of trusted networks that contain all private addresses of a kind, and so more than proxies.
fn warn_of_private_networks(table: &Table<'_>, key: &str, trusted: &[Located<IpNet>]) {
    let all = together(trusted);
    let private: Vec<IpNet> = PRIVATE.iter().filter_map(|network| network.parse().ok()).collect();
    let warn = |network: &Located<IpNet>, what: String| {
        let what = format!("`{}` {what}: each host in it can choose its address", canonical(*network.get_ref()));
        let help = "name the addresses of your proxies only, such as the network of the ingress nodes".to_owned();
        table.warn(key, network.span(), "trusts_private_network", Fault::new(what).help(Some(help)));
    };
    if all.iter().any(|network| network.prefix_len() == 0) {
        return; // reported as every address
    }
    for network in trusted {
        let own = canonical(*network.get_ref());
        match private.iter().find(|private| own.contains(*private)) {
            Some(_) if own.prefix_len() == 1 => warn(network, "is half of all addresses".to_owned()),
            Some(private) if own == *private => warn(network, "is a whole private network".to_owned()),
            Some(private) => warn(network, format!("contains the whole private network `{private}`")),
            None => {}
        }
    }
    let entries = || trusted.iter().map(|network| (canonical(*network.get_ref()), network));
    for private in private.iter().filter(|private| all.iter().any(|network| network.contains(*private))) {
        let by_one = entries().any(|(own, _)| own.contains(private));
        if let Some((_, first)) = entries().find(|(own, _)| !by_one && private.contains(own)) {
            warn(first, format!("and other entries are together the whole private network `{private}`"));
        }
    }
}

fn address_header(server: &Table<'_>) -> Option<AddressHeader> {
    let key = "address_header";
    let headers = [("x-forwarded-for", AddressHeader::XForwardedFor), ("forwarded", AddressHeader::Forwarded)];
    if let Some(value) = server.get(key) {
        if value.get_ref().is_array() {
            let help = "a proxy changes one of these headers, and forwards the other as the client sent it";
            server.fault(key, value.span(), Fault::new("Weir can trust only one header").help(Some(help.into())));
            return None;
        }
        if !server.has("trusted_proxies") {
            let fault = Fault::new("has no effect without `server.trusted_proxies`");
            server.fault(key, value.span(), Fault { absence: true, ..fault });
        }
    }
    server.choice(key, &headers)
}

/// The peers that send PROXY headers; empty without `proxy_protocol`.
pub(super) fn proxied_from(table: &Table<'_>) -> Option<Box<[IpNet]>> {
    if !table.is_present() {
        return Some(Box::default());
    }
    let from = table.list("from", units::network)?;
    let consequence = "any client can choose its own address";
    of_everyone(table, "from", &from, "trusts_everyone", consequence);
    warn_of_private_networks(table, "from", &from);
    Some(from.into_iter().map(Located::into_inner).collect())
}

pub(super) fn bounds(server: &Table<'_>) -> Option<Bounds> {
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
    // After an error, no header counts as removed.
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
