"""What it costs that replicas share their limits: CPU time per request by strategy, and what asking another adds."""

import contextlib
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Iterator

from answers import metric
from bench import Bench, Results, reason_cell, table, take_turns
from cpu import measure
from latency import QUANTILES, WARM_UP_S
from load import BUILD_GENERATOR, open_loop
from peers import Peer, Running, serve
from processes import READY_WITHIN_S, LeftOut, PeerFailed, find, free_port, process
from scenario import PER_IP, PER_KEY, Scenario

# The first one is what the others are compared with.
STRATEGIES = ["local", "split", "stream", "lease", "lease of etcd", "redis", "service"]
# Traefik has no strategies: each instance counts alone, or Redis counts.
TRAEFIK = ["local", "redis"]
LIMITS = {"one limit": (PER_IP,), "two limits": (PER_IP, PER_KEY), "10,000 keys": (PER_KEY,)}
# Requests of many clients, a few of whom are busy; all others are of one client.
SCRIPTS = {"10,000 keys": (str(Path(__file__).with_name("zipf.lua")), "10000")}
RATE_PER_S = 10_000
# The metric that is 1 when the others are reached.
READY = {"stream": "weir_fleet_peer_up", **dict.fromkeys(["lease", "lease of etcd", "redis", "service"], "weir_store_up")}


