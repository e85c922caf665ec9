"""CPU time per gRPC message: unary calls by calls at once, and streams of ten thousand messages."""

from functools import partial
from itertools import product

from bench import Bench, Results, take_turns
from bodies import serve_bodies
from cpu import WARM_UP_S, Sample, cpu_table, sampled
from load import Grpc
from peers import Peer
from scenario import Scenario

# Connections, and calls at once on each.
CALLS = [(1, 1), (4, 8), (16, 16), (64, 64)]
# Connections with one stream of messages each.
MESSAGES = [1, 16]
PEERS = ("nginx", "HAProxy", "Weir")


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in PEERS]
    scenarios = {}
    for count, calls in CALLS:
        name = f"unary calls, {count} x {calls}"
        scenarios[name] = Scenario(name, connections=count, streams=calls, grpc=True), calls
    for count in MESSAGES:
        name = f"messages, {count} x one stream of 10,000"
        scenarios[name] = Scenario(name, connections=count, streams=1, grpc=True), 0
    with serve_bodies(bench) as port:
        cells = {
            (scenario.name, peer.name): partial(cost, bench, peer, scenario, calls, port)
            for (scenario, calls), peer in product(scenarios.values(), peers)
        }
        take_turns(results, bench.rounds, cells)
    return cpu_table(results, list(scenarios), peers, digits=2), results.has_failed


def cost(bench: Bench, peer: Peer, scenario: Scenario, calls: int, backend_port: int) -> Sample:
    with bench.serve(peer, scenario, backend_port) as running:

        def load(seconds: int) -> Grpc:
            return Grpc(bench.service, running.port, bench.load_cores, seconds, scenario.connections, calls)

        load(WARM_UP_S).run()
        return sampled(running, load(bench.seconds))
