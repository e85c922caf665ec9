"""Two workers of Weir against one: throughput where cores are free, and CPU time per request anywhere."""

import os
from dataclasses import dataclass, replace
from functools import partial

from bench import Bench, Results, reason_cell, table, take_turns
from cpu import Sample, measure
from peers import serve_backend
from scenario import PER_KEY, Limit, Scenario

# Below this, Weir, the load and the backend cannot have cores of their own.
CORES_MIN = 4
# The kernel spreads connections over the workers by hash: many are spread evenly.
CONNECTIONS = 256
WORKERS = [1, 2]
SCENARIOS = {
    "forwarded": Scenario("forwarded, two limits", connections=CONNECTIONS),
    "refused": Scenario("refused", (Limit("per-ip", rate_per_s=1), PER_KEY), status=429, connections=CONNECTIONS),
}


@dataclass(frozen=True)
class Placement:
    """Where what runs."""

    proxy_cores: str
    load_cores: str
    load_threads: int
    is_shared: bool


def run(bench: Bench) -> tuple[str, bool]:
    """The table with a line about it, and whether a peer failed."""
    weir = bench.peer("Weir")
    if not weir:
        return "Left out without Weir.", False
    placement = place(sorted(os.sched_getaffinity(0)))
    placed = replace(bench, load_cores=placement.load_cores)
    threads = placement.load_threads
    results = Results()
    with serve_backend(bench.directory, placement.load_cores, 2 * CONNECTIONS, workers=threads) as backend_port:

        def loaded(scenario: Scenario) -> Sample:
            with placed.serve(weir, scenario, backend_port, placement.proxy_cores) as running:
                return measure(running, placed, threads=threads, connections=CONNECTIONS)

        for name, scenario in SCENARIOS.items():
            cells = {(name, count): partial(loaded, replace(scenario, workers=count)) for count in WORKERS}
            take_turns(results, bench.rounds, cells)
    columns = ["Scenario", "Workers", "requests/s (min to max)", "vs 1", "CPU µs/request (min to max)", "vs 1"]
    columns += ["cores used", "at equal CPU"]
    rows = [row((name, count), results) for name in SCENARIOS for count in WORKERS]
    return f"{caveat(placement)}\n\n{table(columns, rows, texts=1)}", results.has_failed


def place(cores: list[int]) -> Placement:
    """Two cores for Weir and the rest for load and backend; with too few, all for all."""
    if len(cores) < CORES_MIN:
        everywhere = core_list(cores)
        return Placement(everywhere, everywhere, 1, is_shared=True)
    load = cores[2:]
    return Placement(core_list(cores[:2]), core_list(load), min(len(load), 4), is_shared=False)


def core_list(cores: list[int]) -> str:
    return ",".join(map(str, cores))


def caveat(placement: Placement) -> str:
    if not placement.is_shared:
        return f"Weir on cores {placement.proxy_cores}, load and backend on {placement.load_cores}."
    return (
        f"**This machine has fewer than {CORES_MIN} cores: Weir, load and backend share {placement.proxy_cores}, so "
        "requests/s say nothing about scaling.** CPU time per request says what two workers cost each other; "
        '"at equal CPU" is the throughput that follows from it, were two cores free.'
    )


def row(key: tuple[str, int], results: Results) -> list[str]:
    name, count = key
    if not results.samples.get(key):
        return [name, str(count), reason_cell(results, key)]
    one = name, WORKERS[0]
    cost = results.median(key, lambda sample: sample.cpu_us_per_request)
    cost_of_one = results.median(one, lambda sample: sample.cpu_us_per_request)
    return [
        name,
        str(count),
        results.spread(key, lambda sample: sample.requests_per_s, digits=0),
        results.ratio(key, one, lambda sample: sample.requests_per_s),
        results.spread(key, lambda sample: sample.cpu_us_per_request),
        results.ratio(key, one, lambda sample: sample.cpu_us_per_request),
        f"{results.median(key, lambda sample: sample.core_used):.2f}",
        f"{count * cost_of_one / cost:.2f}" if cost_of_one else "",
    ]
