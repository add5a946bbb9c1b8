from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock import __version__
from paddock.cli.command import MODULES
from paddock.cli.main import run


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here may reach, or start, a server."""
    monkeypatch.setenv("PADDOCK_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in MODULES)
    assert run([]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_help_and_the_global_opti(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: paddock" in text
    assert "--json" in text or "Commands:" in text


@pytest.mark.parametrize(
    "line",
    [
        ["nonsense"],
        ["--nonsense"],
        ["sandbox"],
        ["sandbox", "nonsense"],
        ["sandbox", "show"],
        ["sandbox", "create", "--cpus", "many"],
        ["sandbox", "create", "--memory", "many"],
        ["sandbox", "create", "--ttl", "soon"],
        ["sandbox", "create", "--label", "x"],
        ["sandbox", "create", "--metadata", "x"],
        ["sandbox", "update", "x"],
        ["sandbox", "delete"],
        ["sandbox", "delete", "x", "--all"],
        ["exec", "x"],
        ["exec", "x", "-i", "cat"],
        ["exec", "x", "--"],
        ["cp", "a", "b"],
        ["cp", "x:a", "y:b"],
        ["logs", "x", "--stream", "stdin"],
        ["completion", "tcsh"],
        ["--url", "nonsense", "status"],
    ],
)
def test_mistakes_are_usage_errors(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("paddock: ")


def test_mistakes_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", "show", "--json", "--nonsense"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert told["reason"] == "usage"
    assert "--nonsense" in told["error"]


def test_a_commands_own_json_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["exec", "--nonsense", "x", "--", "y", "--json"]) == 2
    assert capsys.readouterr().err.startswith("paddock: ")


@pytest.mark.parametrize("line", [["sandbox", "list"], ["exec", "x", "true"], ["run", "true"], ["status"]])
def test_no_server_is_an_error_of_its_own(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"paddock {__version__}\n"
    assert run(["--json", "version"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_PADDOCK_COMPLETE" in capsys.readouterr().out


def start(*arguments: str, closed: str = "") -> subprocess.CompletedProcess[str]:
    command = f'exec "$@" {closed}'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "paddock.cli", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_works_with_closed_streams(closed: str) -> None:
    done = start("version", closed=closed)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_reader_that_goes_is_no_traceback(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    command = f"{sys.executable} -m paddock.cli completion bash 2>{errors} | true"
    subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, timeout=60, check=True, cwd="/")
    assert errors.read_text() == ""


def test_an_exec_loads_neither_typer_nor_pydantic() -> None:
    code = (
        "import sys; from paddock.cli.main import run;"
        "code = run(['exec', '--url', 'http://127.0.0.1:1', 'x', 'y']);"
        "heavy = {'typer', 'pydantic', 'rich', 'fastapi', 'sqlalchemy', 'asyncio'} & set(sys.modules);"
        "print(code, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd="/")
    assert done.stdout == "1 []\n", done.stderr
