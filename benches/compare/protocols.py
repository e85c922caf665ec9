"""CPU time per request by protocol and by requests at once, with Weir's default pool and bounds."""

from functools import partial
from itertools import product

from answers import check_load, check_samples
from bench import Bench, Results, reason_cell, table, take_turns
from cpu import WARM_UP_S, Sample
from load import H2load, Wrk
from peers import Peer, Running
from processes import LeftOut, connections_that_fit, cpu_s, find, rss_bytes
from scenario import Limit, Scenario

CONNECTIONS = [16, 64, 256, 1024, 4096]
# Connections, and streams of each.
STREAMS = [(1, 1), (4, 8), (16, 16), (64, 64)]
PEERS = ("nginx", "HAProxy", "Weir")
REFUSED = (Limit("per-ip", rate_per_s=1),)


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in PEERS]
    scenarios = [scenario for scenario in all_scenarios() if not bench.options.only or bench.options.only in scenario.name]
    with bench.serve_backend(max(CONNECTIONS)) as backend_port:
        cells = {
            (scenario.name, peer.name): partial(cost, bench, peer, scenario, backend_port)
            for scenario, peer in product(scenarios, peers)
        }
        take_turns(results, bench.rounds, cells)
    others = [peer.name for peer in peers if peer.name != "Weir"]
    rows = [row(scenario.name, [peer.name for peer in peers], others, results) for scenario in scenarios]
    columns = ["Scenario", *[f"{peer.name}, µs" for peer in peers], *[f"Weir vs {name}" for name in others]]
    return table(columns, rows, texts=1), results.has_failed


def all_scenarios() -> list[Scenario]:
    """Forwarded and refused, for each protocol and number of requests at once."""
    kinds = {"forwarded": {}, "refused": {"limits": REFUSED, "status": 429}}
    scenarios = []
    for kind, options in kinds.items():
        for count in CONNECTIONS:
            scenarios.append(Scenario(f"HTTP/1, {count:,}, {kind}", connections=connections_that_fit(count), **options))
        for tls, (count, streams) in product([False, True], STREAMS):
            name = f"{'HTTP/2 over TLS' if tls else 'HTTP/2'}, {count} x {streams}, {kind}"
            scenarios.append(Scenario(name, connections=count, streams=streams, tls=tls, **options))
    return scenarios


def cost(bench: Bench, peer: Peer, scenario: Scenario, backend_port: int) -> Sample:
    if scenario.streams and not find("h2load"):
        raise LeftOut("h2load is not installed")
    with bench.serve(peer, scenario, backend_port) as running:
        load(running, bench, WARM_UP_S).run()
        cpu_before_s = cpu_s(running.worker_pid)
        seen = load(running, bench, bench.seconds).run()
        used_s = cpu_s(running.worker_pid) - cpu_before_s
        check_load(seen, running)
        if not scenario.streams:
            check_samples(running)
        per_request_s = used_s / seen.requests
        rss_mib = rss_bytes(running.worker_pid) / 2**20
        return Sample(seen.requests_per_s, per_request_s * 1e6, per_request_s * seen.requests_per_s, rss_mib)


def load(running: Running, bench: Bench, seconds: int) -> Wrk | H2load:
    """The program that sends the requests of a scenario."""
    scenario, cores = running.scenario, bench.load_cores
    if scenario.streams:
        return H2load(running.port, cores, seconds, scenario.connections, scenario.streams, scenario.tls)
    return Wrk(running.port, cores, seconds, scenario.connections, tls=scenario.tls)


def row(scenario: str, peers: list[str], others: list[str], results: Results) -> list[str]:
    figure = lambda sample: sample.cpu_us_per_request  # noqa: E731
    keys = [(scenario, peer) for peer in peers]
    cells = [results.spread(key, figure) if results.samples.get(key) else reason_cell(results, key) for key in keys]
    return [scenario, *cells, *[results.ratio((scenario, "Weir"), (scenario, other), figure) for other in others]]
