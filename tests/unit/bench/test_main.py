from __future__ import annotations

import importlib

import pytest

from bench.__main__ import SUBJECTS, arguments


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_subject_can_be_measured(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").measure)


def test_everything_is_measured_when_nothing_is_named() -> None:
    assert arguments([]).subjects == []
    assert arguments(["exec", "--quick"]).subjects == ["exec"]


def test_an_unknown_subject_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        arguments(["exce"])
    assert stop.value.code == 2
    assert "no such subject: exce" in capsys.readouterr().err
