"""A WebSocket for a loop of one's own: it never blocks, and says when it wants to read or write.

The protocol is the `websockets` library's; only the socket is held here, because a terminal, signals, pipes
and the network have to be waited for in one place.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from paddock.client.transport import CONNECT_SECONDS, PREFIX, Address, error_of, unreachable
from paddock.errors import PaddockError

READ = 256 << 10


@dataclass(frozen=True, slots=True)
class Message:
    data: bytes
    text: bool


class WebSocket:
    def __init__(self, sock: socket.socket, protocol: ClientProtocol) -> None:
        self._sock = sock
        self._protocol = protocol
        self._out: deque[memoryview] = deque()
        self._parts: list[bytes] = []
        self._text = False
        self.unsent = 0
        self.closed = False
        """Nothing more will come."""
        self.heard_at = time.monotonic()

    @classmethod
    def connect(cls, address: Address, target: str) -> WebSocket:
        """Open a connection, or raise what the server answered instead."""
        scheme = "wss" if address.secure else "ws"
        host = f"[{address.host}]" if ":" in address.host else address.host
        uri = parse_uri(f"{scheme}://{host}:{address.port}{address.base}{PREFIX}{target}")
        # Frames are bounded by the server; a limit here could only cut an answer short.
        protocol = ClientProtocol(uri, max_size=None)
        try:
            sock = _open_socket(address)
        except OSError as error:
            raise unreachable(address, error) from error
        try:
            self = cls(sock, protocol)
            self._shake_hands(address)
        except OSError as error:
            sock.close()
            raise unreachable(address, error) from error
        except BaseException:
            sock.close()
            raise
        sock.setblocking(False)
        return self

    def _shake_hands(self, address: Address) -> None:
        request = self._protocol.connect()
        for name, value in address.headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        for data in self._protocol.data_to_send():
            self._sock.sendall(data)
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            data = self._sock.recv(READ)
            self._protocol.receive_data(data) if data else self._protocol.receive_eof()
        failure = self._protocol.handshake_exc
        if isinstance(failure, InvalidStatus):
            raise error_of(failure.response.status_code, bytes(failure.response.body or b""))
        if failure is not None:
            raise PaddockError(f"{address.url} does not answer like Paddock: {failure}", reason="not_paddock")

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def has_buffered(self) -> bool:
        """TLS may hold decrypted bytes that no poll on the socket shows."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def receive(self) -> list[Message]:
        """What has arrived. Sets `closed` at the end of the connection, however it came."""
        try:
            data = self._sock.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            data = None
        except OSError:
            data = b""
        if data == b"":
            self.closed = True
            with contextlib.suppress(EOFError):
                self._protocol.receive_eof()
        elif data is not None:
            self.heard_at = time.monotonic()
            self._protocol.receive_data(data)
        return self.take()

    def take(self) -> list[Message]:
        """Messages that are whole, also those that came together with the handshake."""
        messages = []
        for frame in self._protocol.events_received():
            if not isinstance(frame, Frame):
                continue
            if frame.opcode is Opcode.CLOSE:
                self.closed = True
            elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                if frame.opcode is not Opcode.CONT:
                    self._text = frame.opcode is Opcode.TEXT
                self._parts.append(bytes(frame.data))
                if frame.fin:
                    messages.append(Message(b"".join(self._parts), self._text))
                    self._parts.clear()
        self._collect()
        return messages

    def send_bytes(self, data: bytes) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._collect()

    def send_text(self, text: str) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(text.encode())
            self._collect()

    def ping(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._collect()

    def _collect(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._out.append(memoryview(data))
                self.unsent += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now; `unsent` tells what is left."""
        while self._out:
            try:
                sent = self._sock.send(self._out[0])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._out.clear()
                self.unsent = 0
                return
            self.unsent -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]

    def drain(self, seconds: float) -> None:
        """Send everything, waiting for the socket if need be, but no longer than this."""
        deadline = time.monotonic() + seconds
        while self._out and (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            self.flush()
            if self._sock.fileno() < 0:
                return

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._collect()
        self._sock.close()
        self.closed = True


def _open_socket(address: Address) -> socket.socket:
    sock = socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.secure:
        return sock
    try:
        return ssl.create_default_context().wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise
