"""Errors as clients get them: {"error", "reason", "hint"?} under /api, {"error"} on reference 5's routes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paddock.api.call import call_of
from paddock.errors import Invalid, NotFound, PaddockError, RateLimited

CLIENT_CLOSED = 499
"""Nobody reads this answer: it is for the audit log and the metrics."""
NO_ROUTE = "no_route"


class MethodNotAllowed(PaddockError):
    status = 405
    default_reason = "method_not_allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method} is not possible here", hint=f"possible: {self.allowed}")


class TooMany(RateLimited):
    def __init__(self, seconds: float) -> None:
        self.retry_after = max(1, int(seconds + 0.999))
        super().__init__("too many requests", hint=f"try again in {seconds:.3f} s")


def no_route() -> NotFound:
    return NotFound(
        "there is nothing at this address", reason=NO_ROUTE, hint="see docs/API.md or /openapi.json"
    )


def is_sbx(path: str) -> bool:
    """Whether a path is one of reference 5's routes, whose errors have its shape."""
    return path == "/sandboxes" or path.startswith("/sandboxes/")


def render(path: str, error: PaddockError) -> Response:
    if is_sbx(path) and error.reason == NO_ROUTE:
        return Response("404 page not found", 404, media_type="text/plain")
    body = {"error": error.message} if is_sbx(path) else error.as_dict()
    headers: dict[str, str] = {}
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.retry_after)
    elif isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    elif error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="paddock"'
    return Response(json.dumps(body), error.status, headers, "application/json")


def unreadable(errors: Sequence[Mapping[str, Any]]) -> Invalid:
    """Pydantic's first complaint, in words."""
    first = errors[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return Invalid(f"the body is not valid JSON: {first.get('ctx', {}).get('error', message)}")
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    name = ".".join(where) or "the body"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Invalid(f"{name}: {message}{more}")


def as_paddock_error(error: Exception) -> PaddockError | None:
    if isinstance(error, PaddockError):
        return error
    if isinstance(error, ValidationError):
        return unreadable(error.errors(include_url=False, include_input=False))
    if isinstance(error, RequestValidationError | WebSocketRequestValidationError):
        return unreadable(error.errors())
    if isinstance(error, HTTPException):
        return no_route() if error.status_code == HTTPStatus.NOT_FOUND else Invalid(str(error.detail))
    return None


def answer(path: str, error: Exception) -> Response:
    """What a failed call is answered with. What is not a known error is told to nobody."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED)
    return render(path, as_paddock_error(error) or PaddockError("the server failed; its log tells why"))


async def on_error(connection: Request, error: Exception) -> Response:
    """Starlette's exception handler. The gate answers a WebSocket's errors: it still can, with HTTP."""
    if connection.scope["type"] == "websocket":
        raise error
    known = as_paddock_error(error)
    if known is not None:
        call_of(connection).reason = known.reason
    return answer(connection.scope["path"], error)
