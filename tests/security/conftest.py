"""Two ways to try a sandbox: `found` holds what probes got that were all played at once; `stage` plays one
scenario after the other. Both as root and as an ordinary user.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from paddock.guest.build import guest_binary, launch_binary
from tests.abilities import MISSING_PREFIX, ORDINARY_UID, has, ordinary_python
from tests.abilities import probe as ability
from tests.contract.stage import LocalStage, Stage, UserStage
from tests.integration.serving import Api, Box, served, settings_for
from tests.security.gather import PYTHON, Results

VARIANTS = [
    pytest.param("bubblewrap", marks=pytest.mark.needs("root", "bwrap")),
    pytest.param("bubblewrap-user", marks=pytest.mark.needs("ordinary-user", "bwrap")),
]


@ability("system-python")
def _system_python() -> bool:
    return os.access(PYTHON, os.X_OK)


@dataclass(frozen=True)
class Found:
    """What every probe got inside and, where it could be played there, outside."""

    variant: str
    inside: Results
    outside: Results

    def get(self, program: str, name: str) -> Any:
        return self.inside[program][name]

    def refused(self, program: str, name: str, *expected: Any) -> None:
        """It got one of these inside. Where it gets the same outside, that proves nothing."""
        assert self.get(program, name) in expected
        if name in self.outside.get(program, {}) and self.outside[program][name] in expected:
            pytest.skip(f"{MISSING_PREFIX}{name!r} (refused on this machine to everybody)")


def _gather(what: str, user: int | None) -> Results:
    python, environment, folder = sys.executable, dict(os.environ), Path(__file__).parents[2]
    account: dict[str, Any] = {}
    if user is not None:
        ordinary = ordinary_python()
        assert ordinary is not None
        python, environment = ordinary
        account = {"user": user, "group": user, "extra_groups": []}
        folder = Path("/")
    done = subprocess.run(
        [python, "-m", "tests.security.gather", what],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
        check=False,
        **account,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-5000:]
    results: Results = json.loads(done.stdout)
    return results


@pytest.fixture(scope="session")
def outside() -> Results:
    """Never as the host's root, whom nothing would stop."""
    if os.geteuid() != 0:
        return _gather("control", None)
    return _gather("control", ORDINARY_UID) if has("ordinary-user") else {}


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(v.values[0], marks=[*v.marks, pytest.mark.needs("system-python")]) for v in VARIANTS
    ],
)
def found(request: pytest.FixtureRequest, outside: Results) -> Found:
    # Here and now: the ordinary user could not write them.
    guest_binary()
    launch_binary()
    user = ORDINARY_UID if request.param == "bubblewrap-user" else None
    return Found(request.param, _gather("inside", user), outside)


@pytest.fixture(scope="session", params=VARIANTS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    guest_binary()
    launch_binary()
    if request.param == "bubblewrap-user":
        chosen: Stage = UserStage(request.param)
    else:
        local = LocalStage(request.param)
        local.prepare()
        chosen = local
    with contextlib.closing(chosen):
        yield chosen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """A real server on a real port. Its sandboxes are plain processes: what is tried here is the server."""
    async with served(settings_for(tmp_path_factory.mktemp("api") / "data")) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(api: Api) -> Box:
    answer = await api.http.post("/api/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    return Box(api, answer.json()["id"])
