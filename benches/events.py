#!/usr/bin/env python3
"""CPU time of a stream of events whose numbers settle a charge, next to the same stream without `settle`.

    cargo build --profile dist
    benches/events.py [--weir PATH] [--events N] [--rounds N]

A service sends an event of a chat completion when the client has the one before, so that Weir reads each alone. Both
sides take turns; the figures are medians.
"""

import argparse
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import threading

CONFIG = """
[server]
listen = "127.0.0.1:0"
workers = 1
[admin]
listen = "127.0.0.1:0"
[log]
format = "json"
[upstream]
url = "http://127.0.0.1:{port}"
[[limit]]
name = "tokens"
key = ["ip"]
rate = "1000000/s"
"""
SETTLE = 'settle = { by = "openai-chat" }\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
)
LAST = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}\n\n'


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Service:
    """Answers each connection with a stream, an event for each release of `next`."""

    def __init__(self, events):
        self.next = threading.Semaphore(0)
        self.parts = [chunk(EVENT)] * (events - 1) + [chunk(LAST) + b"0\r\n\r\n"]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        while connection.recv(65536):
            connection.sendall(HEAD)
            for part in self.parts:
                self.next.acquire()
                connection.sendall(part)


class Weir:
    def __init__(self, program, folder, config):
        path = pathlib.Path(folder) / "weir.toml"
        path.write_text(config)
        self.process = subprocess.Popen([program, "run", "--config", path], stderr=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stderr if '"listening"' in line)
        self.port = int(re.search(r'127\.0\.0\.1:(\d+)', line)[1])

    def cpu_ns(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stream_ns(self, service, events):
        """The CPU time of one stream, for an event."""
        before = self.cpu_ns()
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            service.next.release()
            seen, tail = 0, b""
            while seen < events:
                data = client.recv(65536)
                assert data, "the stream broke off"
                # An end of an event can be cut in two.
                ends = (tail + data).count(b"\n\n")
                tail = data[-1:] if data[-2:] != b"\n\n" else b""
                seen += ends
                if ends and seen < events:
                    service.next.release(ends)
        return (self.cpu_ns() - before) / events


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--weir", default=pathlib.Path(__file__).parents[1] / "target" / "dist" / "weir")
    options.add_argument("--events", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=21)
    options = options.parse_args()
    service = Service(options.events)
    sides = {"without settlement": "", "with settlement": SETTLE}
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as settled:
        config = CONFIG.format(port=service.port)
        weirs = {
            side: Weir(options.weir, folder, config + more)
            for (side, more), folder in zip(sides.items(), (plain, settled))
        }
        found = {side: [] for side in sides}
        for turn in range(options.rounds):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                found[side].append(weirs[side].stream_ns(service, options.events))
        for weir in weirs.values():
            weir.process.terminate()
            weir.process.wait()
    medians = {side: statistics.median(values) for side, values in found.items()}
    for side, median in medians.items():
        low, high = min(found[side]) / 1000, max(found[side]) / 1000
        print(f"{median / 1000:6.2f} us of CPU an event, {side} ({low:.2f} to {high:.2f})")
    print(f"{medians['with settlement'] / medians['without settlement']:6.2f} of the time")


if __name__ == "__main__":
    main()
