"""Weir, with the headers and the metrics that it sends by default."""

import subprocess
from pathlib import Path

from scenario import HEADER, Limit, Scenario, Site

VERSION_ARGUMENT = "--version"
CONFIG = "weir.toml"
SECRET = "fleet.secret"
# The exit code of an invalid configuration.
INVALID = 3


def command(program: str, home: Path) -> list[str]:
    return [program, "run", "--config", str(home / CONFIG)]


def refusal(program: str, home: Path) -> str | None:
    """An older binary may not know an option that a scenario needs, such as TLS."""
    checked = subprocess.run(
        [program, "check", str(home / CONFIG)], capture_output=True, text=True, check=False, timeout=10
    )
    if checked.returncode != INVALID:
        return None
    said = (checked.stderr or checked.stdout).strip().splitlines()
    return said[0] if said else "it does not say why"


def configure(site: Site) -> dict[str, str]:
    scenario = site.scenario
    tls = ""
    if scenario.tls:
        pair = f'{{ cert = "{site.certificate.chain}", key = "{site.certificate.key}" }}'
        tls = f"[server.tls]\ncertificates = [{pair}]"
    text = f"""
[server]
listen = "127.0.0.1:{site.port}"
workers = {scenario.workers}
max_connections = {scenario.connections + 256}
max_connections_per_ip = {scenario.connections + 256}
max_requests_per_ip = {scenario.in_flight + 256}
max_body_bytes = "off"

{tls}

[timeouts]
keep_alive = "300s"

[upstream]
url = "http://127.0.0.1:{site.backend_port}"
protocol = "{"h2" if scenario.grpc else "http1"}"

[admin]
listen = "127.0.0.1:{site.admin_port}"

[log]
access = "{"all" if scenario.access_log else "off"}"
format = "json"
access_format = "{scenario.access_log or "auto"}"

{chr(10).join(table(limit, scenario) for limit in scenario.limits)}
{scenario.weir_toml}
{fleet(site) if scenario.strategy else ""}
{f"[hold]{chr(10)}max_waiting_per_client = {scenario.connections}" if scenario.holds else ""}
"""
    return {CONFIG: text, SECRET: "5c6f1e0b7a9d4283bd01f6e2c4a85790"}


def fleet(site: Site) -> str:
    """The replicas, and what they share. Under full load a store or a limiter may be late, and must still decide."""
    scenario = site.scenario
    # A new Redis decides when all replicas have met.
    replicas = 1 if scenario.needs_redis or scenario.needs_etcd else 3
    text = f"""
[fleet]
strategy = "{"lease" if scenario.needs_etcd else scenario.strategy}"
replicas = {replicas}
secret = {{ file = "{site.home / SECRET}" }}
"""
    if scenario.strategy == "stream":
        members = ", ".join(f'"127.0.0.1:{port}"' for port in (scenario.own_port, scenario.other_port))
        text += f"""listen = "127.0.0.1:{scenario.own_port}"
members = {{ static = [{members}] }}
"""
    servers = {
        "redis": f'redis = ["redis://127.0.0.1:{scenario.redis_port}"]',
        "lease": f'redis = ["redis://127.0.0.1:{scenario.redis_port}"]',
        "lease of etcd": f'etcd = ["http://127.0.0.1:{scenario.etcd_port}"]',
        "service": f'service = "http://127.0.0.1:{scenario.other_port}"',
    }
    if server := servers.get(scenario.strategy):
        text += f"""
[store.main]
{server}
timeout = "1s"
"""
    return text


def table(limit: Limit, scenario: Scenario) -> str:
    key = f"header:{HEADER}" if limit.by_header else "ip"
    holds = f"""burst = 1
on_limit = "hold"
hold = {{ max_wait = "forever", max_waiting = {scenario.connections} }}"""
    return f"""
[[limit]]
name = "{limit.name}"
key = ["{key}"]
rate = "{limit.rate_per_s}/s"
{holds if scenario.holds else ""}
"""
