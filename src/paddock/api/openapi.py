"""The API's description, with what the lean routes read by themselves added."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from paddock import __version__
from paddock.api.sbx.shapes import CreateRequest, ExecBody
from paddock.api.schemas import CreateToken, MakeFolder, Move
from paddock.sandboxes.requests import (
    CancelRequest,
    CreateSandbox,
    ExecRequest,
    SignalRequest,
    TerminalSize,
    UpdateSandbox,
)

BODIES: tuple[type[BaseModel], ...] = (
    CreateSandbox,
    UpdateSandbox,
    ExecRequest,
    CancelRequest,
    SignalRequest,
    TerminalSize,
    MakeFolder,
    Move,
    CreateToken,
    CreateRequest,
    ExecBody,
)
_OPEN = ("/healthz", "/readyz")


def describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Paddock",
        version=__version__,
        summary="Isolated Linux machines for AI agents, in milliseconds",
        routes=app.routes,
    )
    _, bodies = models_json_schema(
        [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(bodies["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "pdk_..."}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # FastAPI adds it wherever there is a parameter; we answer 400.
            operation["responses"].pop("422", None)
            operation["security"] = [] if path in _OPEN else [{"token": []}]
    return document
