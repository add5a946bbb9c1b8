"""What every route of /api/v1 has in common."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Path

from paddock.api.access import API
from paddock.api.schemas import ErrorBody
from paddock.api.services import Services, services_of
from paddock.errors import NotFound

Given: TypeAlias = Annotated[Services, Depends(services_of)]
Ref: TypeAlias = Annotated[str, Path(description="A sandbox's id or name")]
ExecId: TypeAlias = Annotated[str, Path(description="An exec's id")]

_EXEC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_WHY = {
    400: "What was asked makes no sense",
    401: "No token, or a wrong one",
    403: "The token's role does not allow this, or the Host or Origin is foreign",
    404: "There is no such thing",
    409: "It exists already, or its state forbids this",
    410: "It was there and has ended",
    413: "The body is too large",
    429: "Too many requests",
    500: "The server failed",
    501: "This runtime or host cannot do it",
    503: "A guest, engine or the store is away: try again",
    504: "It did not happen in time",
    507: "No room: disk, processes or slots",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": why} for status, why in _WHY.items()
}


def router(tag: str) -> APIRouter:
    return APIRouter(prefix=API, tags=[tag], responses=ERRORS, redirect_slashes=False)


def exec_id_of(text: str) -> str:
    """An exec's id that could exist: nothing else goes to the store."""
    if not _EXEC_ID.fullmatch(text):
        raise NotFound("there is no such exec", reason="exec_not_found")
    return text
