"""From what a caller asks to run, to what the guest is told to start, and back from what the guest says."""

from __future__ import annotations

import errno
import os
import time
from base64 import b64decode
from binascii import Error as Base64Error
from posixpath import join
from secrets import token_hex

from pydantic import ValidationError

from paddock.config import Settings
from paddock.errors import Invalid
from paddock.guest.wire import MIN_WINDOW, Exit, Outcome, Stage, Start
from paddock.runtimes.base import UID, USER
from paddock.sandboxes.lifecycle import exec_end
from paddock.sandboxes.model import Exec, SandboxRecord, Usage
from paddock.sandboxes.requests import ExecRequest

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_METADATA = 60 << 10
WINDOW = 4 << 20
"""Output on its way. With a quarter of what is kept it cannot push out what a follower has yet to read."""
LONGEST_AGO = 1e11
"""Seconds since 1970 that no clock shows: what is beyond, or no number at all, was not written by us."""
_FRESH = {
    name: Exec.model_fields[name].default
    for name in (
        "state", "exit_code", "signal", "reason", "error", "pid", "started_at", "finished_at",
        "stdout_bytes", "stderr_bytes", "dropped_bytes", "stdin_bytes", "usage",
    )
}  # fmt: skip
"""What nobody knows at the start. Given by name: looking up a default is the dearer way."""
TIMED_OUT_CODE = 124
"""As timeout(1) has it."""


def new_exec_id() -> str:
    return "ex" + token_hex(8)


def describe(sandbox: SandboxRecord, request: ExecRequest, settings: Settings, by: str | None) -> Exec:
    """The exec's record, before it starts."""
    if request.user not in (None, USER, str(UID)):
        raise Invalid(
            f"there is no user {request.user!r} in this sandbox",
            reason="user_unknown",
            hint=f"commands run as {USER} (uid {UID}); root is not available",
        )
    timeout = request.timeout if request.timeout is not None else settings.exec_timeout
    if timeout is not None and timeout > settings.max_exec_timeout:
        raise Invalid(
            f"the timeout is longer than {settings.max_exec_timeout:g} seconds",
            reason="timeout_too_long",
            hint="ask for less, or raise max_exec_timeout in the server's settings",
        )
    return Exec.model_construct(
        **_FRESH,
        id=request.id or new_exec_id(),
        sandbox_id=sandbox.id,
        command=request.command,
        cwd=join(sandbox.workspace, request.cwd) if request.cwd else sandbox.workspace,
        user=request.user,
        terminal=request.terminal is not None,
        background=request.background,
        timeout=timeout,
        labels=request.labels,
        created_at=time.time(),
        created_by=by,
    )


def environment_of(sandbox: SandboxRecord, request: ExecRequest) -> dict[str, str]:
    base = {
        "PATH": f"{sandbox.home}/.local/bin:{PATH}",
        "HOME": sandbox.home,
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PADDOCK_SANDBOX_ID": sandbox.id,
    }
    if request.terminal is not None:
        base["TERM"] = "xterm-256color"
    return base | sandbox.environment | request.environment


def input_of(request: ExecRequest) -> bytes | None:
    """The input that came with the request."""
    if request.stdin is not None:
        return os.fsencode(request.stdin)
    if request.stdin_base64 is not None:
        try:
            return b64decode(request.stdin_base64, validate=True)
        except Base64Error:
            raise Invalid("stdin_base64 is not base64", reason="invalid") from None
    return None


