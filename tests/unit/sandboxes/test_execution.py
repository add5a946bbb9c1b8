from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config import Settings
from paddock.errors import Invalid
from paddock.guest.wire import MAX_METADATA, MIN_WINDOW, Outcome, Stage
from paddock.sandboxes.execution import (
    WINDOW,
    conclude,
    describe,
    environment_of,
    from_metadata,
    input_of,
    new_exec_id,
    to_start,
)
from paddock.sandboxes.model import Exec, ExecState
from paddock.sandboxes.requests import ExecRequest, TerminalSize
from tests.unit.sandboxes.makings import ended, exec_, sandbox

SETTINGS = Settings()


def test_describe() -> None:
    request = ExecRequest(command=["ls"], cwd="sub", labels={"a": "b"}, background=True, timeout=5)
    record = describe(sandbox(), request, SETTINGS, "me")
    assert (record.sandbox_id, record.command, record.cwd) == ("sb-one", ["ls"], "/workspace/sub")
    assert (record.labels, record.background, record.timeout) == ({"a": "b"}, True, 5)
    assert (record.created_by, record.state, record.terminal) == ("me", ExecState.RUNNING, False)
    assert record == Exec.model_validate(record.model_dump())
    assert describe(sandbox(), ExecRequest(command=["ls"], cwd="/etc"), SETTINGS, None).cwd == "/etc"
    assert describe(sandbox(), ExecRequest(command=["ls"]), SETTINGS, None).cwd == "/workspace"
    given_id = describe(sandbox(), ExecRequest(command=["ls"], id="chosen-id"), SETTINGS, None)
    assert given_id.id == "chosen-id"


def test_ids_differ_and_are_valid() -> None:
    ids = {new_exec_id() for _ in range(100)}
    assert len(ids) == 100
    for one in ids:
        ExecRequest(command=["x"], id=one)


def test_users_and_timeouts() -> None:
    for user in ("paddock", "1000", None):
        describe(sandbox(), ExecRequest(command=["x"], user=user), SETTINGS, None)
    for user in ("root", "0", ""):
        with pytest.raises(Invalid):
            describe(sandbox(), ExecRequest(command=["x"], user=user), SETTINGS, None)
    limited = Settings(exec_timeout=7.0, max_exec_timeout=10.0)
    assert describe(sandbox(), ExecRequest(command=["x"]), limited, None).timeout == 7
    with pytest.raises(Invalid) as caught:
        describe(sandbox(), ExecRequest(command=["x"], timeout=11), limited, None)
    assert caught.value.reason == "timeout_too_long"


def test_environment() -> None:
    box = sandbox(environment={"A": "box", "B": "box", "HOME": "/elsewhere"})
    found = environment_of(box, ExecRequest(command=["x"], environment={"B": "exec"}))
    assert (found["A"], found["B"], found["HOME"]) == ("box", "exec", "/elsewhere")
    assert found["PADDOCK_SANDBOX_ID"] == "sb-one"
    assert "TERM" not in found
    assert "TERM" in environment_of(box, ExecRequest(command=["x"], terminal=TerminalSize()))


def test_input() -> None:
    assert input_of(ExecRequest(command=["x"])) is None
    assert input_of(ExecRequest(command=["x"], stdin="")) == b""
    assert input_of(ExecRequest(command=["x"], stdin="ü")) == "ü".encode()
    assert input_of(ExecRequest(command=["x"], stdin_base64="AP8=")) == b"\x00\xff"
    for bad in ("*", "AP8", "AP 8="):
        with pytest.raises(Invalid):
            input_of(ExecRequest(command=["x"], stdin_base64=bad))


def start_of(limit: int = 64 << 20, **fields: Any) -> tuple[Exec, Any]:
    request = ExecRequest(**({"command": ["x"]} | fields))
    record = describe(sandbox(), request, SETTINGS, None)
    return record, to_start(sandbox(), request, record, limit)


def test_start() -> None:
    _, start = start_of(command=["a", "ü"], timeout=0.0001, terminal=TerminalSize(rows=5, columns=6))
    assert start.argv == [b"a", "ü".encode()]
    assert (start.terminal, start.rows, start.columns, start.timeout_ms) == (True, 5, 6, 1)
    assert b"PADDOCK_SANDBOX_ID=sb-one" in start.environment
    assert start.cwd == b"/workspace"
    assert not start_of()[1].stdin
    for fields in ({"stdin": ""}, {"stdin_base64": ""}, {"open_stdin": True}):
        assert start_of(**fields)[1].stdin
    assert start_of()[1].timeout_ms == 0
    for start in (start_of()[1], start_of(command=["x" * 100] * 500)[1]):
        start.pack()


def test_what_is_on_its_way_fits_into_what_is_kept() -> None:
    assert start_of()[1].window == WINDOW
    assert start_of(limit=1 << 20)[1].window == 256 << 10
    assert start_of(limit=1)[1].window == MIN_WINDOW


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=9
    )
)
def test_metadata_gives_the_record_back(words: list[str]) -> None:
    record, start = start_of(command=["x", *words], labels={"k": "v"}, timeout=3)
    assert from_metadata("sb-one", start.metadata) == record


