"""How CPU time per request grows: with connections, with configured limits, and with keys."""

import contextlib
import http.client
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from answers import check_load, check_samples, metric
from bench import REFERENCE, Bench, Results, noted, reason_cell, say, table, take_turns
from cpu import WARM_UP_S, measure
from load import Wrk
from memory import idle
from peers import Peer, Running
from processes import PeerFailed, connections_that_fit, cpu_s, rss_bytes
from scenario import HEADER, PER_IP, PER_KEY, Scenario

CONNECTIONS = [10, 1_000, 10_000]
# As many as the other parts have.
BUSY = 64
# Opening connections costs more than requests: this long after the start they should all be there.
RAMP_S, RAMP_MANY_S, MANY = 1, 4, 5_000
# wrk goes on after the window, so that the window has no end of a run in it.
TAIL_S = 2

LIMITS = [1, 2, 10, 100, 1_000]

# The `match` of the limits that do not match, by the property in which they differ.
OTHERS = {
    "paths": 'path = "/other-{0}/{{id}}"',
    "hosts": 'host = "{0}.other.test"',
    "header names": 'header = {{ x-other-{0} = "*" }}',
    "header values": f'header = {{{{ {HEADER} = "other-{{0}}" }}}}',
    "header values of one path": f'path = "/{{{{*rest}}}}", header = {{{{ {HEADER} = "other-{{0}}" }}}}',
}

KEYS_SCRIPT = str(Path(__file__).with_name("keys.lua"))
# A prime, so that steps visit all keys, in no order a cache could guess.
STRIDE = 7_919
FILL_PATH, FILL_DEPTH, FILL_STEP_S = "/fill", 32, 5
# Keys that a fill may miss: the last ones of each wrk may be sent and not counted.
MISSED_SHARE_MAX = 0.001


@dataclass(frozen=True)
class Cost:
    """CPU time of a request, and the share of the core that was used."""

    cpu_us_per_request: float
    core_used: float
    rss_mib: float


def run(bench: Bench) -> tuple[str, bool]:
    """The tables, and whether a peer failed."""
    axes = {"connections": connections, "limits": limits, "keys": keys}
    chosen = [axis for name, axis in axes.items() if name in (bench.options.axis or axes)]
    ran = [axis(bench) for axis in chosen]
    return "\n\n".join(markdown for markdown, _ in ran), any(has_failed for _, has_failed in ran)


def connections(bench: Bench) -> tuple[str, bool]:
    """Two tables: all connections are busy, or a few are and the others idle."""
    results = Results()
    counts = list(dict.fromkeys(connections_that_fit(count) for count in CONNECTIONS))
    peers = [peer for peer in bench.peers if peer.name in (REFERENCE, "Weir")]
    kinds = {f"{count:,}, all busy": (count, count) for count in counts}
    kinds |= {f"{count:,}, {BUSY} busy": (count, BUSY) for count in [BUSY, *counts[1:]]}
    with bench.serve_backend(max(counts)) as backend_port:
        for name, (count, busy) in kinds.items():
            scenario = Scenario(name, connections=count)
            cells = {(name, peer.name): partial(load, bench, peer, scenario, busy, backend_port) for peer in peers}
            take_turns(results, bench.rounds, cells)
    names, rows = list(kinds), []
    for first, group in [(names[0], names[: len(counts)]), (names[len(counts)], names[len(counts) :])]:
        rows += [row((name, peer.name), results, (first, peer.name)) for peer in peers for name in group]
    return table(columns("Connections", "Proxy", "fewest"), rows, texts=2), results.has_failed


def load(bench: Bench, peer: Peer, scenario: Scenario, busy: int, backend_port: int) -> Cost:
    """wrk has some connections busy, the others are idle; requests are those that the backend counts in a window."""
    ramp_s = RAMP_MANY_S if busy >= MANY else RAMP_S
    with bench.serve(peer, scenario, backend_port) as running, idle(running, scenario.connections - busy):
        wrk = Wrk(running.port, bench.load_cores, ramp_s + bench.seconds + TAIL_S, busy)
        with wrk.running() as finish:
            time.sleep(ramp_s)
            before, before_s, began = backend_requests(backend_port), cpu_s(running.worker_pid), time.monotonic()
            time.sleep(bench.seconds)
            after, after_s, ended = backend_requests(backend_port), cpu_s(running.worker_pid), time.monotonic()
            rss = rss_bytes(running.worker_pid)
            check_load(finish(), running)
        check_samples(running)
    used_s = after_s - before_s
    return Cost(used_s / (after - before) * 1e6, used_s / (ended - began), rss / 2**20)


