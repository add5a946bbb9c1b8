from __future__ import annotations

import math
import signal
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paddock.sandboxes.requests import (
    LONGEST,
    MAX_COMMAND_BYTES,
    CancelRequest,
    CreateSandbox,
    ExecRequest,
    LimitRequest,
    SignalRequest,
    TerminalSize,
    UpdateSandbox,
    is_name,
)

ALPHANUMERIC = string.ascii_lowercase + string.digits
names = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")


@given(names)
def test_good_names(name: str) -> None:
    assert CreateSandbox(name=name, id=name, tenant=name).name == name
    assert UpdateSandbox(name=name).name == name
    assert is_name(name)


@given(st.text())
def test_a_name_is_a_dns_label_and_nothing_else(text: str) -> None:
    good = 0 < len(text) <= 63 and set(text) <= {*ALPHANUMERIC, "-"} and text[0] != "-" != text[-1]
    assert is_name(text) is good
    for field in ("name", "id", "tenant"):
        if good:
            CreateSandbox.model_validate({field: text})
        else:
            with pytest.raises(ValidationError):
                CreateSandbox.model_validate({field: text})


@pytest.mark.parametrize("name", ["a\n", "..", "a/b", "-a", "a-", "A", "a" * 64, "ä", ""])
def test_names_that_could_leave_a_folder_or_a_line(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ValidationError):
        CreateSandbox(tenant=name)


@pytest.mark.parametrize("number", [0, -1, math.nan, math.inf, LONGEST * 1.01])
@pytest.mark.parametrize("field", ["ttl", "idle_timeout"])
def test_durations(field: str, number: float) -> None:
    for kind in (CreateSandbox, UpdateSandbox):
        with pytest.raises(ValidationError):
            kind.model_validate({field: number})
    with pytest.raises(ValidationError):
        ExecRequest(command=["x"], timeout=number)


@given(st.dictionaries(st.text(), st.text(max_size=300), max_size=5))
def test_what_is_accepted_as_environment_can_be_given_to_a_process(variables: dict[str, str]) -> None:
    try:
        accepted = ExecRequest(command=["x"], environment=variables).environment
    except ValidationError:
        assert any(not k or "=" in k or "\0" in k + v or _odd(k) or _odd(v) for k, v in variables.items())
        return
    for name, value in accepted.items():
        line = f"{name}={value}".encode()
        assert b"\0" not in line
        assert line.split(b"=", 1)[0] == name.encode() != b""


def _odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@given(st.lists(st.text(max_size=50), max_size=10))
def test_commands(words: list[str]) -> None:
    good = bool(words) and words[0] != "" and not any("\0" in word or _odd(word) for word in words)
    try:
        assert ExecRequest(command=words).command == words
        assert good
    except ValidationError:
        assert not good


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["x" * (MAX_COMMAND_BYTES + 1)]},
        {"command": ["x"] * 4097},
        {"command": ["x"], "environment": {"A": "x" * (128 << 10)}},
        {"command": ["x"], "stdin": "a", "stdin_base64": "YQ=="},
        {"command": ["x"], "id": "short"},
        {"command": ["x"], "id": "../../../../etc"},
        {"command": ["x"], "id": "x" * 65},
        {"command": ["x"], "cwd": ""},
        {"command": ["x"], "cwd": "a\0b"},
        {"command": ["x"], "unknown": 1},
        {"command": ["x"], "labels": {"-bad": "x"}},
        {"command": ["x"], "labels": {"good": "x" * 257}},
        {"command": ["x"], "terminal": {"rows": 0}},
    ],
)
def test_what_an_exec_may_not_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ExecRequest.model_validate(fields)


@pytest.mark.parametrize(
    ("given_", "number"),
    [(9, 9), (64, 64), ("KILL", 9), ("sigterm", 15), ("Usr1", signal.SIGUSR1), ("SIGWINCH", signal.SIGWINCH)],
)
def test_signals(given_: int | str, number: int) -> None:
    assert SignalRequest(signal=given_).signal == number


@pytest.mark.parametrize("bad", [0, -9, 65, "", "SIG", "NOPE", "9x"])
def test_no_signals(bad: int | str) -> None:
    with pytest.raises(ValidationError):
        SignalRequest(signal=bad)


@pytest.mark.parametrize(
    "fields",
    [{"memory": 1}, {"cpus": 0}, {"cpus": math.nan}, {"processes": 1}, {"disk": 0}, {"open_files": 1}],
)
def test_limits_have_a_least(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LimitRequest.model_validate(fields)


def test_what_was_given_is_told_apart_from_what_was_left_out() -> None:
    assert UpdateSandbox.model_validate({"ttl": None}).model_fields_set == {"ttl"}
    assert UpdateSandbox().model_fields_set == set()


def test_defaults() -> None:
    assert (TerminalSize().rows, TerminalSize().columns) == (24, 80)
    assert CancelRequest().grace == 2.0
    assert CreateSandbox().limits == LimitRequest()
