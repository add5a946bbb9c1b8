"""HTTP to one server: requests out, JSON or bytes back, errors as paddock.errors.

On http.client rather than a richer library: it is imported in a third of the time, and a command line
does one or two requests in its life.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from paddock.errors import BY_STATUS, Invalid, PaddockError, Timeout, Unavailable

PREFIX = "/api/v1"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 300.0
CHUNK = 256 << 10

Value = str | int | float | bool | None
Query = Mapping[str, Value | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and how to sign in."""

    url: str
    token: str | None = None

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or (443 if self.secure else 80)

    @property
    def base(self) -> str:
        return urlsplit(self.url).path.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @classmethod
    def parse(cls, url: str, token: str | None = None) -> Address:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise Invalid(f"{url!r} is not the address of a server", hint="write it as http://127.0.0.1:8122")
        if token and (not token.isascii() or not token.isprintable()):
            raise Invalid("the token has characters that no token has", hint="check PADDOCK_TOKEN or --token")
        return cls(url.rstrip("/"), token or None)


def with_query(path: str, query: Query | None) -> str:
    """`path` with what of `query` is not None; a list repeats its name. Bytes that are no UTF-8 pass."""
    parts = []
    for key, value in (query or {}).items():
        values: Sequence[Value] = (value,) if isinstance(value, str | int | float | None) else value
        parts += [f"{key}={_quote(item)}" for item in values if item is not None]
    return f"{path}?{'&'.join(parts)}" if parts else path


def _quote(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return quote(str(value).encode("utf-8", "surrogateescape"), safe="")


def unreachable(address: Address, error: Exception) -> Unavailable:
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Unavailable(
        f"no answer from {address.url}: {why}",
        reason="server_unreachable",
        hint="check --url, or start a server with: paddock up",
    )


def error_of(status: int, body: bytes) -> PaddockError:
    """The error that an answer tells."""
    kind = BY_STATUS.get(status, Invalid if 400 <= status < 500 else PaddockError)
    try:
        told = json.loads(body)
        message = str(told["error"])
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode(errors="replace").strip()
        return kind(f"the server answered {status}{': ' if text else ''}{text}")
    reason, hint = told.get("reason"), told.get("hint")
    return kind(message, reason=str(reason) if reason else None, hint=str(hint) if hint else None)


_BY_REASON = {kind.default_reason: kind for kind in BY_STATUS.values()}


def error_told(told: Mapping[str, Any]) -> PaddockError:
    """An error inside a stream, where no status tells its class."""
    reason = str(told.get("reason") or "")
    kind = _BY_REASON.get(reason)
    if kind is None:
        kind = next((k for word, k in _BY_REASON.items() if reason.endswith(f"_{word}")), PaddockError)
    hint = told.get("hint")
    return kind(str(told["error"]), reason=reason or None, hint=str(hint) if hint else None)


class Answer:
    """An answer whose body is still to be read."""

    def __init__(self, response: http.client.HTTPResponse, address: Address, close: Any) -> None:
        self.response = response
        self.status = response.status
        self._address = address
        self._close = close

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    def read(self, size: int = -1) -> bytes:
        with _explained(self._address):
            return self.response.read(size) if size >= 0 else self.response.read()

    def chunks(self) -> Iterator[bytes]:
        """Whatever has arrived, as it arrives; raises when the body ends early."""
        while True:
            with _explained(self._address):
                data = self.response.read1(CHUNK)
                if not data:
                    # A body of known length that is cut off ends like a whole one, but for the rest.
                    if self.response.length:
                        raise http.client.IncompleteRead(b"", self.response.length)
                    return
            yield data

    def lines(self) -> Iterator[bytes]:
        while True:
            with _explained(self._address):
                line = self.response.readline()
            if not line:
                return
            yield line.rstrip(b"\r\n")

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _explained(address: Address) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise Timeout(f"{address.url} took too long to answer", reason="server_timeout") from error
    except (OSError, http.client.HTTPException) as error:
        raise unreachable(address, error) from error


class Transport:
    """Connections to one server: one is kept for plain calls, and each stream gets its own."""

    def __init__(self, address: Address, *, timeout: float | None = ANSWER_SECONDS) -> None:
        self.address = address
        self.timeout = timeout
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask with a JSON body and give back the JSON answer; None for an empty one."""
        headers = dict(self.address.headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        target = f"{self.address.base}{PREFIX}{with_query(path, query)}"
        with _explained(self.address):
            status, content = self._exchange(method, target, data, headers, timeout)
        if status >= 400:
            raise error_of(status, content)
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise PaddockError(
                f"{self.address.url} does not answer like Paddock", reason="not_paddock", hint="check --url"
            ) from error

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str], timeout: float | None
    ) -> tuple[int, bytes]:
        fresh = self._kept is None
        connection = self._kept or self._connect()
        self._kept = connection
        if connection.sock is not None:
            connection.sock.settimeout(timeout or self.timeout)
        try:
            connection.request(method, target, body=data, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if fresh or method == "POST":
                raise
            # The server closed the kept connection while it was idle: what may be repeated is.
            return self._exchange(method, target, data, headers, timeout)
        except BaseException:
            self.close()
            raise

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Ask, with a body sent as it is made, and give back the answer as soon as it begins."""
        connection = self._connect()
        target = f"{self.address.base}{PREFIX}{with_query(path, query)}"
        all_headers = self.address.headers | dict(headers or {})
        try:
            with _explained(self.address):
                if connection.sock is not None:
                    connection.sock.settimeout(timeout)
                response = _send_stream(connection, method, target, _apart(body), all_headers)
            if response.status >= 400:
                raise error_of(response.status, response.read())
        except _BodyFailed as failed:
            connection.close()
            raise failed.error from None
        except BaseException:
            connection.close()
            raise
        return Answer(response, self.address, connection.close)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        kind = http.client.HTTPSConnection if self.address.secure else http.client.HTTPConnection
        connection = kind(host, port, timeout=CONNECT_SECONDS)
        with _explained(self.address):
            connection.connect()
        sock = connection.sock
        sock.settimeout(self.timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _has_answered(connection: http.client.HTTPConnection) -> bool:
    return bool(select.select([connection.sock], [], [], 0)[0])


class _BodyFailed(Exception):
    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _apart(body: Iterable[bytes] | None) -> Iterable[bytes] | None:
    """What goes wrong while a body is made is not the server's fault, and must not look like it."""

    def made(parts: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from parts
        except OSError as error:
            raise _BodyFailed(error) from error

    return None if body is None else made(body)


def _send_stream(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: Iterable[bytes] | None,
    headers: Mapping[str, str],
) -> http.client.HTTPResponse:
    if body is None:
        connection.request(method, target, headers=dict(headers))
        return connection.getresponse()
    chunked = "Content-Length" not in headers
    connection.putrequest(method, target)
    for name, value in headers.items():
        connection.putheader(name, value)
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    # A server that refuses answers early and closes: its answer says why, the broken pipe does not.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for data in body:
            if _has_answered(connection):
                return connection.getresponse()
            if data:
                connection.send(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked:
            connection.send(b"0\r\n\r\n")
    return connection.getresponse()
