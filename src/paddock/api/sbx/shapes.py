"""Reference 5's words for what the core has."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from paddock.sandboxes.model import Exec, ExecState, Sandbox, State

PREFIX = "sbx-"
"""A sandbox's namespace is its id with this before it. Either names it."""
POD = "sandbox"
MAX_TIMEOUT = 21600


def _listed(value: Any) -> Any:
    return [] if value is None else value


def _mapped(value: Any) -> Any:
    return {} if value is None else value


# The reference's own client is written in Go, whose empty lists and maps are null on the wire.
Words = Annotated[list[str], BeforeValidator(_listed)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore")


class SbxError(BaseModel):
    error: str


class CreateRequest(_Shape):
    id: str = ""
    image: str = ""
    command: Words = []
    volume_mode: str = ""
    cache_mode: str = ""
    cache_pvc_size: str = ""
    cache_pvc_storage_class: str = ""
    cache_pvc_access_mode: str = ""
    env: Annotated[dict[str, str], BeforeValidator(_mapped)] = {}
    allowed_hosts: Words = []
    disallowed_hosts: Words = []


class ExecBody(_Shape):
    command: Words = []
    asynchronous: bool | None = Field(None, alias="async")
    timeout_seconds: int | None = None


class Created(BaseModel):
    id: str
    namespace: str
    pod_name: str = POD


class Shown(Created):
    phase: str


class Row(BaseModel):
    id: str
    namespace: str
    age: str
    state: str
    allocated: Literal["true", "false"] = "true"
    last_exec_time: str


class ExecAnswer(BaseModel):
    """`stdout` and `stderr` are left out when empty; `exit_code` never is."""

    stdout: str | None = None
    stderr: str | None = None
    exec_id: str | None = None
    status: str
    exit_code: int | None = None


class ExecStatus(BaseModel):
    sandbox_id: str
    exec_id: str
    status: str
    exit_code: int | None = None
    started_at: str
    finished_at: str | None = None
    timeout_seconds: int | None = None
    error: str | None = None


class Deleted(BaseModel):
    status: Literal["deleted"] = "deleted"


_PHASES = {
    State.CREATING: "Pending",
    State.RUNNING: "Running",
    State.PAUSED: "Running",
    State.STOPPING: "Running",
    State.STOPPED: "Succeeded",
    State.FAILED: "Failed",
    State.DELETED: "Succeeded",
}


def namespace_of(sandbox_id: str) -> str:
    return sandbox_id if sandbox_id.startswith(PREFIX) else PREFIX + sandbox_id


def phase_of(sandbox: Sandbox) -> str:
    return _PHASES[State(sandbox.state)]


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def age_of(created_at: float) -> str:
    """As kubectl writes ages: 42s, 5m12s, 3h7m, 9d."""
    seconds = max(0, int(time.time() - created_at))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60}m"
    return f"{seconds // 86400}d"


def row_of(sandbox: Sandbox, last_exec: float | None) -> Row:
    return Row(
        id=sandbox.id,
        namespace=namespace_of(sandbox.id),
        age=age_of(sandbox.created_at),
        state=phase_of(sandbox),
        last_exec_time=rfc3339(last_exec) if last_exec is not None else "-",
    )


def code_of(exec_: Exec) -> int | None:
    """The reference knows only numbers: a signal is 128 and its own, a timeout 124."""
    if exec_.exit_code is not None or not exec_.state.ended:
        return exec_.exit_code
    if exec_.state is ExecState.TIMED_OUT:
        return 124
    return 128 + exec_.signal if exec_.signal else 1


def status_of(exec_: Exec, shown_id: str) -> ExecStatus:
    return ExecStatus(
        sandbox_id=shown_id,
        exec_id=exec_.id,
        status=exec_.state.value,
        exit_code=code_of(exec_),
        started_at=rfc3339(exec_.started_at or exec_.created_at),
        finished_at=rfc3339(exec_.finished_at) if exec_.finished_at is not None else None,
        timeout_seconds=round(exec_.timeout) if exec_.timeout else None,
        error=exec_.error,
    )
