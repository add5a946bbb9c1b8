from __future__ import annotations

from pathlib import Path

import pytest
import typer

from paddock.cli.command import Root
from paddock.cli.quick import FLAGS, VALUES, parse_exec


def test_the_plain_form() -> None:
    found = parse_exec(["exec", "box", "--", "ls", "-l", "--json"])
    assert found is not None
    assert (found.ref, found.line, found.options) == ("box", ["--", "ls", "-l", "--json"], {})
    assert found.globals == {"json": False, "url": None, "token": None, "data_dir": None}


def test_every_way_to_write_an_option() -> None:
    line = ["exec", "-it", "-eA=1", "-e", "B=2", "--env=C=3", "--workdir", "/w", "-u", "u", "--timeout=5s"]
    line += [
        "--id",
        "12345678",
        "--json",
        "--data-dir=/d",
        "--url",
        "http://x",
        "--token=t",
        "-d",
        "box",
        "true",
    ]
    found = parse_exec(line)
    assert found is not None
    assert found.options == {
        "interactive": True,
        "tty": True,
        "env": ["A=1", "B=2", "C=3"],
        "workdir": "/w",
        "user": "u",
        "timeout": "5s",
        "exec_id": "12345678",
    }
    assert found.globals == {"json": True, "url": "http://x", "token": "t", "data_dir": Path("/d")}
    assert (found.detach, found.ref, found.line) == (True, "box", ["true"])


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["run", "true"],
        ["--json", "exec", "box", "true"],
        ["exec"],
        ["exec", "box"],
        ["exec", "--help"],
        ["exec", "-h", "box", "true"],
        ["exec", "--unknown", "box", "true"],
        ["exec", "-x", "box", "true"],
        ["exec", "-ix", "box", "true"],
        ["exec", "--env"],
        ["exec", "-e"],
        ["exec", "--tty=1", "box", "true"],
        ["exec", "-", "box", "true"],
        ["exec", "--", "box", "true"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(line: list[str]) -> None:
    assert parse_exec(line) is None


def test_it_knows_the_options_that_typer_knows() -> None:
    command = Root(name="paddock").get_command(None, "exec")
    options = {name for param in command.params for name in param.opts if name.startswith("-")}
    assert options - {"-h", "--help"} == set(FLAGS) | set(VALUES)
    names = {name: param.name for param in command.params for name in param.opts}
    assert all(names[option] == name for option, name in (FLAGS | VALUES).items())
    assert isinstance(typer.main.get_command, object)
