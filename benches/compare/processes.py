"""Processes that are pinned to a core, waited for until they listen, and ended by PID."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

READY_WITHIN_S = 10
END_WITHIN_S = 5


class PeerFailed(Exception):
    """A peer did not start, or did not answer as the scenario demands."""


def find(program: str) -> str | None:
    """The path of a program; servers often live in sbin, which is not on every user's PATH."""
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(command: list[str], home: Path, core: int, port: int):
    """A pinned process that listens on `port`; ended on the way out, however that is. Gives its PID."""
    log = home / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(pinned(command, core), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until_ready(child, port, log)
        yield child.pid
    finally:
        end(child)


def pinned(command: list[str], core: int) -> list[str]:
    """`taskset` replaces itself by the command, so the PID stays."""
    return ["taskset", "--cpu-list", str(core), *command]


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
