"""The benchmark's own HTTP client against answers cut into the worst pieces."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from bench.wire import BadAnswer, Place, Wire


@contextlib.contextmanager
def answering(parts: Sequence[bytes]) -> Iterator[Wire]:
    """A server that reads one request and sends these parts, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        wire = Wire(Place("127.0.0.1", listener.getsockname()[1], "secret"))
        try:
            yield wire
        finally:
            wire.close()
            thread.join(30)
            assert not thread.is_alive()


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
)


def test_a_request_carries_the_token_and_its_length() -> None:
    request = Place("::1", 80, "secret").request("POST", "/x", b"body")
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /x HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert b"Content-Length: 4" in head
    assert body == b"body"


def test_an_answer_with_a_length() -> None:
    with answering([b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{", b'"a": 1 }']) as wire:
        assert wire.call("POST", "/x", {}, expected=201) == {"a": 1}


def test_an_unexpected_status_is_told_with_its_body() -> None:
    with answering([b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope"]) as wire:
        with pytest.raises(BadAnswer, match=r"404.*nope"):
            wire.call("GET", "/x")


@pytest.mark.parametrize("size", [1, 7, len(CHUNKED)])
def test_chunks_arrive_whole_however_they_are_cut(size: int) -> None:
    parts = [CHUNKED[at : at + size] for at in range(0, len(CHUNKED), size)]
    with answering(parts) as wire:
        received = b"".join(bytes(part) for part in wire.stream(b"GET / HTTP/1.1\r\n\r\n"))
    assert received == b"hello0123456789abcdef"


def test_a_stream_that_breaks_off_is_an_error() -> None:
    with answering([CHUNKED[:-20]]) as wire:
        with pytest.raises(BadAnswer, match="cut off"):
            list(wire.stream(b"GET / HTTP/1.1\r\n\r\n"))
