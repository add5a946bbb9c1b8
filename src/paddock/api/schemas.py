"""Shapes that only the API knows: errors, pages, requests of its own."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from paddock.auth import Token
from paddock.sandboxes.model import Exec, LimitSet, Sandbox
from paddock.sandboxes.requests import Path, Request, Seconds, Text


class ErrorBody(BaseModel):
    error: str = Field(description="What happened, for people")
    reason: str = Field(description="A stable word, for programs")
    hint: str | None = Field(None, description="What to do next")


class SandboxPage(BaseModel):
    sandboxes: list[Sandbox]
    next: str | None = Field(description="Give it as `after` for the next page; null: that was all")


class ExecList(BaseModel):
    execs: list[Exec]


class MakeFolder(Request):
    path: Path
    mode: str | None = Field(None, pattern=r"^0?[0-7]{3,4}$", description="In octal, as chmod has it")
    parents: bool = True


class Move(Request):
    source: Path
    target: Path
    overwrite: bool = True


class StdinTaken(BaseModel):
    exec: Exec
    received: int = Field(description="Bytes of this call")


class EventBody(BaseModel):
    id: int
    at: float
    kind: str
    sandbox_id: str | None = None
    exec_id: str | None = None
    data: dict[str, Any] = {}


class EventPage(BaseModel):
    events: list[EventBody]
    last: int = Field(description="The newest event's id")


RoleName = Literal["observer", "operator", "admin"]


class CreateToken(Request):
    name: Text
    role: RoleName = "operator"
    expires_in: Seconds | None = Field(None, description="Seconds from now; never when left out")


class TokenBody(BaseModel):
    id: str
    name: str
    role: RoleName
    created_at: float
    last_used_at: float | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    @classmethod
    def of(cls, token: Token) -> "TokenBody":
        return cls(
            id=token.id,
            name=token.name,
            role=token.role.value,
            created_at=token.created_at,
            last_used_at=token.last_used_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
        )


class NewToken(TokenBody):
    secret: str = Field(description="To be had only now")


class TokenList(BaseModel):
    tokens: list[TokenBody]


class AuditLine(BaseModel):
    id: int
    at: float
    actor: str
    role: str
    action: str
    target: str
    outcome: str
    detail: dict[str, Any]


class AuditPage(BaseModel):
    entries: list[AuditLine]
    next: int | None = Field(description="Give it as `before` for the next page; null: that was all")


class AbilityBody(BaseModel):
    name: str
    works: bool
    detail: str = ""
    fix: str = ""


class RuntimeInfo(BaseModel):
    name: str
    works: bool
    pausable: bool
    abilities: list[AbilityBody]


class Info(BaseModel):
    version: str
    default_runtime: str
    runtimes: list[RuntimeInfo]
    limits: LimitSet
    max_request_bytes: int
    max_exec_timeout: float
    authentication: bool
    you: str = Field(description="The name of the token that asks")
    role: str


class Check(BaseModel):
    """One thing that the doctor tried."""

    name: str
    works: bool
    detail: str = ""
    fix: str = ""


class DoctorReport(BaseModel):
    healthy: bool
    checks: list[Check]