def test_metadata_of_a_long_command_names_it() -> None:
    record, start = start_of(command=["\x01" * 60_000, "y" * 60_000])
    assert len(start.metadata) < MAX_METADATA
    found = from_metadata("sb-one", start.metadata)
    assert found is not None
    assert found.id == record.id


GOOD = {"id": "ex00000001", "sandbox_id": "sb-one", "command": ["x"], "cwd": "/", "created_at": 1000.0}


@pytest.mark.parametrize(
    "change",
    [
        {"sandbox_id": "sb-other"},
        {"id": "../../../etc"},
        {"id": "a/b/c/d/e"},
        {"id": "x"},
        {"id": 5},
        {"command": "x"},
        {"command": ["a\0b"]},
        {"labels": {"-": "x"}},
        {"created_at": -1},
        {"created_at": 1e300},
        {"timeout": -5},
        {"state": "asleep"},
    ],
)
def test_metadata_that_was_not_written_by_us(change: dict[str, Any]) -> None:
    assert from_metadata("sb-one", json.dumps(GOOD).encode()) is not None
    assert from_metadata("sb-one", json.dumps(GOOD | change).encode()) is None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none(number: str) -> None:
    text = json.dumps(GOOD).replace("1000.0", number)
    assert from_metadata("sb-one", text.encode()) is None


@given(
    st.one_of(
        st.binary(),
        st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps).map(str.encode),
    )
)
def test_any_metadata_is_a_record_or_nothing(metadata: bytes) -> None:
    assert from_metadata("sb-one", metadata) is None


def test_a_guest_cannot_say_how_it_ended_before_it_has() -> None:
    lies = {
        "state": "completed",
        "exit_code": 0,
        "finished_at": 5.0,
        "stdout_bytes": 10**15,
        "reason": "fine",
        "usage": {"max_rss": 1},
    }
    record = from_metadata("sb-one", json.dumps(GOOD | lies).encode())
    assert record == Exec.model_validate(GOOD)


@pytest.mark.parametrize(
    ("outcome", "code", "state", "exit_code", "signal", "reason"),
    [
        (Outcome.EXITED, 0, "completed", 0, None, None),
        (Outcome.EXITED, 3, "failed", 3, None, None),
        (Outcome.SIGNALED, 11, "failed", 139, 11, None),
        (Outcome.TIMED_OUT, 0, "timed_out", 124, None, "timeout"),
        (Outcome.TIMED_OUT, -9, "timed_out", 124, 9, "timeout"),
        (Outcome.KILLED, 5, "canceled", 5, None, None),
        (Outcome.KILLED, -15, "canceled", 143, 15, None),
    ],
)
def test_conclude(
    outcome: Outcome, code: int, state: str, exit_code: int, signal: int | None, reason: str | None
) -> None:
    record = exec_(timeout=4)
    conclude(record, ended(outcome, code, stdout=3, stderr=4))
    assert (record.state, record.exit_code, record.signal, record.reason) == (
        state,
        exit_code,
        signal,
        reason,
    )
    assert (record.started_at, record.finished_at) == (2.0, 3.5)
    assert (record.stdout_bytes, record.stderr_bytes) == (3, 4)
    assert record.usage is not None
    assert (record.usage.user_seconds, record.usage.max_rss) == (1.5, 2 << 20)


@pytest.mark.parametrize(
    ("stage", "code", "exit_code", "reason"),
    [
        (Stage.EXEC, errno.ENOENT, 127, "command_not_found"),
        (Stage.EXEC, errno.EACCES, 126, "not_executable"),
        (Stage.EXEC, errno.ENOEXEC, 126, "not_executable"),
        (Stage.EXEC, errno.E2BIG, 126, "command_too_long"),
        (Stage.WORKING_DIRECTORY, errno.ENOENT, 126, "bad_cwd"),
        (Stage.WORKING_DIRECTORY, errno.EACCES, 126, "bad_cwd"),
        (Stage.USER, errno.EPERM, 126, "user_unknown"),
        (Stage.SET_UP, errno.EAGAIN, 126, "process_limit"),
        (Stage.SET_UP, errno.ENOMEM, 126, "out_of_memory"),
        (Stage.SET_UP, 9999, 126, "not_started"),
        (Stage.LIMITS, -1, 126, "not_started"),
    ],
)
def test_what_did_not_start_says_why(stage: Stage, code: int, exit_code: int, reason: str) -> None:
    record = exec_(command=["prog"], cwd="/there")
    conclude(record, ended(Outcome.NOT_STARTED, code, stage))
    assert (record.state, record.exit_code, record.reason) == ("failed", exit_code, reason)
    assert record.error is not None
    assert record.error.startswith("/there" if stage is Stage.WORKING_DIRECTORY else "prog")
