"""Starts Weir with the configuration of a recipe, for the tests of other clients in this folder."""

import contextlib
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = ROOT / "target" / "debug" / "weir"


def blocks(recipe, language):
    """The blocks of a language on the page of a recipe."""
    return blocks_of(ROOT / "docs" / "recipes" / f"{recipe}.md", language)


def blocks_of(page, language):
    """The blocks of a language on a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def until(what, is_so):
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def weir(recipe, tables=""):
    """Runs Weir, with more tables. Yields the process, and the ports of the limiter service and of the admin listener."""
    grpc, admin = free_port(), free_port()
    ports = {"127.0.0.1:8080": free_port(), "127.0.0.1:8081": grpc, "127.0.0.1:9901": admin}
    with configured(recipe, ports, [grpc, admin], tables=tables) as process:
        yield process, grpc, admin


@contextlib.contextmanager
def configured(recipe, ports, served, peers=None, tables=""):
    """Runs Weir with ports in place of addresses, and believes `peers`. Yields the process once it serves."""
    text = blocks(recipe, "toml")[0] + tables
    for address, port in ports.items():
        assert address in text or "8080" in address, address
        text = text.replace(address, f"127.0.0.1:{port}")
    if peers:
        text = re.sub(r"trusted_proxies = .*", f'trusted_proxies = ["{peers}"]', text)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "weir.toml"
        config.write_text(text)
        process = subprocess.Popen([WEIR, "run", "--config", config], stderr=subprocess.DEVNULL)
        try:
            until("Weir serves", lambda: all(answers(port) for port in served))
            yield process
        finally:
            process.kill()
            process.wait()


def metric(admin, series):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series + " "))
