"""Reference 5's words."""

from __future__ import annotations

import time

import pytest

from paddock.api.sbx.shapes import (
    CreateRequest,
    ExecBody,
    age_of,
    code_of,
    namespace_of,
    phase_of,
    rfc3339,
    row_of,
    status_of,
)
from paddock.sandboxes.model import Exec, ExecState, Sandbox, State


def exec_with(**fields: object) -> Exec:
    base = {"id": "0123456789abcdef", "sandbox_id": "box", "command": ["x"], "cwd": "/", "created_at": 1.5}
    return Exec.model_validate(base | fields)


def sandbox_with(state: State) -> Sandbox:
    return Sandbox(id="box", runtime="fake", state=state, created_at=0.0, updated_at=0.0, last_active_at=0.0)


def test_go_says_null_for_what_is_empty() -> None:
    wanted = CreateRequest.model_validate_json('{"command": null, "env": null, "allowed_hosts": null}')
    assert (wanted.command, wanted.env, wanted.allowed_hosts) == ([], {}, [])
    assert ExecBody.model_validate_json('{"command": ["a"], "async": true}').asynchronous is True


def test_namespaces_have_the_prefix_once() -> None:
    assert namespace_of("box") == "sbx-box"
    assert namespace_of("sbx-box") == "sbx-box"


@pytest.mark.parametrize("state", list(State))
def test_every_state_is_a_phase_of_a_pod(state: State) -> None:
    assert phase_of(sandbox_with(state)) in {"Pending", "Running", "Succeeded", "Failed"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"state": ExecState.RUNNING}, None),
        ({"state": ExecState.COMPLETED, "exit_code": 0}, 0),
        ({"state": ExecState.FAILED, "exit_code": 7}, 7),
        ({"state": ExecState.FAILED, "signal": 9}, 137),
        ({"state": ExecState.TIMED_OUT}, 124),
        ({"state": ExecState.CANCELED}, 1),
    ],
)
def test_every_end_is_a_number(fields: dict[str, object], code: int | None) -> None:
    assert code_of(exec_with(**fields)) == code


def test_status_has_times_as_the_reference_writes_them() -> None:
    status = status_of(
        exec_with(state=ExecState.COMPLETED, exit_code=0, finished_at=2.0, timeout=30.0), "sbx-box"
    )
    assert (status.sandbox_id, status.exit_code, status.timeout_seconds) == ("sbx-box", 0, 30)
    assert status.started_at == "1970-01-01T00:00:01.500000Z"
    assert status.finished_at == rfc3339(2.0) == "1970-01-01T00:00:02Z"


@pytest.mark.parametrize(
    ("seconds", "age"), [(5, "5s"), (75, "1m15s"), (7260, "2h1m"), (200_000, "2d"), (-5, "0s")]
)
def test_ages_are_short(monkeypatch: pytest.MonkeyPatch, seconds: int, age: str) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert age_of(1_000_000.0 - seconds) == age


def test_a_row_says_when_it_last_ran_something() -> None:
    assert row_of(sandbox_with(State.RUNNING), None).last_exec_time == "-"
    assert row_of(sandbox_with(State.RUNNING), 2.0).last_exec_time == "1970-01-01T00:00:02Z"
