"""CPU time per request by protocol and by requests at once, with Weir's default pool and bounds."""

from functools import partial
from itertools import product

from answers import check_samples
from bench import Bench, Results, take_turns
from cpu import WARM_UP_S, Sample, cpu_table, sampled
from load import H2load, Wrk
from peers import Peer, Running
from processes import LeftOut, connections_that_fit, find
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
    return cpu_table(results, [scenario.name for scenario in scenarios], peers), results.has_failed


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
        sample = sampled(running, load(running, bench, bench.seconds))
        if not scenario.streams:
            check_samples(running)
        return sample


def load(running: Running, bench: Bench, seconds: int) -> Wrk | H2load:
    """The program that sends the requests of a scenario."""
    scenario, cores = running.scenario, bench.load_cores
    if scenario.streams:
        return H2load(running.port, cores, seconds, scenario.connections, scenario.streams, scenario.tls)
    return Wrk(running.port, cores, seconds, scenario.connections, tls=scenario.tls)