def to_start(sandbox: SandboxRecord, request: ExecRequest, record: Exec, output_limit: int) -> Start:
    metadata = record.model_dump_json(exclude_defaults=True).encode("utf-8", "surrogatepass")
    if len(metadata) > MOST_METADATA:
        # The whole record is in the store before the start; the guest only has to name it.
        metadata = (
            Exec.model_construct(
                id=record.id, sandbox_id=record.sandbox_id, command=[], cwd="", created_at=record.created_at
            )
            .model_dump_json(exclude_defaults=True)
            .encode()
        )
    size = request.terminal
    return Start(
        argv=[os.fsencode(word) for word in record.command],
        environment=[os.fsencode(f"{k}={v}") for k, v in environment_of(sandbox, request).items()],
        cwd=os.fsencode(record.cwd),
        metadata=metadata,
        terminal=size is not None,
        stdin=request.open_stdin or request.stdin is not None or request.stdin_base64 is not None,
        rows=size.rows if size else 24,
        columns=size.columns if size else 80,
        timeout_ms=max(1, round(record.timeout * 1000)) if record.timeout else 0,
        window=max(MIN_WINDOW, min(WINDOW, output_limit // 4)),
    )


def from_metadata(sandbox_id: str, metadata: bytes) -> Exec | None:
    """The record that a guest gives back. It is untrusted: one of its own sandbox, or nothing."""
    try:
        told = Exec.model_validate_json(metadata)
        asked = ExecRequest(
            id=told.id, command=told.command or ["-"], labels=told.labels, timeout=told.timeout
        )
    except ValidationError:
        return None
    if told.sandbox_id != sandbox_id or not 0 <= told.created_at < LONGEST_AGO:
        return None
    # Only what is said at the start: how it goes and how it ended is not for metadata to tell.
    return Exec(
        id=told.id,
        sandbox_id=sandbox_id,
        command=told.command,
        cwd=told.cwd,
        user=told.user,
        terminal=told.terminal,
        background=told.background,
        timeout=asked.timeout,
        labels=told.labels,
        created_at=told.created_at,
        created_by=told.created_by,
    )


_NOT_STARTED = {
    errno.ENOENT: (127, "command_not_found", "there is no such command"),
    errno.EACCES: (126, "not_executable", "it may not be executed"),
    errno.ENOEXEC: (126, "not_executable", "it is not a program"),
    errno.EAGAIN: (126, "process_limit", "the sandbox has reached its process limit"),
    errno.ENOMEM: (126, "out_of_memory", "the sandbox has reached its memory limit"),
    errno.E2BIG: (126, "command_too_long", "command and environment are too long"),
}
_STAGES = {
    Stage.WORKING_DIRECTORY: (126, "bad_cwd", "cannot enter the working directory"),
    Stage.USER: (126, "user_unknown", "cannot become that user"),
}


def conclude(record: Exec, exit: Exit) -> None:
    """Write into the record how its process ended."""
    record.state = exec_end(record.state, exit.outcome, exit.code)
    record.finished_at = exit.finished_ns / 1e9
    if exit.started_ns:
        record.started_at = exit.started_ns / 1e9
    record.stdout_bytes, record.stderr_bytes = exit.stdout_bytes, exit.stderr_bytes
    record.usage = Usage.model_construct(
        user_seconds=exit.user_us / 1e6, system_seconds=exit.system_us / 1e6, max_rss=exit.max_rss_kib << 10
    )
    match exit.outcome:
        case Outcome.EXITED:
            record.exit_code = exit.code
        case Outcome.SIGNALED:
            record.signal, record.exit_code = exit.code, 128 + exit.code
        case Outcome.NOT_STARTED:
            _explain(record, exit)
        case Outcome.TIMED_OUT:
            record.exit_code, record.reason = TIMED_OUT_CODE, "timeout"
            record.error = f"it ran longer than {record.timeout:g} seconds" if record.timeout else "timed out"
            record.signal = -exit.code if exit.code < 0 else None
        case Outcome.KILLED:
            record.signal = -exit.code if exit.code < 0 else None
            record.exit_code = 128 - exit.code if exit.code < 0 else exit.code


def _explain(record: Exec, exit: Exit) -> None:
    fallback = (126, "not_started", "it could not be started")
    known = _STAGES.get(exit.stage) or _NOT_STARTED.get(exit.code, fallback)
    record.exit_code, record.reason, why = known
    command = record.command[0] if record.command else "?"
    what = record.cwd if exit.stage is Stage.WORKING_DIRECTORY else command
    record.error = f"{what}: {why} ({os.strerror(exit.code)})"
