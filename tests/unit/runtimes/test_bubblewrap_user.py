"""The same runtime for a server that is not root. It is run as another user, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.abilities import ORDINARY_UID, ordinary_python
from tests.unit.runtimes.stub import stub_guest

WORKER = Path(__file__).with_name("user_worker.py")


async def run_worker(data_dir: Path) -> dict[str, Any]:
    found = ordinary_python()
    assert found is not None
    python, environment = found
    os.chown(data_dir, ORDINARY_UID, ORDINARY_UID)
    process = await asyncio.create_subprocess_exec(
        python, str(WORKER), str(data_dir), str(stub_guest()),
        user=ORDINARY_UID, group=ORDINARY_UID, extra_groups=[], cwd="/", env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        output, problem = await process.communicate()
    assert process.returncode == 0, problem.decode()
    seen: dict[str, Any] = json.loads(output)
    return seen


@pytest.mark.needs("ordinary-user", "bwrap", "cc")
async def test_an_ordinary_user_has_sandboxes_too(data_dir: Path) -> None:
    seen = await run_worker(data_dir)
    assert seen["uid"] == "1000\n"
    assert seen["written"] == "x\n"
    assert "possible" not in seen["nested"]
    assert seen["links"].split() == ["lo"]
    assert seen["seccomp"].split()[-1] == "2"
    assert seen["peer"] is True
    assert seen["disk"] > 0
    assert seen["orphans"] == ["one"]
    assert seen["recovered"] is True
    assert seen["exited"] is True
    assert seen["left"] == []


@pytest.mark.needs("ordinary-user", "bwrap", "cc")
async def test_what_an_ordinary_user_cannot_hold_is_reported(data_dir: Path) -> None:
    seen = await run_worker(data_dir)
    held = seen["enforcement"]
    assert held["disk"] == "partial"
    assert held["open_files"] == "full"
    # Uid 65533 has no session, so nobody delegates a cgroup to it.
    assert held["memory"] == held["processes"] == "none"
    assert seen["pause"] == "pause_unsupported"
