"""The least that is an HTTP client: one kept-alive connection, by hand, so that it costs next to nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RECEIVE = 1 << 20
TIMEOUT_SECONDS = 300.0


class BadAnswer(RuntimeError):
    """The server answered with something that a benchmark cannot go on with."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self, expected: int) -> Any:
        if self.status != expected:
            raise BadAnswer(f"status {self.status} instead of {expected}: {self.body[:500]!r}")
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Place:
    """A server: where it listens and how to sign in."""

    host: str
    port: int
    token: str

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Wire:
    """One connection. `ask` sends a ready-made request and waits for its answer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.socket = socket.create_connection((place.host, place.port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def close(self) -> None:
        self.socket.close()

    def call(self, method: str, path: str, body: Any = None, *, expected: int = 200) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        return self.ask(self.place.request(method, path, data)).json(expected)

    def ask(self, request: bytes) -> Answer:
        self.socket.sendall(request)
        return self.answer()

    def answer(self) -> Answer:
        status, headers = self._head()
        if "content-length" not in headers:
            return Answer(status, b"".join(bytes(part) for part in self._chunks()))
        return Answer(status, self._exactly(int(headers["content-length"])))

    def stream(self, request: bytes) -> Iterator[memoryview]:
        """Send, and give the parts of a chunked answer. A part is valid until the next one is asked for."""
        self.socket.sendall(request)
        status, headers = self._head()
        if status != 200 or headers.get("transfer-encoding") != "chunked":
            raise BadAnswer(f"status {status} with {headers}")
        return self._chunks()

    def _head(self) -> tuple[int, dict[str, str]]:
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        self._rest = data[end + 4 :]
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines)
        return int(first.split()[1]), {name.strip().lower(): value.strip() for name, value in pairs}

    def _exactly(self, size: int) -> bytes:
        data = self._rest
        while len(data) < size:
            data += self._receive()
        self._rest = data[size:]
        return data[:size]

    def _receive(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise BadAnswer("the server closed the connection")
        return data

    def _chunks(self) -> Iterator[memoryview]:
        buffer = bytearray(RECEIVE)
        view = memoryview(buffer)
        size = len(self._rest)
        view[:size] = self._rest
        self._rest = b""
        at, left = 0, 0
        while True:
            while at < size:
                if left == 0:
                    end = buffer.find(b"\r\n", at, size)
                    if end < 0:
                        break
                    line = bytes(view[at:end])
                    at = end + 2
                    if not line:
                        continue
                    left = int(line, 16)
                    if left == 0:
                        self._end(bytes(view[at:size]))
                        return
                take = min(left, size - at)
                if take:
                    yield view[at : at + take]
                at, left = at + take, left - take
            # What is left over is a piece of a line between two chunks.
            kept = bytes(view[at:size])
            view[: len(kept)] = kept
            received = self.socket.recv_into(view[len(kept) :])
            if not received:
                raise BadAnswer("the stream was cut off")
            at, size = 0, len(kept) + received

    def _end(self, rest: bytes) -> None:
        """The empty line after the last chunk."""
        while len(rest) < 2:
            rest += self._receive()
        self._rest = rest[2:]
