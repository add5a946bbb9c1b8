from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from paddock.client.transport import Address
from paddock.client.websocket import Message, WebSocket
from paddock.errors import NotFound, PaddockError, Unavailable

Handler = Callable[[ServerConnection], None]


@pytest.fixture
def serving() -> Iterator[Callable[..., Address]]:
    stops: list[Callable[[], None]] = []

    def start(handler: Handler, refusal: Response | None = None) -> Address:
        def quietly(connection: ServerConnection) -> None:
            try:
                handler(connection)
            except ConnectionClosed:
                return

        def process(_: ServerConnection, request: Request) -> Response | None:
            headers.update(request.headers.raw_items())
            return refusal

        server = serve(quietly, "127.0.0.1", 0, compression=None, process_request=process, max_size=None)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stops.append(lambda: (server.shutdown(), thread.join(20))[1])
        return Address(f"http://127.0.0.1:{server.socket.getsockname()[1]}", "secret")

    yield start
    for stop in stops:
        stop()


headers: dict[str, str] = {}


def receive(link: WebSocket, count: int) -> list[Message]:
    found: list[Message] = link.take()
    deadline = time.monotonic() + 20
    while len(found) < count and not link.closed:
        assert time.monotonic() < deadline
        select.select([link], [], [], 1)
        found += link.receive()
    return found


def test_messages_both_ways(serving: Callable[..., Address]) -> None:
    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    link = WebSocket.connect(serving(echo), "/x?mode=binary")
    link.send_bytes(b"\x00\xff")
    link.send_text("ä")
    assert receive(link, 2) == [Message(b"\x00\xff", False), Message("ä".encode(), True)]
    assert headers["Authorization"] == "Bearer secret"
    link.close()


def test_messages_in_pieces_are_joined(serving: Callable[..., Address]) -> None:
    link = WebSocket.connect(serving(lambda connection: connection.send([b"a", b"b", b"c"])), "/")
    assert receive(link, 1) == [Message(b"abc", False)]
    link.close()


def test_much_is_sent_without_waiting(serving: Callable[..., Address]) -> None:
    go_on = threading.Event()
    got: list[int] = []

    def slow(connection: ServerConnection) -> None:
        go_on.wait(20)
        got.append(len(connection.recv()))

    link = WebSocket.connect(serving(slow), "/")
    link.send_bytes(bytes(30 << 20))
    assert link.unsent > 0
    go_on.set()
    deadline = time.monotonic() + 20
    while link.unsent and time.monotonic() < deadline:
        select.select([], [link], [], 1)
        link.flush()
    while not got and time.monotonic() < deadline:
        select.select([link], [], [], 0.1)
        link.receive()
    assert got == [30 << 20]
    link.close()


def test_the_end_of_a_connection_is_seen(serving: Callable[..., Address]) -> None:
    link = WebSocket.connect(serving(lambda connection: connection.send("last")), "/")
    assert receive(link, 2) == [Message(b"last", True)]
    assert link.closed
    link.close()


def test_a_cut_connection_is_seen(serving: Callable[..., Address]) -> None:
    link = WebSocket.connect(serving(lambda connection: connection.socket.shutdown(socket.SHUT_RDWR)), "/")
    assert receive(link, 1) == []
    assert link.closed
    link.send_bytes(b"into the void")
    link.close()


def test_a_refusal_is_the_error_it_tells(serving: Callable[..., Address]) -> None:
    body = b'{"error": "no sandbox", "reason": "sandbox_not_found"}'
    refusal = Response(404, "Not Found", Headers({"Content-Length": str(len(body))}), body)
    with pytest.raises(NotFound) as caught:
        WebSocket.connect(serving(lambda _: None, refusal), "/")
    assert caught.value.reason == "sandbox_not_found"


def test_nobody_there() -> None:
    with pytest.raises(Unavailable):
        WebSocket.connect(Address("http://127.0.0.1:1"), "/")


def test_something_that_is_no_websocket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1 << 16)
                sock.sendall(b"SSH-2.0-hello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(PaddockError) as caught:
            WebSocket.connect(Address(f"http://127.0.0.1:{listener.getsockname()[1]}"), "/")
        thread.join(20)
    assert caught.value.reason == "not_paddock"
