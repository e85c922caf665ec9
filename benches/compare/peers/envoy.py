"""Envoy with its local rate limit.

Its buckets are named in advance: one for 127.0.0.1 and one for the header's value. That is less work than a table of
keys, which the others have.
"""

import json
from pathlib import Path

from scenario import HEADER, HEADER_VALUE, Limit, Site

VERSION_ARGUMENT = "--version"
CONFIG = "envoy.json"
EXTENSIONS = "type.googleapis.com/envoy.extensions"
CONNECTIONS_MAX = 100_000
ALWAYS = {"numerator": 100, "denominator": "HUNDRED"}


def command(program: str, home: Path) -> list[str]:
    options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [program, "-c", str(home / CONFIG), *options]


def configure(site: Site) -> dict[str, str]:
    chain = {"filters": [typed("envoy.filters.network.http_connection_manager", connection_manager(site))]}
    if site.scenario.tls:
        files = {"certificate_chain": site.certificate.chain, "private_key": site.certificate.key}
        pair = {name: {"filename": str(path)} for name, path in files.items()}
        context = {
            "@type": f"{EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificates": [pair]},
        }
        chain["transport_socket"] = typed("envoy.transport_sockets.tls", context)
    listener = {"name": "front", "address": address(site.port), "filter_chains": [chain]}
    resources = {"listeners": [listener], "clusters": [cluster(site)]}
    return {CONFIG: json.dumps({"static_resources": resources}, indent=2)}


def connection_manager(site: Site) -> dict:
    limits = site.scenario.limits
    actions = [{"actions": [action(limit)]} for limit in limits]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "backend", "rate_limits": actions}}
    return {
        "@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            typed("envoy.filters.http.local_ratelimit", local_rate_limit(limits)),
            typed("envoy.filters.http.router", {"@type": f"{EXTENSIONS}.filters.http.router.v3.Router"}),
        ],
    }


def local_rate_limit(limits: tuple[Limit, ...]) -> dict:
    return {
        "@type": f"{EXTENSIONS}.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limits",
        # For requests that no descriptor matches; there are none.
        "token_bucket": bucket(CONNECTIONS_MAX),
        "filter_enabled": {"runtime_key": "limits_enabled", "default_value": ALWAYS},
        "filter_enforced": {"runtime_key": "limits_enforced", "default_value": ALWAYS},
        "descriptors": [{"entries": [entry(limit)], "token_bucket": bucket(limit.rate_per_s)} for limit in limits],
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "always_consume_default_token_bucket": False,
    }


def action(limit: Limit) -> dict:
    by_header = {"request_headers": {"header_name": HEADER, "descriptor_key": HEADER}}
    return by_header if limit.by_header else {"remote_address": {}}


def entry(limit: Limit) -> dict:
    by_header = {"key": HEADER, "value": HEADER_VALUE}
    return by_header if limit.by_header else {"key": "remote_address", "value": "127.0.0.1"}


def bucket(rate_per_s: int) -> dict:
    return {"max_tokens": rate_per_s, "tokens_per_fill": rate_per_s, "fill_interval": "1s"}


def cluster(site: Site) -> dict:
    endpoint = {"endpoint": {"address": address(site.backend_port)}}
    bounds = ["max_connections", "max_pending_requests", "max_requests"]
    return {
        "name": "backend",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "backend", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "circuit_breakers": {"thresholds": [dict.fromkeys(bounds, CONNECTIONS_MAX)]},
    }


def address(port: int) -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def typed(name: str, config: dict) -> dict:
    return {"name": name, "typed_config": config}
