"""The rate that a queue of waiting requests reaches and its CPU time, next to nginx with `limit_req`."""

import os
import time
from dataclasses import dataclass
from functools import partial

from answers import check_load
from bench import REFERENCE, Bench, Results, reason_cell, table, take_turns
from flat import KEYS_SCRIPT, backend_requests
from load import Wrk
from peers import Peer, serve_backend
from processes import exact_cpu_s
from scaling import core_list
from scenario import Limit, Scenario

# Keys, and the rates of each.
LOADS = {1: [100, 500, 1_000, 2_000, 5_000, 10_000], 10: [10, 100, 500], 1_000: [10]}
# More connections than pass while one goes to the backend and comes again, so that no queue is ever empty.
CONNECTIONS, CONNECTIONS_PER_KEY = 512, 4
WORKERS = [1, 2]
# Queues fill, and bursts pass.
WARM_UP_S = 2


@dataclass(frozen=True)
class Sample:
    """What one round says about one peer."""

    part_of_rate: float
    cpu_us_per_request: float


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in (REFERENCE, "Weir")]
    # Load and backend need little beside what waits: all share all cores.
    cores = core_list(sorted(os.sched_getaffinity(0)))
    loads = [(rate, count) for count, rates in LOADS.items() for rate in rates]
    keys = {}
    with serve_backend(bench.directory, cores, 2 * max(map(connections, LOADS))) as backend_port:
        for rate, count in loads:
            for workers in WORKERS:
                scenario = Scenario(
                    "held", (Limit("held", by_header=True, rate_per_s=rate),), connections=connections(count),
                    workers=workers, holds=True,
                )
                for peer in peers:
                    # Several processes of nginx share no timers; one is what there is to compare with.
                    if peer.name == REFERENCE and workers > 1:
                        continue
                    keys[rate, count, workers, peer.name] = partial(
                        reached, bench, peer, scenario, count, backend_port, cores
                    )
        take_turns(results, bench.rounds, keys)
    heads = ["Proxy", "Workers", "Keys", "Rate of each", "reached, of the rate (min to max)"]
    heads += ["CPU µs/request (min to max)", f"vs {REFERENCE}"]
    return table(heads, [row(key, results) for key in keys], texts=1), results.has_failed


def connections(count: int) -> int:
    """Connections for a number of keys."""
    return max(CONNECTIONS, CONNECTIONS_PER_KEY * count)


def reached(bench: Bench, peer: Peer, scenario: Scenario, count: int, backend_port: int, cores: str) -> Sample:
    """What passes, as a part of what may, and what it costs."""
    with bench.serve(peer, scenario, backend_port, cores) as running:
        script = (KEYS_SCRIPT, "0", str(count), "1", "1")
        seconds = bench.seconds + 2 * WARM_UP_S
        with Wrk(running.port, cores, seconds, scenario.connections, script=script).running() as finish:
            time.sleep(WARM_UP_S)
            before, before_s, began = backend_requests(backend_port), exact_cpu_s(running.worker_pid), time.monotonic()
            time.sleep(bench.seconds)
            after, after_s, ended = backend_requests(backend_port), exact_cpu_s(running.worker_pid), time.monotonic()
            check_load(finish(), running)
        # The second question is one of them.
        passed = after - before - 1
        part = passed / (ended - began) / (scenario.limits[0].rate_per_s * count)
        return Sample(part, (after_s - before_s) / max(1, passed) * 1e6)


def row(key: tuple[int, int, int, str], results: Results) -> list[str]:
    rate, count, workers, peer = key
    names = [peer, str(workers), str(count), f"{rate:,}/s"]
    if not results.samples.get(key):
        return [*names, reason_cell(results, key)]
    cost = lambda sample: sample.cpu_us_per_request  # noqa: E731
    reference = (rate, count, 1, REFERENCE)
    rates = results.spread(key, lambda sample: sample.part_of_rate, digits=3)
    return [*names, rates, results.spread(key, cost), results.ratio(key, reference, cost)]
