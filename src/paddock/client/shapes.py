"""What the server answers, as types.

At run time these are plain dictionaries: nothing is copied, checked or lost.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class LimitSet(TypedDict):
    memory: int | None
    cpus: float | None
    processes: int | None
    disk: int | None
    open_files: int


class Sandbox(TypedDict):
    id: str
    name: str | None
    tenant: str | None
    template: str
    runtime: str
    image: str | None
    state: str
    reason: str | None
    message: str | None
    labels: dict[str, str]
    metadata: dict[str, Any]
    environment: dict[str, str]
    limits: LimitSet
    enforcement: dict[str, str]
    strict: bool
    network: str
    workspace: str
    home: str
    outputs: str
    ttl: float | None
    idle_timeout: float | None
    auto_delete: float | None
    created_at: float
    started_at: float | None
    updated_at: float
    ended_at: float | None
    last_active_at: float
    expires_at: float | None
    created_by: str | None


class Stats(TypedDict):
    memory: int | None
    memory_peak: int | None
    cpu_seconds: float | None
    processes: int | None
    disk: int | None
    oom_kills: int | None
    execs_running: int


class Exec(TypedDict):
    id: str
    sandbox_id: str
    command: list[str]
    cwd: str
    user: str | None
    terminal: bool
    background: bool
    state: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    error: str | None
    pid: int | None
    timeout: float | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    stdout_bytes: int
    stderr_bytes: int
    dropped_bytes: int
    stdin_bytes: int


class TerminalSize(TypedDict):
    rows: int
    columns: int


class ExecRequest(TypedDict, total=False):
    id: str
    command: list[str]
    cwd: str
    environment: dict[str, str]
    user: str
    timeout: float
    terminal: TerminalSize
    open_stdin: bool
    background: bool


class Entry(TypedDict):
    name: str
    path: str
    type: Literal["file", "directory", "symlink", "fifo", "socket", "block", "char"]
    size: int
    mode: str
    uid: int
    gid: int
    mtime: int
    target: str | None


class Listing(TypedDict):
    entries: list[Entry]
    truncated: bool


ENDED_STATES = frozenset({"completed", "failed", "timed_out", "canceled"})
"""States from which an exec does not come back."""
