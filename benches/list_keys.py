#!/usr/bin/env python3
"""Lists a million limited keys by pages: the time of each page, and the CPU time that Weir takes for it.

    cargo build --profile dist
    benches/list_keys.py [--weir PATH] [--keys N]
"""

import argparse
import html
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time

PAGES = 40
CONFIG = """
[server]
listen = "127.0.0.1:FRONT"
[upstream]
url = "http://127.0.0.1:1"
[admin]
listen = "127.0.0.1:ADMIN"
[log]
level = "error"
[identity.seller]
header = "x-seller"
[[limit]]
name = "per-seller"
key = ["seller"]
rate = "1/d"
max_keys = KEYS
"""
LISTS = {
    "`GET /v1/keys`, 50 keys": "/v1/keys?limit=per-seller&limited=true&n=50",
    "`GET /v1/keys`, 1000 keys": "/v1/keys?limit=per-seller&limited=true&n=1000",
    "the page of the limit": "/limit?name=per-seller",
}


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def connected(port):
    end = time.monotonic() + 20
    while True:
        admin = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            ask(admin, "GET", "/readyz")
            return admin
        except OSError:
            assert time.monotonic() < end, "Weir does not answer"
            time.sleep(0.05)


def ask(admin, method, path, body=None):
    admin.request(method, path, body, {"content-type": "application/json"} if body else {})
    answer = admin.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, (answer.status, text[:300])
    return text


def fill(admin, keys):
    """One unit of each key, which is all that its limit gives in a day."""
    for first in range(0, keys, 1000):
        charge = lambda number: {"limit": "per-seller", "key": {"seller": f"s{number}"}, "units": 1}
        ask(admin, "POST", "/v1/spend", json.dumps([charge(number) for number in range(first, first + 1000)]))


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(admin, process, path):
    """Asks for pages one after another. Returns the milliseconds of each, and the CPU milliseconds of one."""
    after, waits, began = "", [], cpu_s(process)
    for _ in range(PAGES):
        sent = time.perf_counter()
        text = ask(admin, "GET", path + after)
        waits.append((time.perf_counter() - sent) * 1000)
        following = re.search(r'"next":"([^"]+)"', text) or re.search(r'after=([^"]+)"', text)
        after = f"&after={html.unescape(following[1])}"
    return sorted(waits), (cpu_s(process) - began) * 1000 / PAGES


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--weir", default=pathlib.Path(__file__).parents[1] / "target" / "dist" / "weir")
    options.add_argument("--keys", type=int, default=1_000_000)
    options = options.parse_args()
    ports = {"FRONT": str(free_port()), "ADMIN": str(free_port())}
    text = CONFIG.replace("KEYS", str(2 * options.keys))
    for name, port in ports.items():
        text = text.replace(name, port)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "weir.toml"
        file.write_text(text)
        process = subprocess.Popen([options.weir, "run", "--config", file])
        try:
            admin = connected(int(ports["ADMIN"]))
            fill(admin, options.keys)
            print("| List | median | highest | CPU |\n|---|---:|---:|---:|")
            for name, path in LISTS.items():
                waits, cpu_ms = measure(admin, process, path)
                print(f"| {name} | {statistics.median(waits):.0f} ms | {waits[-1]:.0f} ms | {cpu_ms:.0f} ms |")
        finally:
            process.kill()
            process.wait()


main()