def backend_requests(port: int) -> int:
    """All that the backend answered so far."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asking:
        asking.request("GET", "/status")
        said = asking.getresponse().read().decode()
    found = re.search(r"\d+ \d+ (\d+)", said)
    if not found:
        raise PeerFailed(f"the backend's status is not understood: {said!r}")
    return int(found.group(1))


def limits(bench: Bench) -> tuple[str, bool]:
    """Of the configured limits two match (of one, one); the others differ from the request in one property."""
    results = Results()
    weir = bench.peer("Weir")
    if not weir:
        return "Limits: left out without Weir.", False
    scenarios = {(f"{count:,}", "paths"): limited(count, "paths") for count in LIMITS}
    scenarios |= {(f"{LIMITS[-1]:,}", other): limited(LIMITS[-1], other) for other in OTHERS}
    with bench.serve_backend() as backend_port:

        def loaded(scenario: Scenario):
            with bench.serve(weir, scenario, backend_port) as running:
                return measure(running, bench)

        cells = {key: partial(loaded, scenario) for key, scenario in scenarios.items()}
        take_turns(results, bench.rounds, cells)
    two = f"{LIMITS[1]:,}", "paths"
    rows = [row(key, results, two) for key in scenarios]
    return table(columns("Limits", "the others are for other", two[0]), rows, texts=2), results.has_failed


def limited(count: int, other: str) -> Scenario:
    matching = (PER_IP, PER_KEY)[:count]
    others = [
        f"""
[[limit]]
name = "other-{number}"
match = {{ {OTHERS[other].format(number)} }}
key = ["ip"]
rate = "1/s"
"""
        for number in range(count - len(matching))
    ]
    return Scenario(f"{count:,} limits", matching, weir_toml="".join(others))


def keys(bench: Bench) -> tuple[str, bool]:
    """Every request has another key than the last one. All of the keys are there before the first measurement."""
    results = Results()
    weir = bench.peer("Weir")
    if not weir:
        return "Keys: left out without Weir.", False
    empty_mib = {}
    with bench.serve_backend() as backend_port, contextlib.ExitStack() as filled:
        cells = {}
        for count in bench.options.keys:
            key = f"{count:,}", weir.name
            with noted(results, key):
                # In folders of their own: they run side by side, and one is idle while the other is measured.
                peer = Peer(**{**vars(weir), "name": f"{weir.name}-{count}"})
                running = filled.enter_context(bench.serve(peer, keyed(count), backend_port))
                # What a first load takes for good is not the keys'.
                Wrk(running.port, bench.load_cores, WARM_UP_S).run()
                empty_mib[key] = rss_bytes(running.worker_pid) / 2**20
                fill(running, bench, count)
                cells[key] = partial(visit, running, bench, count)
        take_turns(results, bench.rounds, cells)
    first = f"{bench.options.keys[0]:,}", weir.name
    rows = []
    for count in bench.options.keys:
        key = f"{count:,}", weir.name
        grown = results.median(key, lambda sample: sample.rss_mib)
        each = f"{(grown - empty_mib[key]) * 2**20 / count:,.0f}" if grown else ""
        rows.append(row(key, results, first) + ([each] if grown else []))
    heads = [*columns("Keys", "Proxy", first[0]), "bytes/key"]
    return table(heads, rows, texts=2), results.has_failed


def keyed(count: int) -> Scenario:
    """A limit by key that no key reaches, and that takes hours to forget one.

    Requests to `FILL_PATH` are charged to their key and then refused by another limit, which is the fastest way to
    fill the table: at the arrival stage what is charged stays charged.
    """
    toml = f"""
[[limit]]
name = "by-key"
stage = "arrival"
key = ["header:{HEADER}"]
rate = "1/h"
burst = 1000000
max_keys = {2 * count}

[[limit]]
name = "fill"
match = {{ path = "{FILL_PATH}" }}
key = []
rate = "1/day"
"""
    return Scenario(f"{count:,} keys", (PER_IP,), weir_toml=toml)


def fill(running: Running, bench: Bench, count: int) -> None:
    """Sends every key once, or a little more often."""
    say(f"filling {count:,} keys")
    sent = 0
    while sent < count:
        script = (KEYS_SCRIPT, str(sent), str(count), "1", str(FILL_DEPTH))
        # A table that is small is full at once.
        seconds = FILL_STEP_S if count > 1_000_000 else 1
        sent += Wrk(running.port, bench.load_cores, seconds, path=FILL_PATH, script=script).run().requests
    known = metric(running, "weir_keys")
    if known < count * (1 - MISSED_SHARE_MAX):
        raise PeerFailed(f"remembers {known:,.0f} keys instead of {count:,}")


def visit(running: Running, bench: Bench, count: int):
    return measure(running, bench, script=(KEYS_SCRIPT, "0", str(count), str(STRIDE), "1"))


def columns(what: str, second: str, reference: str) -> list[str]:
    return [what, second, "CPU µs/request (min to max)", f"vs {reference}", "core used", "RSS MiB"]


def row(key: tuple[str, str], results: Results, reference: tuple[str, str]) -> list[str]:
    if not results.samples.get(key):
        return [*key, reason_cell(results, key)]
    return [
        *key,
        results.spread(key, lambda sample: sample.cpu_us_per_request),
        results.ratio(key, reference, lambda sample: sample.cpu_us_per_request),
        f"{results.median(key, lambda sample: sample.core_used):.0%}",
        f"{results.median(key, lambda sample: sample.rss_mib):.1f}",
    ]
