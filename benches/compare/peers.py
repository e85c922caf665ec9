"""The proxies under comparison and the backend: their configurations and commands."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable

from processes import PeerFailed, find, free_port, only_child, process

CONNECTIONS = 64
UNLIMITED = 10**9

ANSWER = '{"id":4711,"name":"report","status":"ready","rows":1250,"created":"2025-01-01T00:00:00Z","owner":"seller-42"}'


@dataclass(frozen=True)
class Scenario:
    """What the limit is, and so what the answers must be."""

    name: str
    rate_per_s: int
    status: int

    @property
    def forwards(self) -> bool:
        return self.status == 200


FORWARDED = Scenario("forwarded, limit on", rate_per_s=1_000_000, status=200)
REFUSED = Scenario("refused", rate_per_s=1, status=429)
SCENARIOS = [FORWARDED, REFUSED]


@dataclass(frozen=True)
class Peer:
    """A proxy: how its configuration reads and which command runs it."""

    name: str
    version: str
    configure: Callable[[Path, Scenario, int, int], str]
    command: Callable[[Path], list[str]]
    # The process that carries the traffic is a child of the one that is started.
    has_master: bool = False


@dataclass(frozen=True)
class Running:
    """A started peer: where it listens, and the process whose CPU time and memory count."""

    port: int
    worker_pid: int


def find_peers(weir: Path) -> tuple[list[Peer], list[str]]:
    """The peers of this machine, and what is missing."""
    peers, missing = [], []
    if nginx := find("nginx"):
        command = partial(nginx_command, nginx)
        peers.append(Peer("nginx", version(nginx, "-v"), nginx_proxy, command, has_master=True))
    else:
        missing.append("nginx")
    if haproxy := find("haproxy"):
        command = partial(haproxy_command, haproxy)
        peers.append(Peer("HAProxy", version(haproxy, "-v"), haproxy_proxy, command))
    else:
        missing.append("haproxy")
    if os.access(weir, os.X_OK):
        binary = str(weir.resolve())
        peers.append(Peer("Weir", version(binary, "--version"), weir_proxy, partial(weir_command, binary)))
    else:
        missing.append(f"{weir} (cargo build --release)")
    return peers, missing


def version(program: str, flag: str) -> str:
    """The first line that a program says about itself."""
    try:
        said = subprocess.run([program, flag], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} (version unknown)"
    lines = (said.stdout or said.stderr).strip().splitlines()
    return lines[0].removeprefix("nginx version: ") if lines else f"{program} (version unknown)"


def nginx_command(nginx: str, config: Path) -> list[str]:
    return [nginx, "-p", str(config.parent), "-c", str(config), "-e", "stderr", "-g", "daemon off;"]


def haproxy_command(haproxy: str, config: Path) -> list[str]:
    return [haproxy, "-db", "-f", str(config)]


def weir_command(weir: str, config: Path) -> list[str]:
    return [weir, "run", "--config", str(config)]


def nginx_base(directory: Path, http: str) -> str:
    """An nginx with one worker, no access log and every path inside `directory`."""
    temporary = "\n".join(
        f"    {kind}_temp_path {directory}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    return f"""
worker_processes 1;
pid {directory}/pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests {UNLIMITED};
    keepalive_timeout 60s;
{temporary}
{http}
}}
"""


def backend_config(directory: Path, port: int) -> str:
    """A service that costs next to nothing: one answer from memory."""
    return nginx_base(
        directory,
        f"""
    default_type application/json;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 200 '{ANSWER}'; }}
    }}""",
    )


def nginx_proxy(directory: Path, scenario: Scenario, port: int, backend: int) -> str:
    """limit_req counts in milliseconds, so a high rate needs a burst to admit all."""
    burst = f"burst={scenario.rate_per_s} nodelay" if scenario.forwards else ""
    return nginx_base(
        directory,
        f"""
    limit_req_zone $binary_remote_addr zone=per_ip:10m rate={scenario.rate_per_s}r/s;
    limit_req_status 429;
    upstream backend {{
        server 127.0.0.1:{backend};
        keepalive {CONNECTIONS};
        keepalive_requests {UNLIMITED};
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            limit_req zone=per_ip {burst};
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}""",
    )


def haproxy_proxy(_directory: Path, scenario: Scenario, port: int, backend: int) -> str:
    """A stick table counts each address's requests of the last second."""
    return f"""
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{port}
    stick-table type ip size 100k expire 60s store http_req_rate(1s)
    http-request track-sc0 src
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {scenario.rate_per_s} }}
    default_backend back
backend back
    server service 127.0.0.1:{backend}
"""


def weir_proxy(_directory: Path, scenario: Scenario, port: int, backend: int) -> str:
    return f"""
[server]
listen = "127.0.0.1:{port}"
workers = 1

[upstream]
url = "http://127.0.0.1:{backend}"

[admin]
listen = "off"

[log]
access = "off"

[[limit]]
name = "per-ip"
key = ["ip"]
rate = "{scenario.rate_per_s}/s"
"""


@contextlib.contextmanager
def serve_backend(directory: Path, core: int):
    """Runs the backend; gives its port."""
    nginx = find("nginx")
    port = free_port()
    config = write(directory / "backend", backend_config(directory / "backend", port))
    with process(nginx_command(nginx, config), config.parent, core, port):
        yield port


@contextlib.contextmanager
def serve(peer: Peer, scenario: Scenario, directory: Path, core: int, backend: int):
    """Runs a peer for one measurement; gives a `Running`."""
    port = free_port()
    home = directory / peer.name.lower()
    config = write(home, peer.configure(home, scenario, port, backend))
    with process(peer.command(config), home, core, port) as pid:
        yield Running(port, only_child(pid) if peer.has_master else pid)


def write(home: Path, config: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "config"
    path.write_text(config)
    return path
