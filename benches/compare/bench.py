"""What all parts share: the machine, turns that are taken, and tables."""

import contextlib
import http.client
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Callable, Hashable, Iterator

from answers import wait_until_routed
from peers import Peer, Running, serve, serve_backend
from processes import LeftOut, PeerFailed
from scenario import Certificate, Scenario

REFERENCE = "nginx"


@dataclass(frozen=True)
class Bench:
    """One run of the command."""

    peers: list[Peer]
    # Where everything lives that is written.
    directory: Path
    rounds: int
    seconds: int
    # Core lists of taskset.
    proxy_cores: str
    load_cores: str
    certificate: Certificate | None
    # The open-loop generator.
    generator: Path | None
    # The service of long bodies and gRPC, which is its gRPC client too.
    service: Path | None
    # What was asked for on the command line, for the parts that have options of their own.
    options: Any

    def peer(self, name: str) -> Peer | None:
        return next((peer for peer in self.peers if peer.name == name), None)

    @contextlib.contextmanager
    def serve_backend(self, connections: int = 1024) -> Iterator[int]:
        with serve_backend(self.directory, self.load_cores, connections) as port:
            yield port

    @contextlib.contextmanager
    def serve(self, peer: Peer, scenario: Scenario, backend_port: int, cores: str | None = None) -> Iterator[Running]:
        cores = cores or self.proxy_cores
        with serve(peer, scenario, self.directory, cores, backend_port, self.certificate) as running:
            wait_until_routed(running)
            yield running


@dataclass
class Results:
    """What came of a part: samples by what was measured, or the reason why there are none."""

    samples: dict[Hashable, list[Any]] = field(default_factory=dict)
    reasons: dict[Hashable, str] = field(default_factory=dict)
    has_failed: bool = False

    def median(self, key: Hashable, figure: Callable[[Any], float]) -> float | None:
        """The median of a figure of the samples, if there are any."""
        return median(map(figure, self.samples[key])) if self.samples.get(key) else None

    def spread(self, key: Hashable, figure: Callable[[Any], float], digits: int = 1) -> str:
        """The median, and the range of the rounds."""
        values = [figure(sample) for sample in self.samples[key]]
        return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"

    def ratio(self, key: Hashable, reference: Hashable, figure: Callable[[Any], float]) -> str:
        """The ratio of two medians."""
        mine, other = self.median(key, figure), self.median(reference, figure)
        return f"{mine / other:.2f}" if mine is not None and other else ""


def take_turns(results: Results, rounds: int, cells: dict[Hashable, Callable[[], Any]]) -> None:
    """Measures each cell once in each round, so that what disturbs the machine for a while disturbs them all.

    A cell that fails is left out of the rest, and loses its samples.
    """
    for number in range(1, rounds + 1):
        for key, measure in cells.items():
            if key in results.reasons:
                continue
            name = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            say(f"round {number} of {rounds}: {name}")
            with noted(results, key):
                results.samples.setdefault(key, []).append(measure())


@contextlib.contextmanager
def noted(results: Results, key: Hashable) -> Iterator[None]:
    """Keeps the reason if what is measured fails or has to be left out."""
    try:
        yield
    except LeftOut as reason:
        results.reasons[key] = f"left out: {reason}"
    except PeerFailed as failure:
        results.reasons[key], results.has_failed = f"failed: {failure}", True
    except (OSError, http.client.HTTPException) as error:
        results.reasons[key], results.has_failed = f"failed: was lost: {error!r}", True
    if reason := results.reasons.get(key):
        say(f"{key}: {reason}")
        results.samples.pop(key, None)


def table(columns: list[str], rows: list[list[str]], texts: int) -> str:
    """Markdown; the first `texts` columns are text, the others numbers. Rows that are short are filled up."""
    lines = [columns, ["---"] * texts + ["---:"] * (len(columns) - texts)]
    lines += [row + [""] * (len(columns) - len(row)) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def reason_cell(results: Results, key: Hashable) -> str:
    """Why a row has no figures, on one line."""
    return results.reasons.get(key, "not measured").splitlines()[0].rstrip(";: ").replace("|", "/")[:160]


def say(text: str) -> None:
    """Progress goes to stderr, so that stdout is the tables and nothing else."""
    print(text, file=sys.stderr, flush=True)
