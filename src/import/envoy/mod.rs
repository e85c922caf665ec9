//! Envoy: local rate limits of a static configuration, with listeners, routes and clusters.

mod actions;

mod local;
mod routes;
mod services;

use std::collections::BTreeMap;
use std::path::Path;

use local::LocalFilter;
use routes::RouteReader;

use super::draft::Draft;
use super::limit::{self, Limit};
use super::report::ImportError;
use super::services::{Listening, Service, listen, served, write};
use super::yaml::{self, Node, Reasons};

/// Translates a bootstrap configuration, or its `static_resources`.
pub(super) fn translate(_: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let documents = yaml::read(draft)?;
    let mut services = BTreeMap::new();
    let (mut listeners, mut addresses, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    let mut reader = RouteReader::default();
    for document in &documents {
        let resources = document.get("static_resources").unwrap_or(document);
        for cluster in resources.list("clusters") {
            if let Some(service) = services::cluster(cluster, draft) {
                services.insert(service.name.clone(), service);
            }
        }
        listeners.extend(resources.list("listeners").iter().map(|listener| (listener, listening(listener, draft))));
    }
    let (listeners, others) = served(listeners, |(_, listening)| listening, draft);
    for (listener, _) in others {
        listener.skip();
    }
    for (listener, listening) in listeners {
        addresses.extend(listening.addresses);
        read_listener(listener, &mut reader, &mut limits, draft);
    }
    add_rewritten(&reader, &mut services);
    listen(&addresses, draft);
    write(&services, reader.routes(), draft);
    limit::write(limits, draft);
    for document in &documents {
        document.report(&REASONS, draft);
    }
    Ok(())
}

/// The address of a listener.
fn listening(listener: &Node, draft: &mut Draft) -> Listening {
    let is_plain = !listener.list("filter_chains").iter().any(|chain| chain.has("transport_socket"));
    let mut listening = Listening { place: listener.place, ..Listening::default() };
    if let Some(address) = listener.at(&["address", "socket_address"]) {
        let (host, port) = (address.word("address"), address.word("port_value"));
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let text = format!("{host}:{port}");
        if is_plain {
            listening.addresses.push((address.place, text));
        } else {
            address.left_out("set `server.tls` and `server.listen` by hand", draft);
            listening.by_hand.push(text);
        }
    }
    listening
}

fn read_listener<'n>(listener: &'n Node, reader: &mut RouteReader<'n>, limits: &mut Vec<Limit>, draft: &mut Draft) {
    let chains = listener.list("filter_chains");
    for filter in chains.iter().flat_map(|chain| chain.list("filters")) {
        let config = filter.get("typed_config");
        let is_manager = |config: &&Node| config.word("@type").ends_with(".HttpConnectionManager");
        let Some(manager) = config.filter(is_manager) else {
            filter.left_out("Weir forwards only HTTP", draft);
            continue;
        };
        if reader.is_in_use() {
            draft.differs(listener.place, "Weir applies the routes and limits of all listeners to each of them");
        }
        let first = reader.read(manager, draft);
        let filters = manager.list("http_filters").iter().filter_map(|filter| LocalFilter::of(filter, draft));
        let filters: Vec<_> = filters.collect();
        let of_filter = |filter| local::limits(filter, &reader.entries[first..], reader, draft);
        let own: Vec<_> = filters.iter().flat_map(of_filter).collect();
        let is_of_peer = manager.is_true("use_remote_address");
        if !is_of_peer && own.iter().any(|limit| limit.key.iter().any(|part| part.starts_with("ip"))) {
            let why = "Envoy takes the last address of `X-Forwarded-For`; set `server.trusted_proxies` by hand";
            draft.differs(manager.place, why);
        }
        limits.extend(own);
    }
}

/// Adds the services that get the host of their address.
fn add_rewritten(reader: &RouteReader<'_>, services: &mut BTreeMap<String, Service>) {
    for (id, cluster) in reader.rewritten() {
        if let Some(service) = services.get(cluster).cloned() {
            services.insert(id, Service { rewrites_host: true, ..service });
        }
    }
}

const REASONS: Reasons = Reasons {
    not_needed: "@type name stat_prefix access_log admin node stats_sinks stats_config codec_type server_name \
        generate_request_id tracing dns_lookup_family connect_timeout alt_stat_name runtime_key \
        enable_x_ratelimit_headers per_connection_buffer_limit_bytes validate_clusters upgrade_configs \
        server_header_transformation disable_key detailed_metric",
    left_out: &[
        ("dynamic_resources", "Weir takes a whole configuration, for example from etcd"),
        ("layered_runtime", "Weir has no runtime values; the values of the file hold"),
        ("rds", "the routes are in another file"),
        ("transport_socket", "set `server.tls` or `https` of an upstream by hand"),
        ("xff_num_trusted_hops", "set `server.trusted_proxies` by hand"),
        ("timeout", "set `[timeouts]` by hand"),
        ("idle_timeout", "set `[timeouts]` by hand"),
        ("stream_idle_timeout", "set `[timeouts]` by hand"),
        ("request_timeout", "set `[timeouts]` by hand"),
        ("retry_policy", "Weir retries a request only if no byte of it was sent"),
        ("health_checks", "set `health` of the upstream by hand"),
        ("outlier_detection", "set `eject` of the upstream by hand"),
        ("circuit_breakers", "set `max_connections` and `max_queued` of the upstream by hand"),
        ("typed_extension_protocol_options", "set `protocol` of the upstream by hand"),
        ("http2_protocol_options", "set `protocol` of the upstream by hand"),
        (
            "rate_limits",
            "no filter of this file uses it; `weir import ratelimit` reads limits of the rate limit service",
        ),
        ("typed_per_filter_config", "Weir has no such filter"),
        ("response_headers_to_add", "Weir does not add this header"),
        ("request_headers_to_add", "Weir does not add this header"),
        ("request_headers_to_add_when_not_enforced", "Weir does not add this header"),
    ],
};
