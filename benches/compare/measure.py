"""One measurement: load from wrk, CPU time and memory from /proc, and a check that the answers are right."""

import http.client
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from peers import ANSWER, CONNECTIONS, Running, Scenario
from processes import PeerFailed, find, pinned

WARM_UP_S = 1
SAMPLES = 20
# A bucket refills while it is being hit: this share of answers may pass in the refused scenario.
ADMITTED_SHARE_MAX = 0.01


@dataclass(frozen=True)
class Sample:
    """What one round says about one peer."""

    requests_per_s: float
    cpu_us_per_request: float
    core_used: float
    rss_mib: float


@dataclass(frozen=True)
class Load:
    """What wrk saw."""

    requests: int
    requests_per_s: float
    not_2xx: int
    socket_errors: int


def measure(running: Running, scenario: Scenario, core: int, seconds: int) -> Sample:
    """Warms the peer up, loads it for `seconds`, and fails unless the answers were what they should be."""
    try:
        wrk(running.port, core, WARM_UP_S)
        cpu_before_s = cpu_s(running.worker_pid)
        load = wrk(running.port, core, seconds)
        used_s = cpu_s(running.worker_pid) - cpu_before_s
        memory_mib = rss_mib(running.worker_pid)
        check(load, scenario)
        check_samples(running.port, scenario)
    except (OSError, http.client.HTTPException) as error:
        raise PeerFailed(f"was lost: {error!r}") from error
    # wrk runs a little longer than it is told to; its rate knows how long it was.
    per_request_s = used_s / load.requests
    return Sample(load.requests_per_s, per_request_s * 1e6, per_request_s * load.requests_per_s, memory_mib)


def wrk(port: int, core: int, seconds: int) -> Load:
    command = [find("wrk"), "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds}s", f"http://127.0.0.1:{port}/report"]
    ran = subprocess.run(pinned(command, core), capture_output=True, text=True, check=False, timeout=seconds + 30)
    if ran.returncode != 0:
        raise PeerFailed(f"wrk ended with {ran.returncode}: {ran.stderr.strip()}")
    return parse(ran.stdout)


def parse(said: str) -> Load:
    """Reads wrk's report; the lines about errors are there only if there were some."""

    def number(pattern: str, default: str | None = None) -> str:
        found = re.search(pattern, said)
        if found is None and default is None:
            raise PeerFailed(f"wrk's report is not understood:\n{said}")
        return found.group(1) if found else default

    errors = number(r"Socket errors: (.*)", "")
    return Load(
        requests=int(number(r"(\d+) requests in")),
        requests_per_s=float(number(r"Requests/sec:\s+([\d.]+)")),
        not_2xx=int(number(r"Non-2xx or 3xx responses: (\d+)", "0")),
        socket_errors=sum(int(count) for count in re.findall(r"\d+", errors)),
    )


def check(load: Load, scenario: Scenario) -> None:
    """Holds what wrk counted against the scenario."""
    if load.requests == 0:
        raise PeerFailed("answered no request")
    if load.socket_errors:
        raise PeerFailed(f"broke {load.socket_errors} connections")
    if scenario.forwards and load.not_2xx:
        raise PeerFailed(f"{load.not_2xx} of {load.requests} answers were not 2xx")
    admitted = load.requests - load.not_2xx
    if not scenario.forwards and admitted > load.requests * ADMITTED_SHARE_MAX:
        raise PeerFailed(f"{admitted} of {load.requests} requests were not refused")


def check_samples(port: int, scenario: Scenario) -> None:
    """wrk tells only 2xx from the rest; the exact status, the body and keep-alive are seen in a few requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.connect()
    first_socket = connection.sock
    statuses = []
    for _ in range(SAMPLES):
        connection.request("GET", "/report")
        answer = connection.getresponse()
        statuses.append(answer.status)
        body = answer.read().decode(errors="replace")
        if answer.status == 200 and body != ANSWER:
            raise PeerFailed(f"changed the body: {body!r}")
    kept_alive = connection.sock is first_socket
    connection.close()
    # A bucket of 1/s may give out a unit or two meanwhile.
    if statuses.count(scenario.status) < (SAMPLES if scenario.forwards else SAMPLES - 2):
        raise PeerFailed(f"answered {statuses} where {scenario.status} was due")
    if not kept_alive:
        raise PeerFailed("closed a connection that should be kept alive")


def cpu_s(pid: int) -> float:
    """User and system time of a process with all of its threads, also those that ended."""
    # The second field is a name in parentheses that may hold spaces: count from the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    utime, stime = int(fields[11]), int(fields[12])
    return (utime + stime) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Resident memory of a process now."""
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE") / 2**20
