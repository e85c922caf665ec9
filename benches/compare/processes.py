"""Processes that are pinned to cores, waited for until they listen, and ended by PID; and what /proc says of one."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Iterator

READY_WITHIN_S = 10
END_WITHIN_S = 5
# From `linux/in.h`: the port is chosen on connecting. One that `bind` chose would be taken for all addresses, also
# while it waits for its end.
IP_BIND_ADDRESS_NO_PORT = 24
# Connections from one address, so that ports do not run short.
PER_SOURCE = 10_000
# The last ports that were free; whoever asked for one may not listen yet.
GIVEN: deque[int] = deque(maxlen=16)
# Beside the connections of a measurement: listeners, logs, libraries.
SPARE_DESCRIPTORS = 300


class PeerFailed(Exception):
    """A peer did not start, or did not answer as the scenario demands."""


class LeftOut(Exception):
    """Something cannot be measured here, and that is no failure."""


def find(program: str) -> str | None:
    """The path of a program; servers often live in sbin, which is not on every user's PATH."""
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port that nobody listens on now, and that nobody who asked shortly before is about to."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN:
            GIVEN.append(port)
            return port


def connect(port: int, number: int) -> socket.socket:
    """A connection of one of many clients; closing it leaves nothing behind that takes up its port."""
    connection = socket.socket()
    connection.settimeout(10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((f"127.0.0.{2 + number // PER_SOURCE}", 0))
    connection.connect(("127.0.0.1", port))
    return connection


@contextlib.contextmanager
def process(command: list[str], home: Path, cores: str, port: int) -> Iterator[int]:
    """A pinned process that listens on `port`; ended on the way out, however that is. Gives its PID."""
    log = home / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(pinned(command, cores), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until_ready(child, port, log)
        yield child.pid
    finally:
        end(child)


def pinned(command: list[str], cores: str) -> list[str]:
    """`taskset` replaces itself by the command, so the PID stays. Cores are a list like `0` or `0,1`."""
    return ["taskset", "--cpu-list", cores, *command]


def wait_until_ready(child: subprocess.Popen, port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while child.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    reason = "was not ready in time" if child.poll() is None else f"ended with {child.returncode}"
    raise PeerFailed(f"{reason}; its last words:\n{log.read_text(errors='replace')[-2000:]}")


def end(child: subprocess.Popen) -> None:
    """Asks the process and its children to stop, and insists after a while."""
    workers = children(child.pid)
    child.terminate()
    try:
        child.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.kill()
        child.wait()


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def only_child(pid: int) -> int:
    """The one worker of a master process."""
    workers = children(pid)
    if len(workers) != 1:
        raise PeerFailed(f"has {len(workers)} workers instead of one")
    return workers[0]


def cpu_s(pid: int) -> float:
    """User and system time of a process with all of its threads, also those that ended."""
    # The second field is a name in parentheses that may hold spaces: count from the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    utime, stime = int(fields[11]), int(fields[12])
    return (utime + stime) / os.sysconf("SC_CLK_TCK")


def exact_cpu_s(pid: int) -> float:
    """User and system time of the threads that a process has now. It counts nanoseconds, and not ticks of 10 ms."""
    used_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e9


def rss_bytes(pid: int) -> int:
    """Resident memory of a process now."""
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def raise_descriptors() -> None:
    """Lets this process, and so all that it starts, have as many descriptors as the system allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(wanted: int) -> int:
    """`wanted`, or what a proxy has descriptors for: one for the client's side and one for the backend's."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, (hard - SPARE_DESCRIPTORS) // 2)
