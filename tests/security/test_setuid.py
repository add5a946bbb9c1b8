"""A program that makes root of whoever runs it, put where a sandbox can run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from paddock.errors import PaddockError
from tests.abilities import ORDINARY_UID
from tests.contract.stage import scenario
from tests.contract.world import World


def _setuid_root(folder: Path) -> Path:
    """A copy of `id` that belongs to root and is setuid and setgid."""
    tool = folder / "tool"
    shutil.copyfile("/usr/bin/id", tool)
    os.chown(tool, 0, 0)
    tool.chmod(0o6755)
    return tool


def _works_outside() -> bool:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        done = subprocess.run(
            [_setuid_root(Path(name)), "-u"],
            user=ORDINARY_UID, group=ORDINARY_UID, extra_groups=[], cwd="/",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    return done.stdout == "0\n"


@pytest.mark.needs("root")
@scenario
async def test_a_setuid_program_of_the_hosts_root_gives_nothing(world: World) -> None:
    world.need(os.geteuid() == 0, "root")
    world.need(_works_outside(), "setuid")
    box = await world.create()
    _setuid_root(world.folder / "sandboxes" / box.id / "data" / "workspace")
    seen = await world.sh(box.id, "stat -c %a tool; ./tool -u; ./tool -g; ./tool -G")
    assert seen.stdout.split() == ["6755", "1000", "1000", "1000"], seen


@scenario
async def test_a_setuid_program_of_ones_own_gives_nothing(world: World) -> None:
    box = await world.create()
    script = (
        "cp /usr/bin/id tool && chmod 6755 tool && ./tool -u && setpriv --help >/dev/null 2>&1; ./tool -g"
    )
    assert (await world.sh(box.id, script)).stdout.split() == ["1000", "1000"]


@scenario
async def test_no_user_but_ones_own_can_be_asked_for(world: World) -> None:
    """Through the API: root, others, by name and by number."""
    shared = await world.shared()
    told: set[str] = set()
    for user in ("root", "0", "nobody", "65534", "0:0", "1000:0", "-1", "4294967295", "4294967296"):
        try:
            done = await world.run(shared, "id", "-u", user=user)
        except PaddockError as error:
            told.add(error.reason)
        else:
            assert done.stdout in ("", "1000\n"), (user, done)
            assert done.exit_code != 0 or done.stdout == "1000\n"
    assert not told & {"internal", "guest_lost"}
