from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stdout

import pytest

from paddock.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_a_table_without_a_terminal_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("id", "name"), [("a1", "x"), ("b22", None), ("c", "\x1b[31mred")])
    assert capsys.readouterr().out == "ID   NAME\na1   x\nb22  -\nc    [31mred\n"


def test_a_table_on_a_terminal_has_colours_and_no_foreign_escapes(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        output.table(("id", "state"), [("one\x1b[5m", "running"), ("[bold]two", "failed")], state=1)
    drawn = terminal.getvalue()
    assert "\x1b[32mrunning" in drawn
    assert "\x1b[31mfailed" in drawn
    assert "\x1b[5m" not in drawn
    assert "[bold]two" in drawn


def test_no_color_is_obeyed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(terminal):
        output.table(("id", "state"), [("one", "running")], state=1)
    assert "running" in terminal.getvalue()
    assert "\x1b[32m" not in terminal.getvalue()


def test_the_first_column_stays_whole_on_a_narrow_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with redirect_stdout(terminal):
        output.table(("id", "name", "labels"), [("sb-123456789012", "n" * 20, "l" * 40)])
    assert "sb-123456789012" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


def test_details_leave_out_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    output.details({"id": "x", "name": None, "labels": "", "count": 0, "meta": {}})
    assert capsys.readouterr().out == "id     x\ncount  0\n"


def test_details_on_a_terminal(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        output.details({"state": "running", "id": "x"})
    assert "\x1b[32mrunning" in terminal.getvalue()


def test_json_is_one_line_and_ascii_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({"a": "\x1b ä"})
    text = capsys.readouterr().out
    assert text == '{"a": "\\u001b \\u00e4"}\n'
    assert json.loads(text) == {"a": "\x1b ä"}


def test_a_moment_is_exact_without_a_terminal() -> None:
    assert output.moment(0.5) == "1970-01-01T00:00:00.500Z"
    assert output.moment(None) is None


def test_a_moment_is_told_for_people_on_a_terminal(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        assert output.moment(time.time() - 7290) == "2h 1m ago"
        assert (output.moment(time.time() + 100000) or "").startswith("in 1d ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.2s"),
        (45, "45s"),
        (60, "1m"),
        (3600, "1h"),
        (7800, "2h 10m"),
        (86400 * 4 + 3600 * 3, "4d 3h"),
        (86400 + 60, "1d"),
        (None, None),
    ],
)
def test_spans(seconds: float | None, text: str | None) -> None:
    assert output.span(seconds) == text
