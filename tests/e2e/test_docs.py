"""The examples of docs/CLI.md, pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddock.cli.command import GROUPS, MODULES
from tests.e2e.command import Paddock

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CLI.md"


def examples() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line]


def test_every_example_works_when_pasted(alone: Paddock) -> None:
    pausable = alone.run("doctor", "--json", timeout=180).stdout
    for line in examples():
        if re.match(r"paddock sandbox (pause|resume) ", line) and b'"pause", "works": true' not in pausable:
            continue
        done = alone.shell(f"set -euo pipefail; {line}", timeout=180)
        assert done.returncode == 0, (line, done)


def test_every_command_has_an_example() -> None:
    text = "\n".join(examples())
    for name in MODULES:
        assert re.search(rf"\bpaddock {name}\b", text), name
    assert frozenset({"sandbox", "files", "token"}) == GROUPS
