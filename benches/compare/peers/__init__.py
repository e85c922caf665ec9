"""The proxies under comparison: which of them are here, and how one is started."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

from processes import LeftOut, find, free_port, only_child, process
from scenario import Certificate, Scenario, Site

from . import envoy, haproxy, nginx, traefik, weir


@dataclass(frozen=True)
class Peer:
    """A proxy: how its configuration reads and which command runs it."""

    name: str
    program: str
    version: str
    # The files of a configuration, by name.
    configure: Callable[[Site], dict[str, str]]
    # The command, given the program and the folder of those files.
    command: Callable[[str, Path], list[str]]
    # The process that carries the traffic is a child of the one that is started.
    has_master: bool = False
    # Why the program does not take the configuration in this folder, if so.
    refusal: Callable[[str, Path], str | None] | None = None


@dataclass(frozen=True)
class Running:
    """A started peer: where it listens, and the process whose CPU time and memory count."""

    peer: Peer
    port: int
    admin_port: int
    worker_pid: int
    scenario: Scenario


def find_peers(programs: dict[str, str | None], only: list[str]) -> tuple[list[Peer], list[str]]:
    """The peers of this machine, and what is missing.

    `programs` has paths for some of them, by name; the others are looked for. `only` has names in small letters, and
    if it is empty all are wanted.
    """
    peers, missing = [], []
    for name, module, is_optional in [
        ("nginx", nginx, False),
        ("HAProxy", haproxy, False),
        ("Envoy", envoy, True),
        ("Traefik", traefik, True),
        ("Weir", weir, False),
    ]:
        wanted = programs.get(name.lower())
        if only and name.lower() not in only:
            continue
        program = find(wanted or name.lower())
        if program:
            peers.append(
                Peer(
                    name,
                    os.path.abspath(program),
                    version(name, program, module.VERSION_ARGUMENT),
                    module.configure,
                    module.command,
                    has_master=getattr(module, "HAS_MASTER", False),
                    refusal=getattr(module, "refusal", None),
                )
            )
        elif wanted or not is_optional:
            missing.append(f"{name} ({wanted or name.lower()})")
    return peers, missing


def version(name: str, program: str, argument: str) -> str:
    """The first line that a program says about itself."""
    try:
        said = subprocess.run([program, argument], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return f"{name} (version unknown)"
    lines = (said.stdout or said.stderr).strip().splitlines()
    line = lines[0].removeprefix("nginx version: ").strip() if lines else "(version unknown)"
    return line if name.lower() in line.lower() else f"{name} {line}"


@contextlib.contextmanager
def serve_backend(directory: Path, cores: str, connections: int = 1024, workers: int = 1) -> Iterator[int]:
    """Runs the backend; gives its port."""
    program = find("nginx")
    port = free_port()
    home = directory / "backend"
    write(home, nginx.backend(home, port, connections, workers))
    with process(nginx.command(program, home), home, cores, port):
        yield port


@contextlib.contextmanager
def serve(
    peer: Peer, scenario: Scenario, directory: Path, cores: str, backend_port: int, certificate: Certificate | None
) -> Iterator[Running]:
    """Runs a peer for one measurement; gives a `Running`."""
    if scenario.tls and not certificate:
        raise LeftOut("there is no certificate without openssl")
    site = Site(directory / peer.name.lower(), free_port(), free_port(), backend_port, scenario, certificate)
    write(site.home, peer.configure(site))
    if peer.refusal and (reason := peer.refusal(peer.program, site.home)):
        raise LeftOut(f"this binary refuses the configuration: {reason}")
    with process(peer.command(peer.program, site.home), site.home, cores, site.port) as pid:
        worker_pid = only_child(pid) if peer.has_master else pid
        yield Running(peer, site.port, site.admin_port, worker_pid, scenario)


def write(home: Path, files: dict[str, str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (home / name).write_text(text)
