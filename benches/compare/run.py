#!/usr/bin/env python3
"""Compares Weir with nginx, HAProxy and others. See benches/README.md.

cpu: CPU time per request. memory: bytes per idle connection and per held request. latency: what is added to a
request at half of saturation. flat: how CPU time grows with connections, limits and keys. scaling: two workers
against one. hold: the rate that a queue of waiting requests reaches. fleet: what it costs that replicas share limits.
protocols: CPU time per request by protocol and requests at once. grpc: CPU time per gRPC message. bodies: CPU time per
long body.
"""

import argparse
import importlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import Bench, say
from cpu import SCENARIOS
from load import BUILD_GENERATOR, BUILD_SERVICE, ROOT, find_generator, newest_bench
from peers import find_peers
from processes import find, raise_descriptors
from scenario import CONNECTIONS, Certificate

# Each is a module with a function `run`; the titles stand over the tables.
PARTS = {
    "cpu": "CPU per request",
    "memory": "Memory",
    "latency": "Latency",
    "flat": "How the cost grows",
    "scaling": "Two workers",
    "hold": "The rate of a queue",
    "fleet": "Limits of several replicas",
    "protocols": "Protocols and requests at once",
    "grpc": "gRPC",
    "bodies": "Long bodies",
}


def main() -> int:
    options = parse_arguments()
    # An orderly end, with every process stopped, also when told to terminate.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = list(PARTS) if "all" in options.parts else list(dict.fromkeys(options.parts))
    programs = {"weir": str(options.weir), "envoy": options.envoy, "traefik": options.traefik}
    peers, missing = find_peers(programs, options.peers)
    missing += [program for program in ["wrk", "taskset", "openssl"] if not find(program)]
    generator = find_generator(options.generator)
    if "latency" in parts and not generator:
        missing.append(f"the open-loop generator ({BUILD_GENERATOR})")
    service = newest_bench("service")
    if {"grpc", "bodies"} & {*parts} and not service:
        say(f"missing: the service of long bodies and gRPC ({BUILD_SERVICE})")
        return 2
    for name in missing:
        say(f"missing: {name}")
    if not peers or not all(find(program) for program in ["nginx", "wrk", "taskset"]):
        say("nothing to do without a proxy, nginx (it is the backend too), wrk and taskset")
        return 2
    absent = {options.proxy_core, options.load_core} - os.sched_getaffinity(0)
    if absent:
        say(f"this process may not run on core {', '.join(map(str, sorted(absent)))}")
        return 2
    raise_descriptors()
    print(
        f"{machine()}; {options.rounds} rounds of {options.seconds} s, {CONNECTIONS} connections where nothing else is "
        f"said; {'; '.join(peer.version for peer in peers)}.",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="weir-compare-") as name:
        directory = Path(name)
        # nginx workers drop root and must still reach their own files below.
        directory.chmod(0o755)
        bench = Bench(
            peers,
            directory,
            options.rounds,
            options.seconds,
            str(options.proxy_core),
            str(options.load_core),
            self_signed(directory),
            generator,
            service,
            options,
        )
        has_failed = [run_part(part, bench) for part in parts]
    return 1 if any(has_failed) else 0


def run_part(part: str, bench: Bench) -> bool:
    """Prints a part's tables; says whether something failed."""
    say(f"{part} begins")
    markdown, has_failed = importlib.import_module(part).run(bench)
    print(f"\n##### {PARTS[part]}\n\n{markdown}", flush=True)
    return has_failed


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("parts", nargs="*", default=["cpu"], metavar="PART", help=f"{', '.join(PARTS)} or all (default cpu)")
    add("--weir", type=Path, default=ROOT / "target/dist/weir", help="the binary to measure")
    add("--envoy", metavar="PATH", help="Envoy, if it is not on the PATH")
    add("--traefik", metavar="PATH", help="Traefik, if it is not on the PATH")
    add("--generator", type=Path, metavar="PATH", help=f"the open-loop generator ({BUILD_GENERATOR})")
    add("--peers", type=names, default=[], metavar="NAMES", help="only these, as in nginx,weir")
    add("--rounds", type=positive, default=5, help="measurements of each peer (default 5)")
    add("--seconds", type=positive, default=4, help="length of one measurement (default 4)")
    add("--proxy-core", type=int, default=0, help="where the proxies run (default 0)")
    add("--load-core", type=int, default=1, help="where the load and the backend run (default 1)")
    add("--scenario", action="append", choices=list(SCENARIOS), help="cpu: only this; may be given several times")
    add("--only", metavar="TEXT", help="protocols, fleet: only scenarios whose name contains this")
    add("--idle", type=positive, default=10_000, help="memory: idle connections (default 10000)")
    add("--held", type=positive, default=100_000, help="memory: held requests (default 100000)")
    add("--rate", type=positive, help="latency: requests/s (default half of what the slowest proxy can do); fleet: 10000")
    add("--group", type=positive, default=1, help="latency: requests that are due at once (default 1)")
    add("--axis", action="append", choices=["connections", "limits", "keys"], help="flat: only this; may be repeated")
    add("--keys", type=numbers, default=[10_000, 10_000_000], help="flat: numbers of keys (default 10000,10000000)")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {*PARTS, "all"}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return arguments


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    return text.lower().split(",")


def self_signed(directory: Path) -> Certificate | None:
    """A certificate for a day, or none without openssl."""
    openssl = find("openssl")
    if not openssl:
        return None
    certificate = Certificate(directory / "a.pem", directory / "a.key", directory / "both.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(certificate.key), "-out", str(certificate.chain), "-days", "1"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if ran.returncode != 0:
        say(f"openssl made no certificate: {ran.stderr.strip()}")
        return None
    certificate.both.write_text(certificate.chain.read_text() + certificate.key.read_text())
    return certificate


def machine() -> str:
    """The system, the processor, and how much of it this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = len(os.sched_getaffinity(0))
    processor = models[0] if models else platform.machine()
    return f"{platform.system()} {platform.release()}, {processor}, {cores} cores, {memory_gib:.0f} GiB"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
