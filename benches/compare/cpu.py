"""CPU time per request: forwarded under one limit and two, with TLS, with an access log, and refused."""

from dataclasses import dataclass
from itertools import product

from answers import check_load, check_samples
from bench import REFERENCE, Bench, Results, reason_cell, table, take_turns
from load import Grpc, H2load, Wrk
from peers import Peer, Running
from processes import LeftOut, cpu_s, rss_bytes
from scenario import PER_IP, Limit, Scenario

WARM_UP_S = 1
# The peers that write lines to files without another process.
LOGGING = ("nginx", "Weir")

SCENARIOS = {
    "one-limit": Scenario("forwarded, one limit", (PER_IP,)),
    "two-limits": Scenario("forwarded, two limits"),
    "tls": Scenario("forwarded, two limits, TLS", tls=True),
    "logged": Scenario("forwarded, two limits, access log as combined", access_log="combined"),
    "logged-json": Scenario("forwarded, two limits, access log as JSON", access_log="json"),
    "refused": Scenario("refused", (Limit("per-ip", rate_per_s=1),), status=429),
}


@dataclass(frozen=True)
class Sample:
    """What one round says about one peer."""

    requests_per_s: float
    cpu_us_per_request: float
    core_used: float
    rss_mib: float


def run(bench: Bench) -> tuple[str, bool]:
    """The table, and whether a peer failed."""
    results = Results()
    scenarios = [scenario for name, scenario in SCENARIOS.items() if name in (bench.options.scenario or SCENARIOS)]
    with bench.serve_backend() as backend_port:

        def cell(scenario: Scenario, peer):
            def measure_once() -> Sample:
                if scenario.access_log and peer.name not in LOGGING:
                    raise LeftOut("has no comparable log in a file")
                with bench.serve(peer, scenario, backend_port) as running:
                    return measure(running, bench)

            return measure_once

        for scenario in scenarios:
            cells = {(scenario.name, peer.name): cell(scenario, peer) for peer in bench.peers}
            take_turns(results, bench.rounds, cells)
    rows = [row(scenario, peer.name, results) for scenario, peer in product(scenarios, bench.peers)]
    columns = ["Scenario", "Proxy", "CPU µs/request (min to max)", f"vs {REFERENCE}"]
    columns += ["requests/s", f"vs {REFERENCE}", "core used", "RSS MiB"]
    return table(columns, rows, texts=2), results.has_failed


def measure(running: Running, bench: Bench, **options) -> Sample:
    """Warms the peer up, loads it, and fails unless the answers were what they should be."""
    tls = running.scenario.tls
    Wrk(running.port, bench.load_cores, WARM_UP_S, tls=tls, **options).run()
    sample = sampled(running, Wrk(running.port, bench.load_cores, bench.seconds, tls=tls, **options))
    check_samples(running)
    return sample


def sampled(running: Running, load: Wrk | H2load | Grpc) -> Sample:
    """What a load costs a peer; fails unless its statuses were what they should be."""
    cpu_before_s = cpu_s(running.worker_pid)
    seen = load.run()
    used_s = cpu_s(running.worker_pid) - cpu_before_s
    rss = rss_bytes(running.worker_pid)
    check_load(seen, running)
    # A load runs a little longer than it is told to; its rate knows how long it was.
    per_request_s = used_s / seen.requests
    return Sample(seen.requests_per_s, per_request_s * 1e6, per_request_s * seen.requests_per_s, rss / 2**20)


def cpu_table(results: Results, scenarios: list[str], peers: list[Peer], digits: int = 1) -> str:
    """One row for each scenario: the CPU time of each peer, and the ratios of Weir to the others."""
    figure = lambda sample: sample.cpu_us_per_request  # noqa: E731
    others = [peer.name for peer in peers if peer.name != "Weir"]
    rows = []
    for scenario in scenarios:
        keys = [(scenario, peer.name) for peer in peers]
        cells = [
            results.spread(key, figure, digits) if results.samples.get(key) else reason_cell(results, key) for key in keys
        ]
        ratios = [results.ratio((scenario, "Weir"), (scenario, other), figure) for other in others]
        rows.append([scenario, *cells, *ratios])
    columns = ["Scenario", *[f"{peer.name}, µs" for peer in peers], *[f"Weir vs {name}" for name in others]]
    return table(columns, rows, texts=1)


def row(scenario: Scenario, name: str, results: Results) -> list[str]:
    key, reference = (scenario.name, name), (scenario.name, REFERENCE)
    if not results.samples.get(key):
        return [scenario.name, name, reason_cell(results, key)]
    return [
        scenario.name,
        name,
        results.spread(key, lambda sample: sample.cpu_us_per_request),
        results.ratio(key, reference, lambda sample: sample.cpu_us_per_request),
        f"{results.median(key, lambda sample: sample.requests_per_s):,.0f}",
        results.ratio(key, reference, lambda sample: sample.requests_per_s),
        f"{results.median(key, lambda sample: sample.core_used):.0%}",
        f"{results.median(key, lambda sample: sample.rss_mib):.1f}",
    ]
