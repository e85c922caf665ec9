"""Latency at half of saturation, open-loop, and what each proxy adds to the backend's own."""

from dataclasses import dataclass
from typing import Callable

from answers import check_load
from bench import Bench, Results, noted, reason_cell, say, table, take_turns
from load import BUILD_GENERATOR, Wrk, open_loop
from peers import Peer
from processes import cpu_s
from scenario import Scenario

SCENARIO = Scenario("forwarded, two limits")
DIRECT = "backend, directly"
WARM_UP_S = 1
QUANTILES = {"p50": "p50_us", "p99": "p99_us", "p99.9": "p999_us"}


@dataclass(frozen=True)
class Sample:
    """One run of the generator: its report, and how much of its core the proxy used."""

    report: dict
    core_used: float | None

    def us(self, name: str) -> float:
        return self.report[name]


def run(bench: Bench) -> tuple[str, bool]:
    """The table with a line about it, and whether a peer failed."""
    if not bench.generator:
        return f"Left out: the open-loop generator is missing ({BUILD_GENERATOR}).", True
    results = Results()
    with bench.serve_backend() as backend_port:
        saturation = {}
        for peer in bench.peers:
            say(f"saturation: {peer.name}")
            with noted(results, peer.name):
                saturation[peer.name] = saturate(bench, peer, backend_port)
        if not saturation:
            return "No proxy could be measured.", True
        rate = bench.options.rate or int(min(saturation.values()) / 2)
        cells = {DIRECT: lambda: generate(bench, backend_port, rate, None)}
        cells |= {peer.name: cell(bench, peer, backend_port, rate) for peer in bench.peers}
        take_turns(results, bench.rounds, cells)
    said = f"{rate:,} requests/s for all" + ("" if bench.options.rate else ", half of what the slowest proxy can do")
    said += f", {bench.options.group} at once" if bench.options.group > 1 else ""
    columns = ["Proxy", *[f"{name} µs (min to max)" for name in QUANTILES], *[f"added, {name}" for name in QUANTILES]]
    columns += ["late by > 1 ms", "core used", "saturation, requests/s"]
    rows = [row(name, results, saturation.get(name)) for name in cells]
    return f"{said}.\n\n{table(columns, rows, texts=1)}", results.has_failed


def saturate(bench: Bench, peer: Peer, backend_port: int) -> float:
    """Requests per second of a proxy that always has some to do."""
    with bench.serve(peer, SCENARIO, backend_port) as running:
        Wrk(running.port, bench.load_cores, WARM_UP_S).run()
        load = Wrk(running.port, bench.load_cores, bench.seconds).run()
        check_load(load, running)
        return load.requests_per_s


def cell(bench: Bench, peer: Peer, backend_port: int, rate: int) -> Callable[[], Sample]:
    def measure_once() -> Sample:
        with bench.serve(peer, SCENARIO, backend_port) as running:
            return generate(bench, running.port, rate, running.worker_pid)

    return measure_once


def generate(bench: Bench, port: int, rate: int, pid: int | None) -> Sample:
    before_s = cpu_s(pid) if pid else 0.0
    group = bench.options.group
    report = open_loop(bench.generator, port, bench.load_cores, rate, group, bench.seconds, WARM_UP_S)
    core_used = (cpu_s(pid) - before_s) / (bench.seconds + WARM_UP_S) if pid else None
    return Sample(report, core_used)


def row(name: str, results: Results, saturation: float | None) -> list[str]:
    if not results.samples.get(name):
        return [name, reason_cell(results, name)]
    quantiles = [results.spread(name, lambda sample, q=q: sample.us(q), digits=0) for q in QUANTILES.values()]
    added = [difference(name, results, q) if name != DIRECT else "" for q in QUANTILES.values()]
    late = results.median(name, lambda sample: sample.us("late") / sample.us("requests"))
    core_used = "" if name == DIRECT else f"{results.median(name, lambda sample: sample.core_used):.0%}"
    return [name, *quantiles, *added, f"{late:.2%}", core_used, f"{saturation:,.0f}" if saturation else ""]


def difference(name: str, results: Results, quantile: str) -> str:
    """The difference of two medians."""
    mine = results.median(name, lambda sample: sample.us(quantile))
    direct = results.median(DIRECT, lambda sample: sample.us(quantile))
    return f"{mine - direct:,.0f}" if direct is not None else ""
