"""Just enough of HTTP/2 without TLS (RFC 9113) to open streams and to see one of them answered."""

import socket
import struct

from processes import PeerFailed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, GOAWAY = 1, 3, 4, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
# HPACK (RFC 7541): fields of the static table, and the names of two more.
METHOD_GET, SCHEME_HTTP, STATUS_200 = b"\x82", b"\x86", 0x88
PATH_NAME, AUTHORITY_NAME, NEW_NAME = b"\x04", b"\x01", b"\x00"


class Connection:
    """A connection whose requests are all alike. Streams are opened in order, by whole lists."""

    def __init__(self, connected: socket.socket, path: str, headers: dict[str, str]):
        self.socket = connected
        self.block = METHOD_GET + SCHEME_HTTP + PATH_NAME + text(path) + AUTHORITY_NAME + text("127.0.0.1")
        self.block += b"".join(NEW_NAME + text(name) + text(value) for name, value in headers.items())
        self.next_stream = 1
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))

    def send(self, count: int) -> None:
        """Opens streams with a request each."""
        last = self.next_stream + 2 * count
        streams = range(self.next_stream, last, 2)
        self.socket.sendall(b"".join(frame(HEADERS, END_STREAM | END_HEADERS, n, self.block) for n in streams))
        self.next_stream = last

    def receive(self, stream: int) -> None:
        """Reads until a stream is answered with 200, and confirms settings on the way."""
        while True:
            kind, flags, of, payload = self.frame()
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
            if kind in (GOAWAY, RST_STREAM):
                raise PeerFailed(f"ended an HTTP/2 connection or stream with frame {kind}: {payload!r}")
            if of == stream and kind == HEADERS and without_size_updates(payload)[0] != STATUS_200:
                raise PeerFailed("did not answer 200 over HTTP/2")
            if of == stream and flags & END_STREAM:
                return

    def frame(self) -> tuple[int, int, int, bytes]:
        length_kind, flags, stream = struct.unpack(">IBI", self.read(9))
        return length_kind & 0xFF, flags, stream, self.read(length_kind >> 8)

    def read(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            more = self.socket.recv(count - len(read))
            if not more:
                raise PeerFailed("closed an HTTP/2 connection")
            read += more
        return read

    def close(self) -> None:
        self.socket.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def without_size_updates(block: bytes) -> bytes:
    """A header block without the changes of the table's size at its start (RFC 7541, section 6.3), all below 31."""
    return block.lstrip(bytes(range(0x20, 0x3F)))


def text(value: str) -> bytes:
    """A string without Huffman coding, and short enough for a length of one byte."""
    assert len(value) < 127
    return bytes([len(value)]) + value.encode()
