"""The everyday forms of `paddock exec`, read without loading Typer, which takes longer than the exec itself.

Whatever is not plain (help, an unknown option, a missing argument) is left to Typer, which knows what to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = {
    "-i": "interactive",
    "--interactive": "interactive",
    "-t": "tty",
    "--tty": "tty",
    "-d": "detach",
    "--detach": "detach",
    "--json": "json",
}
VALUES = {
    "-e": "env",
    "--env": "env",
    "-w": "workdir",
    "--workdir": "workdir",
    "-u": "user",
    "--user": "user",
    "--timeout": "timeout",
    "--id": "exec_id",
    "--url": "url",
    "--token": "token",
    "--data-dir": "data_dir",
}


@dataclass(slots=True)
class PlainExec:
    ref: str
    line: list[str]
    detach: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=dict)


def parse_exec(arguments: Sequence[str]) -> PlainExec | None:
    """None: not an exec, or one that needs a closer look."""
    if not arguments or arguments[0] != "exec":
        return None
    found: dict[str, Any] = {}
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-"):
        taken = _take_option(rest, found)
        if not taken:
            return None
    if len(rest) < 2:
        return None
    data_dir = found.pop("data_dir", None)
    given = {name: found.pop(name, None) for name in ("url", "token")}
    given |= {"json": found.pop("json", False), "data_dir": Path(data_dir) if data_dir else None}
    return PlainExec(rest[0], rest[1:], found.pop("detach", False), found, given)


def _take_option(rest: list[str], found: dict[str, Any]) -> bool:
    """Take one word off the line, or two. False when it is none that we know."""
    word = rest.pop(0)
    if word in FLAGS:
        found[FLAGS[word]] = True
        return True
    if word in VALUES:
        return bool(rest) and _keep(VALUES[word], rest.pop(0), found)
    name, equals, value = word.partition("=")
    if word.startswith("--"):
        return bool(equals) and name in VALUES and _keep(VALUES[name], value, found)
    return _take_letters(word, rest, found)


def _take_letters(word: str, rest: list[str], found: dict[str, Any]) -> bool:
    """`-it`, `-eK=V`, `-ie K=V`."""
    for index, letter in enumerate(word[1:], start=1):
        option = f"-{letter}"
        if option in FLAGS:
            found[FLAGS[option]] = True
        elif option in VALUES:
            value = word[index + 1 :]
            if not value and not rest:
                return False
            return _keep(VALUES[option], value or rest.pop(0), found)
        else:
            return False
    return len(word) > 1


def _keep(name: str, value: str, found: dict[str, Any]) -> bool:
    if name == "env":
        found.setdefault("env", []).append(value)
    else:
        found[name] = value
    return True
