"""Records and ends of execs, with only what a test cares about said."""

from __future__ import annotations

from paddock.guest.wire import Exit, Outcome, Stage
from paddock.sandboxes.model import Exec, SandboxRecord, State


def sandbox(**fields: object) -> SandboxRecord:
    values: dict[str, object] = {
        "id": "sb-one",
        "runtime": "fake",
        "state": State.RUNNING,
        "created_at": 1000.0,
        "updated_at": 1000.0,
        "last_active_at": 1000.0,
        "secret": "00" * 32,
        "slot": 1,
    }
    return SandboxRecord.model_validate(values | fields)


def exec_(**fields: object) -> Exec:
    values: dict[str, object] = {
        "id": "ex00000001",
        "sandbox_id": "sb-one",
        "command": ["true"],
        "cwd": "/workspace",
        "created_at": 1000.0,
    }
    return Exec.model_validate(values | fields)


def ended(
    outcome: Outcome = Outcome.EXITED,
    code: int = 0,
    stage: Stage = Stage.NONE,
    stdout: int = 0,
    stderr: int = 0,
) -> Exit:
    return Exit(
        outcome=outcome,
        stage=stage,
        code=code,
        end=stdout + stderr,
        stdout_bytes=stdout,
        stderr_bytes=stderr,
        started_ns=2_000_000_000,
        finished_ns=3_500_000_000,
        user_us=1_500_000,
        system_us=250_000,
        max_rss_kib=2048,
    )
