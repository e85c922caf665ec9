"""Memory: bytes of an idle keep-alive connection, and of a held request beyond its connection."""

import contextlib
import socket
import time
from dataclasses import dataclass
from typing import Iterator

from answers import metric
from bench import REFERENCE, Bench, Results, reason_cell, table, take_turns
from h2 import Connection
from load import Wrk
from peers import Peer, Running
from processes import PeerFailed, connect, connections_that_fit, rss_bytes
from scenario import HEADER, HEADER_VALUE, PATH, PER_IP, Scenario

# What a first load makes a proxy take for good is not the connections'.
WARM_UP_S = 1
# After this long nothing moves any more.
SETTLES_WITHIN_S = 1
STREAMS = 100
HELD_PATH = "/held"
HELD_WITHIN_S = 60

# One request of a key passes, and the others wait for days.
HOLD_TOML = f"""
[hold]
max_waiting = 10000000
max_waiting_bytes = "64GiB"
max_waiting_per_client = 10000000
max_waiting_bytes_per_client = "64GiB"

[[limit]]
name = "held"
match = {{ path = "{HELD_PATH}" }}
key = ["header:{HEADER}"]
rate = "1/day"
on_limit = "hold"
hold = {{ max_wait = "forever", max_waiting = {STREAMS} }}
"""


@dataclass(frozen=True)
class Sample:
    """Resident memory before and after something was added `count` times."""

    before_bytes: int
    after_bytes: int
    count: int

    @property
    def each_bytes(self) -> float:
        return (self.after_bytes - self.before_bytes) / self.count


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    idle = connections_that_fit(bench.options.idle)
    idle_scenario = Scenario(f"{idle:,} idle connections", connections=idle)
    streams = min(STREAMS, bench.options.held)
    connections = connections_that_fit(bench.options.held // streams)
    held = connections * streams
    held_name = f"{held:,} held requests on {connections:,} HTTP/2 connections"
    held_scenario = Scenario(held_name, (PER_IP,), connections=connections, weir_toml=HOLD_TOML)
    with bench.serve_backend() as backend_port:

        def cell(scenario: Scenario, peer: Peer, measure):
            def measure_once() -> Sample:
                with bench.serve(peer, scenario, backend_port) as running:
                    return measure(running, bench)

            return measure_once

        cells = {(idle_scenario.name, peer.name): cell(idle_scenario, peer, idle_connections) for peer in bench.peers}
        if weir := bench.peer("Weir"):
            cells[held_scenario.name, weir.name] = cell(held_scenario, weir, held_requests)
        take_turns(results, bench.rounds, cells)
    columns = ["What", "Proxy", "bytes each (min to max)", f"vs {REFERENCE}", "RSS before, MiB", "RSS after, MiB"]
    return table(columns, [row(key, results) for key in cells], texts=2), results.has_failed


def idle_connections(running: Running, bench: Bench) -> Sample:
    """Opens connections that make one request each and then stay."""
    count = running.scenario.connections
    warm_up(running, bench)
    before = rss_bytes(running.worker_pid)
    with idle(running, count):
        time.sleep(SETTLES_WITHIN_S)
        after = rss_bytes(running.worker_pid)
    return Sample(before, after, count)


@contextlib.contextmanager
def idle(running: Running, count: int) -> Iterator[None]:
    """Keep-alive connections that have made one request each; fails if any of them is closed meanwhile."""
    with contextlib.ExitStack() as open_connections:
        opened = []
        for number in range(count):
            opened.append(open_connections.enter_context(connect(running.port, number)))
            ask(opened[-1])
        yield
        for connection in opened:
            ask(connection)


def warm_up(running: Running, bench: Bench) -> None:
    Wrk(running.port, bench.load_cores, WARM_UP_S).run()
    time.sleep(SETTLES_WITHIN_S)


def ask(connection: socket.socket) -> None:
    """One request and all of its answer, which comes in one piece or nearly so."""
    connection.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a\r\n{HEADER}: {HEADER_VALUE}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"}"):
        more = connection.recv(65536)
        if not more:
            raise PeerFailed("closed a connection that should be kept alive")
        answer += more
    if not answer.startswith(b"HTTP/1.1 200"):
        raise PeerFailed(f"answered {answer[:40]!r}")


def held_requests(running: Running, bench: Bench) -> Sample:
    """Opens HTTP/2 connections that make one request each, then fills them with requests that wait."""
    warm_up(running, bench)
    count = running.scenario.connections
    streams = min(STREAMS, bench.options.held)
    with contextlib.ExitStack() as open_connections:
        opened = []
        for number in range(count):
            # A key for each connection: its first request passes, and pays for the others.
            headers = {HEADER: f"seller-{number}"}
            connection = Connection(connect(running.port, number), HELD_PATH, headers)
            open_connections.enter_context(contextlib.closing(connection))
            connection.send(1)
            connection.receive(stream=1)
            opened.append(connection)
        time.sleep(SETTLES_WITHIN_S)
        before = rss_bytes(running.worker_pid)
        for connection in opened:
            connection.send(streams)
        wait_until_held(running, count * streams)
        time.sleep(SETTLES_WITHIN_S)
        after = rss_bytes(running.worker_pid)
        wait_until_held(running, count * streams)
    return Sample(before, after, count * streams)


def wait_until_held(running: Running, count: int) -> None:
    deadline = time.monotonic() + HELD_WITHIN_S
    held = 0.0
    while time.monotonic() < deadline:
        held = metric(running, "weir_held_requests")
        if held == count:
            return
        time.sleep(0.2)
    raise PeerFailed(f"holds {held:,.0f} requests instead of {count:,}")


def row(key: tuple[str, str], results: Results) -> list[str]:
    if not results.samples.get(key):
        return [*key, reason_cell(results, key)]
    return [
        *key,
        results.spread(key, lambda sample: sample.each_bytes, digits=0),
        results.ratio(key, (key[0], REFERENCE), lambda sample: sample.each_bytes),
        f"{results.median(key, lambda sample: sample.before_bytes) / 2**20:.1f}",
        f"{results.median(key, lambda sample: sample.after_bytes) / 2**20:.1f}",
    ]
