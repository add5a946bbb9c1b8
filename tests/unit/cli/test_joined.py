from __future__ import annotations

import re

import pytest

from paddock.cli.joined import ExecOptions, words
from paddock.errors import Invalid


def test_a_plain_request_has_an_id_and_the_command() -> None:
    request = ExecOptions().request(["ls", "-l"])
    assert set(request) == {"id", "command"}
    # The server's rule for ids.
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{7,63}", request["id"])
    assert ExecOptions().request(["ls"])["id"] != request["id"]


def test_options_become_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "1")
    options = ExecOptions(True, False, ["A=b", "HERE", "GONE"], "/w", "user", "1m", "my-exec-id")
    assert options.request(["x"]) == {
        "id": "my-exec-id",
        "command": ["x"],
        "environment": {"A": "b", "HERE": "1"},
        "cwd": "/w",
        "user": "user",
        "timeout": 60.0,
        "open_stdin": True,
    }


def test_a_terminal_has_a_size() -> None:
    terminal = ExecOptions(tty=True).request(["x"])["terminal"]
    assert terminal["rows"] >= 1
    assert terminal["columns"] >= 1


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (["ls"], ["ls"]),
        (["--", "ls"], ["ls"]),
        (["--", "-x"], ["-x"]),
        (["ls", "--", "x"], ["ls", "--", "x"]),
        (["--", "--"], ["--"]),
    ],
)
def test_the_command_behind_the_sandbox(line: list[str], command: list[str]) -> None:
    assert words(line) == command


@pytest.mark.parametrize("line", [[], ["--"], ["-i", "cat"], ["--json"]])
def test_no_command_or_a_lost_option(line: list[str]) -> None:
    with pytest.raises(Invalid):
        words(line)
