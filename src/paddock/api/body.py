"""Request bodies: JSON read whole and bounded, everything else as a stream."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paddock.errors import TooLarge

Model = TypeVar("Model", bound=BaseModel)


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {limit} bytes",
        hint="send large data to the files or stdin calls, which stream",
    )


async def read_body(request: Request, limit: int) -> bytes:
    receive = request.receive
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False) and message["type"] == "http.request" and len(first) <= limit:
        return first
    parts = bytearray(first)
    while message["type"] == "http.request" and message.get("more_body", False) and len(parts) <= limit:
        message = await receive()
        parts += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientDisconnect()
    if len(parts) > limit:
        raise too_large(limit)
    return bytes(parts)


async def parsed(request: Request, model: type[Model], *, empty: bytes | None = None) -> Model:
    """The body as a `model`. `empty` stands for a body that was left out."""
    body = await read_body(request, request.app.state.services.settings.max_request_bytes)
    return model.model_validate_json(body if body or empty is None else empty)


def accepts(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """For `openapi_extra`: the body that `parsed` reads. openapi.py adds the models themselves."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def accepts_bytes(kind: str = "application/octet-stream") -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"}
    return {"requestBody": {"required": False, "content": {kind: {"schema": schema}}}}


def as_json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(model.model_dump_json(), status, headers, "application/json")
