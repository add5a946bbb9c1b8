"""A server for the tests of the client: it answers what a test wants, also what no good server would."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest


@dataclass
class Scripted:
    """Gives each connection to the next of its answers and keeps what the client sent."""

    url: str
    answers: list[Callable[[socket.socket, bytes], None]] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    reads_bodies: bool = True

    def answer(self, status: str, body: bytes = b"", *, headers: str = "", keep: bool = False) -> None:
        connection = "" if keep else "Connection: close\r\n"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{connection}{headers}\r\n".encode()
        self.answers.append(lambda sock, _: sock.sendall(head + body))

    def raw(self, data: bytes) -> None:
        self.answers.append(lambda sock, _: sock.sendall(data))


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_serve, args=(listener, server), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        assert not thread.is_alive()


def _serve(listener: socket.socket, server: Scripted) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock:
            sock.settimeout(20)
            while server.answers and (request := _read_request(sock, server.reads_bodies)):
                server.requests.append(request)
                server.answers.pop(0)(sock, request)
                if b"connection: close" in request.lower():
                    break


def _read_request(sock: socket.socket, with_body: bool) -> bytes:
    """One request with its body, if the body's length is told."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = _receive(sock)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    chunked = b"transfer-encoding: chunked" in head.lower()
    if not with_body:
        return data
    while len(body) < length or (chunked and not body.endswith(b"0\r\n\r\n")):
        more = _receive(sock)
        if not more:
            break
        body += more
    return head + b"\r\n\r\n" + body


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 16)
    except OSError:
        return b""
