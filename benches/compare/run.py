#!/usr/bin/env python3
"""Compares what a rate-limited request costs in nginx, HAProxy and Weir. See benches/README.md."""

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import median
from typing import Callable

from measure import Sample, measure
from peers import CONNECTIONS, SCENARIOS, Peer, Scenario, find_peers, serve, serve_backend
from processes import PeerFailed, find

REFERENCE = "nginx"
Samples = dict[tuple[str, str], list[Sample]]


def main() -> int:
    arguments = parse_arguments()
    # An orderly end, with every process stopped, also when told to terminate.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peers, missing = find_peers(arguments.weir)
    missing += [program for program in ["wrk", "taskset"] if not find(program)]
    for name in missing:
        say(f"missing: {name}")
    if not all(find(program) for program in ["nginx", "wrk", "taskset"]):
        say("nothing to do without nginx (it is the backend too), wrk and taskset")
        return 2
    absent = {arguments.proxy_core, arguments.load_core} - os.sched_getaffinity(0)
    if absent:
        say(f"this process may not run on core {', '.join(map(str, sorted(absent)))}")
        return 2
    samples, failed = compare(peers, arguments)
    print(report(peers, samples, arguments))
    return 1 if failed else 0


def parse_arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weir", type=Path, default=root / "target/release/weir", help="the binary to measure")
    parser.add_argument("--rounds", type=positive, default=5, help="measurements of each peer (default 5)")
    parser.add_argument("--seconds", type=positive, default=4, help="length of one measurement (default 4)")
    parser.add_argument("--proxy-core", type=int, default=0, help="where the proxies run (default 0)")
    parser.add_argument("--load-core", type=int, default=1, help="where wrk and the backend run (default 1)")
    return parser.parse_args()


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def compare(peers: list[Peer], arguments: argparse.Namespace) -> tuple[Samples, bool]:
    """Measures round by round, so that what disturbs the machine for a while disturbs every peer.

    A peer that fails is left out of the rest of its scenario; the second value says whether one did.
    """
    samples: Samples = defaultdict(list)
    failed = set()
    with tempfile.TemporaryDirectory(prefix="weir-compare-") as name:
        directory = Path(name)
        # nginx workers drop root and must still reach their own files below.
        directory.chmod(0o755)
        with serve_backend(directory, arguments.load_core) as backend:
            for scenario, number, peer in product(SCENARIOS, range(1, arguments.rounds + 1), peers):
                key = scenario.name, peer.name
                if key in failed:
                    continue
                say(f"{scenario.name}, round {number} of {arguments.rounds}: {peer.name}")
                try:
                    with serve(peer, scenario, directory, arguments.proxy_core, backend) as running:
                        samples[key].append(measure(running, scenario, arguments.load_core, arguments.seconds))
                except PeerFailed as failure:
                    say(f"{peer.name} is left out: {failure}")
                    failed.add(key)
                    samples.pop(key, None)
    return samples, bool(failed)


def report(peers: list[Peer], samples: Samples, arguments: argparse.Namespace) -> str:
    """The results as Markdown."""
    lines = [
        f"{platform.system()} {platform.release()}, {cpu_model()}; {arguments.rounds} rounds of {arguments.seconds} s, "
        f"{CONNECTIONS} connections; " + "; ".join(peer.version for peer in peers) + ".",
        "",
        f"| Scenario | Proxy | CPU µs/request (min to max) | vs {REFERENCE} "
        f"| requests/s | vs {REFERENCE} | core used | RSS MiB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario in SCENARIOS:
        for peer in peers:
            lines.append(row(scenario, peer, samples))
    return "\n".join(lines)


def row(scenario: Scenario, peer: Peer, samples: Samples) -> str:
    mine = samples.get((scenario.name, peer.name))
    if not mine:
        return f"| {scenario.name} | {peer.name} | failed | | | | | |"
    reference = samples.get((scenario.name, REFERENCE))

    def middle(of: list[Sample], figure: Callable[[Sample], float]) -> float:
        return median(map(figure, of))

    def ratio(figure: Callable[[Sample], float]) -> str:
        return f"{middle(mine, figure) / middle(reference, figure):.2f}" if reference else ""

    costs = [sample.cpu_us_per_request for sample in mine]
    cells = [
        scenario.name,
        peer.name,
        f"{median(costs):.1f} ({min(costs):.1f} to {max(costs):.1f})",
        ratio(lambda sample: sample.cpu_us_per_request),
        f"{middle(mine, lambda sample: sample.requests_per_s):,.0f}",
        ratio(lambda sample: sample.requests_per_s),
        f"{middle(mine, lambda sample: sample.core_used):.0%}",
        f"{middle(mine, lambda sample: sample.rss_mib):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def say(text: str) -> None:
    """Progress goes to stderr, so that stdout is the table and nothing else."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
