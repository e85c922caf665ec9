"""Programs that send requests: wrk and h2load, as fast as they can, and the open-loop generator, at a rate."""

import contextlib
import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from processes import PeerFailed, find, pinned
from scenario import CONNECTIONS, HEADER, HEADER_VALUE, PATH

ROOT = Path(__file__).resolve().parents[2]
BUILD_GENERATOR = "cargo bench --bench latency --no-run"
BUILD_SERVICE = "cargo bench --bench service --no-run"
# wrk takes what is slower than this for broken; with many connections an answer takes its time.
WRK_TIMEOUT_S = 20
ENDS_WITHIN_S = 60
H2LOAD_ENDS_WITHIN_S = 10


@dataclass(frozen=True)
class Load:
    """What wrk or h2load saw."""

    requests: int
    requests_per_s: float
    not_2xx: int
    # In the words of the program; empty if there were none.
    socket_errors: str


@dataclass(frozen=True)
class Wrk:
    """How wrk is run."""

    port: int
    cores: str
    seconds: int
    connections: int = CONNECTIONS
    threads: int = 1
    tls: bool = False
    path: str = PATH
    # A Lua script that makes the requests, and what it is told.
    script: tuple[str, ...] = ()

    def command(self) -> list[str]:
        scheme = "https" if self.tls else "http"
        options = ["-t", str(self.threads), "-c", str(self.connections), "-d", f"{self.seconds}s"]
        options += ["--timeout", f"{WRK_TIMEOUT_S}s", "-H", f"{HEADER}: {HEADER_VALUE}"]
        options += ["-s", self.script[0]] if self.script else []
        url = f"{scheme}://127.0.0.1:{self.port}{self.path}"
        return pinned([find("wrk"), *options, url, *(["--", *self.script[1:]] if self.script else [])], self.cores)

    def run(self) -> Load:
        with self.running() as finish:
            return finish()

    @contextlib.contextmanager
    def running(self) -> Iterator:
        """Starts wrk; gives a function that waits for its end and tells what it saw."""
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

            def finish() -> Load:
                code = child.wait(self.seconds + ENDS_WITHIN_S)
                out.seek(0)
                said = out.read()
                if code != 0:
                    raise PeerFailed(f"wrk ended with {code}: {said.strip()}")
                return parse(said)

            try:
                yield finish
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()


@dataclass(frozen=True)
class H2load:
    """How h2load is run: streams of HTTP/2, with prior knowledge or by ALPN; without streams, HTTP/1."""

    port: int
    cores: str
    # As long, or as many requests.
    seconds: int
    connections: int
    streams: int
    tls: bool = False
    path: str = PATH
    requests: int = 0
    # Each request carries this file.
    upload: Path | None = None

    def run(self) -> Load:
        scheme = "https" if self.tls else "http"
        options = ["-t", "1", "-c", str(self.connections), "-m", str(self.streams or 1)]
        options += ["-n", str(self.requests)] if self.requests else ["-D", str(self.seconds)]
        options += [] if self.streams else ["--h1"]
        options += ["-d", str(self.upload)] if self.upload else []
        url = f"{scheme}://127.0.0.1:{self.port}{self.path}"
        command = pinned([find("h2load"), *options, "-H", f"{HEADER}: {HEADER_VALUE}", url], self.cores)
        timeout = ENDS_WITHIN_S if self.requests else self.seconds + H2LOAD_ENDS_WITHIN_S
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise PeerFailed("left h2load without an end") from error
        requests = re.search(r"requests: .* (\d+) done, .* (\d+) errored, (\d+) timeout", ran.stdout)
        statuses = re.search(r"status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", ran.stdout)
        rate = re.search(r"finished in .*?([\d.]+) req/s", ran.stdout)
        if ran.returncode != 0 or not (requests and statuses and rate):
            raise PeerFailed(f"h2load ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()}")
        done, errored, late = map(int, requests.groups())
        errors = f"{errored} errored, {late} timeout" if errored or late else ""
        return Load(done, float(rate.group(1)), sum(map(int, statuses.groups())), errors)


@dataclass(frozen=True)
class Grpc:
    """How the gRPC client is run: unary calls, or streams of many messages."""

    service: Path
    port: int
    cores: str
    seconds: int
    connections: int
    # Unary calls at once on each connection; 0 is one stream of messages.
    streams: int

    def run(self) -> Load:
        kind = ["calls", self.port, self.connections, self.streams, self.seconds]
        if not self.streams:
            kind = ["messages", self.port, self.connections, self.seconds]
        command = pinned([str(self.service), *map(str, kind)], self.cores)
        timeout = self.seconds + ENDS_WITHIN_S
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        if ran.returncode != 0:
            raise PeerFailed(f"the gRPC client ended with {ran.returncode}: {ran.stderr.strip()}")
        said = json.loads(ran.stdout)
        return Load(said["answered"], said["answered"] / said["seconds"], 0, "")


def parse(said: str) -> Load:
    """Reads wrk's report; the lines about errors are there only if there were some."""

    def number(pattern: str, default: str | None = None) -> str:
        found = re.search(pattern, said)
        if found is None and default is None:
            raise PeerFailed(f"wrk's report is not understood:\n{said}")
        return found.group(1) if found else default

    return Load(
        requests=int(number(r"(\d+) requests in")),
        requests_per_s=float(number(r"Requests/sec:\s+([\d.]+)")),
        not_2xx=int(number(r"Non-2xx or 3xx responses: (\d+)", "0")),
        socket_errors=number(r"Socket errors: (.*)", ""),
    )


def find_generator(given: Path | None) -> Path | None:
    """The open-loop generator: the one that is named, or the newest that cargo built."""
    if given:
        return given if os.access(given, os.X_OK) else None
    return newest_bench("latency")


def newest_bench(name: str) -> Path | None:
    """The program of a benchmark, if cargo built it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for path in target.glob(f"release/deps/{name}-*") if not path.suffix and os.access(path, os.X_OK)]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


def open_loop(generator: Path, port: int, cores: str, rate: int, group: int, seconds: int, warm_up_s: int) -> dict:
    """Runs the generator; gives its report, in which latencies are microseconds."""
    numbers = {"connections": CONNECTIONS, "rate": rate, "group": group, "seconds": seconds, "warm-up": warm_up_s}
    options = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
    options += ["--header", f"{HEADER}: {HEADER_VALUE}", "--json"]
    command = [str(generator), *options, f"http://127.0.0.1:{port}{PATH}"]
    ran = subprocess.run(
        pinned(command, cores),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + warm_up_s + ENDS_WITHIN_S,
    )
    try:
        said = json.loads(ran.stdout)
    except json.JSONDecodeError as error:
        raise PeerFailed(f"the generator ended with {ran.returncode}: {ran.stderr.strip()}") from error
    wrong = {name: said[name] for name in ["unanswered", "unexpected", "errors", "closed"] if said[name]}
    if ran.returncode != 0 or wrong:
        raise PeerFailed(f"at {rate} requests/s: {wrong or 'no request was answered'}")
    return said
