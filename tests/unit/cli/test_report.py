from __future__ import annotations

import json

import pytest

from paddock.cli.context import current
from paddock.cli.report import note, plain, report
from paddock.errors import NotFound


@pytest.fixture(autouse=True)
def _fresh() -> None:
    current.reset()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 漢 🙂", "plain ä 漢 🙂"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;title\x07x", "]0;titlex"),
        ("\x9b31m", "31m"),
        ("a\nb\tc\rd", "a b cd"),
        ("\u202egnp.exe", "gnp.exe"),
        (None, "None"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_shown(text: object, shown: str) -> None:
    assert plain(text) == shown


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note("hello\x1b[2J")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "paddock: hello[2J\n")


def test_errors_have_their_hint(capsys: pytest.CaptureFixture[str]) -> None:
    report(NotFound("no such thing", hint="look elsewhere"))
    assert capsys.readouterr().err == "paddock: no such thing\n         look elsewhere\n"


def test_errors_are_json_when_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    current.json = True
    report(NotFound("no", reason="sandbox_not_found", hint="h"))
    current.reset()
    assert json.loads(capsys.readouterr().err) == {"error": "no", "reason": "sandbox_not_found", "hint": "h"}
