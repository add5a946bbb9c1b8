"""What a sandbox and an exec are, as kept in the store and as shown to clients."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from paddock.runtimes.base import HOME, OUTPUTS, WORKSPACE, Enforcement


class State(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETED = "deleted"


class ExecState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELING = "canceling"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        return self not in (ExecState.RUNNING, ExecState.CANCELING)


class LimitSet(BaseModel):
    """What a sandbox may use. Sizes in bytes; null: not limited."""

    model_config = ConfigDict(frozen=True)

    memory: int | None = None
    cpus: float | None = None
    processes: int | None = None
    disk: int | None = None
    open_files: int = 1024


class Sandbox(BaseModel):
    """A sandbox as clients see it."""

    id: str
    name: str | None = None
    tenant: str | None = None
    template: str = "default"
    runtime: str
    image: str | None = None
    state: State = State.CREATING
    reason: str | None = Field(None, description="Why it failed or stopped: a stable word")
    message: str | None = Field(None, description="The same for people")
    labels: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    environment: dict[str, str] = {}
    limits: LimitSet = LimitSet()
    enforcement: dict[str, Enforcement] = Field({}, description="How well each limit holds on this host")
    strict: bool = False
    network: Literal["none"] = "none"
    workspace: str = WORKSPACE
    home: str = HOME
    outputs: str = OUTPUTS
    ttl: float | None = None
    idle_timeout: float | None = None
    auto_delete: float | None = Field(None, description="Seconds from its end to its deletion")
    created_at: float
    started_at: float | None = None
    updated_at: float
    ended_at: float | None = None
    last_active_at: float
    expires_at: float | None = None
    created_by: str | None = None


class SandboxRecord(Sandbox):
    """A sandbox as the store keeps it: with what only the server may know."""

    secret: str
    slot: int
    disk_exact: bool = False
    handle: dict[str, Any] | None = None
    command: list[str] = []
    """Started with the sandbox, as reference 5's `command`."""

    def public(self) -> Sandbox:
        return Sandbox.model_construct(**{name: getattr(self, name) for name in Sandbox.model_fields})


class Usage(BaseModel):
    """What an exec used in all."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss: int = 0


class Exec(BaseModel):
    """One process started through the API."""

    id: str
    sandbox_id: str
    command: list[str]
    cwd: str
    user: str | None = None
    terminal: bool = False
    background: bool = False
    state: ExecState = ExecState.RUNNING
    exit_code: int | None = None
    signal: int | None = Field(None, description="The signal that ended it")
    reason: str | None = Field(None, description="Why it failed: a stable word")
    error: str | None = None
    pid: int | None = Field(None, description="Its pid inside the sandbox")
    timeout: float | None = None
    labels: dict[str, str] = {}
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    dropped_bytes: int = Field(0, description="The oldest output that retention has dropped")
    stdin_bytes: int = 0
    usage: Usage | None = None
    created_by: str | None = None


class ExecResult(Exec):
    """A foreground exec with its output."""

    stdout: str = ""
    stderr: str = ""
    encoding: Literal["utf-8", "base64"] = "utf-8"
    truncated: bool = Field(False, description="There was more than fits here: read it from the output call")


class Entry(BaseModel):
    """A file, folder or link in a sandbox."""

    name: str
    path: str
    type: Literal["file", "directory", "symlink", "fifo", "socket", "block", "char"]
    size: int
    mode: str
    uid: int
    gid: int
    mtime: int = Field(description="Nanoseconds since 1970")
    target: str | None = None


class Listing(BaseModel):
    entries: list[Entry]
    truncated: bool = False


class FileEvent(BaseModel):
    event: Literal["ready", "created", "modified", "deleted", "moved", "overflow"]
    path: str | None = None
    to: str | None = None


class Unpacked(BaseModel):
    files: int
    bytes: int


class SandboxStats(BaseModel):
    """What a sandbox uses now. null: this host cannot tell."""

    memory: int | None = None
    memory_peak: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    disk: int | None = None
    oom_kills: int | None = None
    execs_running: int = 0
