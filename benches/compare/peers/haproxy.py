"""HAProxy with stick tables: each counts the requests of a key in the last second."""

from pathlib import Path

from processes import connections_that_fit
from scenario import HEADER, Limit, Site

VERSION_ARGUMENT = "-v"
# HAProxy refuses to start unless it has two descriptors for each of its connections: see `connections_that_fit`.
SPARE_CONNECTIONS = 100
# It closes idle backend connections once a fifth of those descriptors is in use.
CONNECTIONS_MIN = 4096


def command(program: str, home: Path) -> list[str]:
    return [program, "-db", "-f", str(home / "haproxy.cfg")]


def configure(site: Site) -> dict[str, str]:
    scenario = site.scenario
    tls = f"ssl crt {site.certificate.both}" if scenario.tls else ""
    protocol = ("alpn h2" if scenario.tls else "proto h2") if scenario.streams else ""
    limits = enumerate(scenario.limits)
    track = "\n".join(line for number, limit in limits for line in rules(number, limit))
    tables = "\n".join(f"backend {limit.name}\n    {table(limit)}" for limit in scenario.limits)
    text = f"""
global
    nbthread 1
    maxconn {max(scenario.in_flight + SPARE_CONNECTIONS, connections_that_fit(CONNECTIONS_MIN))}
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
frontend front
    bind 127.0.0.1:{site.port} backlog 4096 {tls} {protocol}
{track}
    default_backend service
backend service
    server service 127.0.0.1:{site.backend_port} {"proto h2" if scenario.grpc else ""}
{tables}
"""
    return {"haproxy.cfg": text}


def rules(number: int, limit: Limit) -> list[str]:
    key = f"hdr({HEADER})" if limit.by_header else "src"
    return [
        f"    http-request track-sc{number} {key} table {limit.name}",
        f"    http-request deny deny_status 429 if {{ sc_http_req_rate({number}) gt {limit.rate_per_s} }}",
    ]


def table(limit: Limit) -> str:
    kind = "string len 64" if limit.by_header else "ip"
    return f"stick-table type {kind} size 100k expire 60s store http_req_rate(1s)"
