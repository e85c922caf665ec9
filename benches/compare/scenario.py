"""What is asked of a peer: its limits, and so what the answers must be."""

from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = 64
# More requests than any run sends, and more a second than any peer can answer.
UNLIMITED = 10**9
PLENTY_PER_S = 1_000_000

# What the backend answers, where requests go, and what every one of them carries.
ANSWER = '{"id":4711,"name":"report","status":"ready","rows":1250,"created":"2025-01-01T00:00:00Z","owner":"seller-42"}'
PATH = "/report"
HEADER = "x-api-key"
HEADER_VALUE = "seller-42"


@dataclass(frozen=True)
class Limit:
    """A rate per client address, or per value of `HEADER`."""

    name: str
    by_header: bool = False
    rate_per_s: int = PLENTY_PER_S


PER_IP = Limit("per-ip")
PER_KEY = Limit("per-key", by_header=True)


@dataclass(frozen=True)
class Scenario:
    """How a peer is set up; each begins with one worker and no TLS."""

    name: str
    limits: tuple[Limit, ...] = (PER_IP, PER_KEY)
    status: int = 200
    tls: bool = False
    # Each request has a line in a file: "combined", or "json" with as many fields as a peer has; none if empty.
    access_log: str = ""
    connections: int = CONNECTIONS
    # Requests at once on each connection over HTTP/2; 0 is HTTP/1.
    streams: int = 0
    workers: int = 1
    # Where requests go.
    path: str = PATH
    # The backend speaks gRPC.
    grpc: bool = False
    # Requests beyond the limits wait, with no burst.
    holds: bool = False
    # Tables that only Weir has, for scenarios that it runs alone.
    weir_toml: str = ""
    # How replicas share the limits, and where Redis and etcd are; nothing if there is one proxy.
    strategy: str = ""
    redis_port: int = 0
    etcd_port: int = 0
    # Where this replica listens for the other one, and where the other one does; or the limiter.
    own_port: int = 0
    other_port: int = 0

    @property
    def forwards(self) -> bool:
        return self.status == 200

    @property
    def in_flight(self) -> int:
        """Requests at once."""
        return self.connections * max(1, self.streams)

    @property
    def needs_redis(self) -> bool:
        return self.strategy in ("redis", "lease")

    @property
    def needs_etcd(self) -> bool:
        return self.strategy == "lease of etcd"


@dataclass(frozen=True)
class Certificate:
    """A self-signed one; `both` is certificate and key in one file."""

    chain: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Site:
    """What a configuration has to name."""

    home: Path
    port: int
    # Where operators ask; only Weir has it.
    admin_port: int
    backend_port: int
    scenario: Scenario
    certificate: Certificate | None
