"""CPU time per long body: answers of 1 MiB and uploads of 100 MiB, over HTTP/1 and HTTP/2, with and without TLS."""

import contextlib
from functools import partial
from itertools import product
from typing import Iterator

from bench import Bench, Results, take_turns
from cpu import WARM_UP_S, Sample, cpu_table, sampled
from load import H2load
from peers import Peer
from processes import LeftOut, find, free_port, process
from scenario import Scenario

CONNECTIONS = 8
UPLOAD, UPLOAD_BYTES = "/upload", 100 << 20
PATHS = {"1 MiB answers": "/body", "100 MiB uploads": UPLOAD}
# Uploads of one measurement.
UPLOADS = 40
PEERS = ("nginx", "HAProxy", "Weir")


@contextlib.contextmanager
def serve_bodies(bench: Bench) -> Iterator[int]:
    """Runs the service of long bodies and gRPC; gives its port."""
    port, home = free_port(), bench.directory / "service"
    home.mkdir(exist_ok=True)
    with process([str(bench.service), "serve", str(port)], home, bench.load_cores, port):
        yield port


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    peers = [peer for peer in bench.peers if peer.name in PEERS]
    scenarios = []
    for (what, path), (streams, tls) in product(PATHS.items(), product([0, 1], [False, True])):
        name = f"{what}, HTTP/{2 if streams else 1}{' over TLS' if tls else ''}"
        scenarios.append(Scenario(name, path=path, connections=CONNECTIONS, streams=streams, tls=tls))
    upload = bench.directory / "upload"
    with upload.open("wb") as file:
        file.truncate(UPLOAD_BYTES)
    with serve_bodies(bench) as port:
        cells = {
            (scenario.name, peer.name): partial(cost, bench, peer, scenario, port)
            for scenario, peer in product(scenarios, peers)
        }
        take_turns(results, bench.rounds, cells)
    return cpu_table(results, [scenario.name for scenario in scenarios], peers, digits=0), results.has_failed


def cost(bench: Bench, peer: Peer, scenario: Scenario, backend_port: int) -> Sample:
    if not find("h2load"):
        raise LeftOut("h2load is not installed")
    with bench.serve(peer, scenario, backend_port) as running:
        load = partial(
            H2load, running.port, bench.load_cores, connections=CONNECTIONS, streams=scenario.streams,
            tls=scenario.tls, path=scenario.path,
        )
        if scenario.path == UPLOAD:
            load = partial(load, seconds=0, upload=bench.directory / "upload")
            load(requests=CONNECTIONS).run()
            return sampled(running, load(requests=UPLOADS))
        load(seconds=WARM_UP_S).run()
        return sampled(running, load(seconds=bench.seconds))
