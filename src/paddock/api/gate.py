"""What every request passes, in this order: request id, Host, Origin, who and how often, which route, role,
size; and on its way out the audit log, the metrics and the access log.

Written against ASGI itself: it runs for each exec, and a millisecond is what an exec takes.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
from dataclasses import dataclass

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.api.access import READS, Place, Rule, allowed_methods, place, rule_for
from paddock.api.body import too_large
from paddock.api.call import KEY, Call
from paddock.api.faults import CLIENT_CLOSED, MethodNotAllowed, TooMany, answer, as_paddock_error, no_route
from paddock.api.metrics import Metrics
from paddock.api.origins import Origins
from paddock.api.services import Services
from paddock.auth import ANYONE, Principal
from paddock.errors import Denied, Invalid, PaddockError, Unauthenticated

TOKEN_PROTOCOL = "paddock.token."
PROTOCOL = "paddock"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_UNKNOWN = Rule("unknown", None)
_NOSNIFF = (b"x-content-type-options", b"nosniff")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Headers:
    host: str = ""
    origin: str | None = None
    authorization: str | None = None
    protocols: str = ""
    request_id: bytes | None = None
    length: int = 0
    preflight: bool = False


def _headers(scope: Scope) -> _Headers:
    found = _Headers()
    for name, value in scope["headers"]:
        if name == b"host":
            found.host = value.decode("latin-1")
        elif name == b"authorization":
            found.authorization = value.decode("latin-1")
        elif name == b"content-length":
            found.length = int(value) if value.isdigit() else 0
        elif name == b"origin":
            found.origin = value.decode("latin-1")
        elif name == b"x-request-id":
            found.request_id = value if _REQUEST_ID.fullmatch(value) else None
        elif name == b"sec-websocket-protocol":
            found.protocols = value.decode("latin-1")
        elif name == b"access-control-request-method":
            found.preflight = True
    return found


class Gate:
    def __init__(self, app: ASGIApp, services: Services, metrics: Metrics) -> None:
        self._app = app
        self._services = services
        self._metrics = metrics
        self._origins = Origins(services.settings)
        self._prefix = secrets.token_hex(4)
        self._count = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = _headers(scope)
        request_id = headers.request_id or f"{self._prefix}-{next(self._count):x}".encode()
        where = place(scope["path"])
        call = scope[KEY] = Call(request_id.decode(), _UNKNOWN, where.target)
        exit_ = _Exit(send, [(b"x-request-id", request_id), _NOSNIFF])
        try:
            if self._admit(scope, headers, where, call, exit_):
                await self._app(scope, receive, exit_)
            else:
                await _refuse(scope, receive, exit_, Response(status_code=204))
        except Exception as error:
            await self._failed(scope, receive, exit_, call, error)
        finally:
            self._account(scope, call, exit_, began)

    def _admit(self, scope: Scope, headers: _Headers, where: Place, call: Call, exit_: _Exit) -> bool:
        """False: a preflight, which is answered here."""
        method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
        rule = rule_for(method, where.shape)
        if rule is not None and rule.role is None:
            call.rule = rule
            return True
        if not self._origins.host_passes(headers.host):
            raise Denied(
                f"this server is not called {headers.host!r}",
                reason="host",
                hint="add the name to allowed_hosts in the settings",
            )
        if headers.origin is not None:
            self._check_origin(headers.origin, headers.host, exit_)
            if headers.preflight and method == "OPTIONS":
                return False
        call.principal = self._who(scope, headers)
        if rule is None:
            raise _no_route(method, where)
        call.rule = rule
        if rule.role is not None:
            call.principal.require(rule.role)
        if not rule.stream and headers.length > self._services.settings.max_request_bytes:
            raise too_large(self._services.settings.max_request_bytes)
        return True

    def _check_origin(self, origin: str, host: str, exit_: _Exit) -> None:
        if not self._origins.origin_passes(origin, host):
            raise Denied(
                f"a page of {origin!r} may not call this server",
                reason="origin",
                hint="add the origin to allowed_origins in the settings",
            )
        if self._origins.is_foreign_but_allowed(origin):
            exit_.headers += _cors(origin)

    def _who(self, scope: Scope, headers: _Headers) -> Principal:
        """The caller. Whoever does not say who they are is counted by where they come from."""
        refused: Unauthenticated | None = None
        principal = ANYONE
        if not self._services.settings.no_auth:
            try:
                principal = self._services.tokens.verify(_secret(headers))
            except Unauthenticated as error:
                refused = error
        peer = scope["client"][0] if scope.get("client") else "local"
        wait = self._services.limiter.take(principal.token_id or f"peer:{peer}")
        if wait > 0:
            raise TooMany(wait)
        if refused is not None:
            raise refused
        return principal

    async def _failed(
        self, scope: Scope, receive: Receive, exit_: _Exit, call: Call, error: Exception
    ) -> None:
        known = as_paddock_error(error)
        if known is not None:
            call.reason = known.reason
        elif not isinstance(error, ClientDisconnect | OSError):
            call.reason = "internal"
            log.error("request.failed", path=scope["path"], request_id=call.request_id, exc_info=error)
        if exit_.status:
            return
        try:
            await _refuse(scope, receive, exit_, answer(scope["path"], error))
        except OSError:
            exit_.status = CLIENT_CLOSED

    def _account(self, scope: Scope, call: Call, exit_: _Exit, began: float) -> None:
        status = exit_.status or CLIENT_CLOSED
        rule = call.rule
        self._metrics.observe(rule.action, status, (exit_.at or time.perf_counter()) - began, call.reason)
        if rule.audited and call.principal is not None and not call.exempt:
            outcome = "ok" if status < 400 else call.reason or f"http_{status}"
            self._services.audit.record(
                call.principal, rule.action, call.target, outcome, {"request_id": call.request_id}
            )
        log.debug(
            "request",
            method=scope.get("method", "WEBSOCKET"),
            path=scope["path"],
            status=status,
            ms=round((time.perf_counter() - began) * 1000, 3),
            request_id=call.request_id,
            by=call.principal.name if call.principal else None,
            reason=call.reason,
        )


class _Exit:
    """`send`, with our headers added and the status noted."""

    __slots__ = ("_send", "at", "headers", "status")

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self.headers = headers
        self.status = 0
        self.at = 0.0

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            self.at = time.perf_counter()
            message["headers"] = [*message.get("headers", ()), *self.headers]
        elif kind == "websocket.accept":
            self.status = 101
            self.at = time.perf_counter()
            message["headers"] = [*message.get("headers", ()), self.headers[0]]
        elif kind == "websocket.close" and not self.status:
            self.status = 403
        await self._send(message)


def _secret(headers: _Headers) -> str:
    if headers.authorization is not None:
        scheme, _, secret = headers.authorization.partition(" ")
        if scheme.lower() == "bearer":
            return secret.strip()
    for protocol in headers.protocols.split(","):
        if protocol.strip().startswith(TOKEN_PROTOCOL):
            return protocol.strip().removeprefix(TOKEN_PROTOCOL)
    raise Unauthenticated(
        "no token was given",
        hint="send `Authorization: Bearer <token>`; the first one is in the file admin-token",
    )


def _no_route(method: str, where: Place) -> PaddockError:
    allowed = allowed_methods(where.shape)
    if allowed and method != "WEBSOCKET":
        return MethodNotAllowed(method, allowed)
    if not allowed and method in READS and rule_for("WEBSOCKET", where.shape) is not None:
        return Invalid("this address speaks WebSocket", hint="connect with a WebSocket client")
    return no_route()


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
        (b"access-control-allow-headers", b"authorization, content-type, last-event-id, range, x-request-id"),
        (b"access-control-expose-headers", b"content-range, etag, location, x-request-id"),
        (b"vary", b"origin"),
    ]


async def _refuse(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    """Answer instead of the app; a WebSocket that is not yet open gets a plain HTTP answer."""
    if scope["type"] == "http":
        await response(scope, receive, send)
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await send(
        {
            "type": "websocket.http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    await send({"type": "websocket.http.response.body", "body": response.body})
