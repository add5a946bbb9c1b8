"""One request as the gate sees it, from its arrival to its line in the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from paddock.api.access import Rule
from paddock.auth import Principal

KEY = "paddock.call"


@dataclass(slots=True)
class Call:
    request_id: str
    rule: Rule
    target: str
    principal: Principal | None = None
    reason: str | None = None
    """Why it failed, when it did."""
    exempt: bool = False
    """The handler wants no audit line after all."""


def call_of(connection: HTTPConnection) -> Call:
    call: Call = connection.scope[KEY]
    return call


def actor(connection: HTTPConnection) -> str | None:
    """For `created_by`: nobody in particular on a server without authentication."""
    principal = call_of(connection).principal
    return principal.name if principal and principal.token_id else None