def run(bench: Bench) -> tuple[str, bool]:
    """The tables, and whether something failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in ("Weir", "Traefik")]
    ways = [(peer, way) for peer in peers for way in (STRATEGIES if peer.name == "Weir" else TRAEFIK)]
    with bench.serve_backend() as backend_port, serve_redis(bench) as redis_port, serve_etcd(bench) as etcd_port:
        stores = {"redis_port": redis_port, "etcd_port": etcd_port}
        cells = {}
        wanted = {name: limits for name, limits in LIMITS.items() if (bench.options.only or "") in name}
        for (name, limits), (peer, way) in product(wanted.items(), ways):
            scenario = Scenario(name, limits, strategy=way, **stores)
            cells["cpu", name, peer.name, way] = partial(cost, bench, peer, scenario, backend_port)
        if bench.generator:
            for peer, way in ways:
                scenario = Scenario("one limit", LIMITS["one limit"], strategy=way, **stores)
                cells["latency", peer.name, way] = partial(delay, bench, peer, scenario, backend_port)
        take_turns(results, bench.rounds, cells)
    keys = {part: [key for key in cells if key[0] == part] for part in ("cpu", "latency")}
    columns = ["Limits", "Proxy", "strategy", "CPU µs/request (min to max)", f"vs {STRATEGIES[0]}", "requests/s", "core used"]
    text = table(columns, [cpu_row(key, results) for key in keys["cpu"]], texts=3)
    if not bench.generator:
        return f"{text}\n\nLatency is left out: the open-loop generator is missing ({BUILD_GENERATOR}).", True
    columns = ["Proxy", "strategy", *[f"{name} µs (min to max)" for name in QUANTILES]]
    columns += [f"more than {STRATEGIES[0]}, {name}" for name in QUANTILES]
    text += f"\n\n{rate(bench):,} requests/s, one limit.\n\n"
    text += table(columns, [latency_row(key, results) for key in keys["latency"]], texts=2)
    return text, results.has_failed


@contextlib.contextmanager
def serve_redis(bench: Bench) -> Iterator[int]:
    """Runs Redis without persistence beside the load; gives its port, or 0 where it is not installed."""
    program, port = find("redis-server"), free_port()
    if not program:
        yield 0
        return
    home = bench.directory / "redis"
    home.mkdir()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(home)]
    with process(command, home, bench.load_cores, port):
        yield port


@contextlib.contextmanager
def serve_etcd(bench: Bench) -> Iterator[int]:
    """Runs etcd without waits for the disk beside the load; gives its port, or 0 where it is not installed."""
    program, port = find("etcd"), free_port()
    if not program:
        yield 0
        return
    home, url, peers = bench.directory / "etcd", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    home.mkdir()
    command = [program, "--data-dir", str(home / "data"), "--unsafe-no-fsync", "--log-level", "error"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url]
    command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    with process(command, home, bench.load_cores, port):
        yield port


@contextlib.contextmanager
def serve_other(bench: Bench, scenario: Scenario, backend_port: int) -> Iterator[None]:
    """Runs the replica that streams with the measured one, or the limiter that it asks, beside the load."""
    if scenario.strategy == "stream":
        other = replace(scenario, own_port=scenario.other_port, other_port=scenario.own_port)
    elif scenario.strategy == "service":
        listen = f'[grpc]\nlisten = "127.0.0.1:{scenario.other_port}"\n'
        other = replace(scenario, strategy="local", weir_toml=listen)
    else:
        yield
        return
    with serve(bench.peer("Weir"), other, bench.directory / "other", bench.load_cores, backend_port, None):
        yield


def rate(bench: Bench) -> int:
    return bench.options.rate or RATE_PER_S


def cost(bench: Bench, peer: Peer, scenario: Scenario, backend_port: int):
    check_stores(scenario)
    scenario = replace(scenario, own_port=free_port(), other_port=free_port())
    with serve_other(bench, scenario, backend_port), bench.serve(peer, scenario, backend_port) as running:
        with decided_by_strategy(running):
            return measure(running, bench, script=SCRIPTS.get(scenario.name, ()))


def delay(bench: Bench, peer: Peer, scenario: Scenario, backend_port: int) -> dict:
    """The report of the open-loop generator."""
    check_stores(scenario)
    scenario = replace(scenario, own_port=free_port(), other_port=free_port())
    with serve_other(bench, scenario, backend_port), bench.serve(peer, scenario, backend_port) as running:
        with decided_by_strategy(running):
            return open_loop(bench.generator, running.port, bench.load_cores, rate(bench), 1, bench.seconds, WARM_UP_S)


def check_stores(scenario: Scenario) -> None:
    if scenario.needs_redis and not scenario.redis_port:
        raise LeftOut("redis-server is not installed")
    if scenario.needs_etcd and not scenario.etcd_port:
        raise LeftOut("etcd is not installed")


@contextlib.contextmanager
def decided_by_strategy(running: Running) -> Iterator[None]:
    """A decision without the store or the other replica is cheap, and not what is measured."""
    ready = READY.get(running.scenario.strategy)
    if running.peer.name != "Weir" or not ready:
        yield
        return
    deadline = time.monotonic() + READY_WITHIN_S
    while not is_ready(running, ready):
        if time.monotonic() > deadline:
            raise PeerFailed("does not reach the others")
        time.sleep(0.02)
    without = "weir_fleet_isolated" if running.scenario.strategy == "stream" else "weir_fallback_decisions_total"
    before = metric(running, without)
    yield
    if fallbacks := metric(running, without) - before:
        raise PeerFailed(f"decided without the others: {without} is {fallbacks:.0f}")


def is_ready(running: Running, name: str) -> bool:
    """Whether a metric is 1. It is absent until a first connection."""
    with contextlib.suppress(PeerFailed):
        return metric(running, name) >= 1
    return False


def cpu_row(key: tuple, results: Results) -> list[str]:
    _, limits, peer, way = key
    if not results.samples.get(key):
        return [limits, peer, way, reason_cell(results, key)]
    return [
        limits,
        peer,
        way,
        results.spread(key, lambda sample: sample.cpu_us_per_request),
        results.ratio(key, ("cpu", limits, peer, STRATEGIES[0]), lambda sample: sample.cpu_us_per_request),
        f"{results.median(key, lambda sample: sample.requests_per_s):,.0f}",
        f"{results.median(key, lambda sample: sample.core_used):.0%}",
    ]


def latency_row(key: tuple, results: Results) -> list[str]:
    _, peer, way = key
    if not results.samples.get(key):
        return [peer, way, reason_cell(results, key)]
    local = ("latency", peer, STRATEGIES[0])
    spreads = [results.spread(key, lambda report, q=q: report[q], digits=0) for q in QUANTILES.values()]
    mine = [results.median(key, lambda report, q=q: report[q]) for q in QUANTILES.values()]
    others = [results.median(local, lambda report, q=q: report[q]) for q in QUANTILES.values()]
    more = [f"{one - other:,.0f}" if other is not None else "" for one, other in zip(mine, others)]
    return [peer, way, *spreads, *(more if way != STRATEGIES[0] else [])]
