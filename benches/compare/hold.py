"""The rate that a queue of waiting requests reaches, next to nginx with `limit_req`, for one key and for many."""

import os
from functools import partial

from answers import check_load
from bench import REFERENCE, Bench, Results, reason_cell, table, take_turns
from flat import KEYS_SCRIPT
from load import Wrk
from peers import Peer, serve_backend
from scaling import core_list
from scenario import Limit, Scenario

# More than pass while one goes to the backend and comes again, so that no queue is ever empty.
CONNECTIONS = 512
RATES_PER_S = [100, 500, 1_000, 2_000, 5_000, 10_000]
# Rates of each of several keys.
KEYS, KEY_RATES_PER_S = 10, [10, 100, 500]
WORKERS = [1, 2]


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in (REFERENCE, "Weir")]
    # Load and backend need little beside what waits: all share all cores.
    cores = core_list(sorted(os.sched_getaffinity(0)))
    loads = [(rate, 1) for rate in RATES_PER_S] + [(rate, KEYS) for rate in KEY_RATES_PER_S]
    keys = {}
    with serve_backend(bench.directory, cores, 2 * CONNECTIONS) as backend_port:
        for rate, count in loads:
            for workers in WORKERS:
                scenario = Scenario(
                    "held", (Limit("held", by_header=True, rate_per_s=rate),), connections=CONNECTIONS,
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
    return table(heads, [row(key, results) for key in keys], texts=1), results.has_failed


def reached(bench: Bench, peer: Peer, scenario: Scenario, count: int, backend_port: int, cores: str) -> float:
    """What passes, as a part of what may."""
    with bench.serve(peer, scenario, backend_port, cores) as running:
        script = (KEYS_SCRIPT, "0", str(count), "1", "1")
        load = Wrk(running.port, cores, bench.seconds, CONNECTIONS, script=script).run()
        check_load(load, running)
        return load.requests_per_s / (scenario.limits[0].rate_per_s * count)


def row(key: tuple[int, int, int, str], results: Results) -> list[str]:
    rate, count, workers, peer = key
    figure = results.spread(key, lambda part: part, digits=3) if results.samples.get(key) else reason_cell(results, key)
    return [peer, str(workers), str(count), f"{rate:,}/s", figure]
