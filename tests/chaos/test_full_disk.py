"""The disk of the data folder fills up under running commands: they wait, and nothing of theirs is lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.stage import Box, Follower, Stage, until
from tests.chaos.test_killed_under_execs import numbers

pytestmark = [pytest.mark.needs("bwrap", "cc", "root", "loop-mount"), pytest.mark.leaks_ok]

ROOM = "96m"
FLOOD = 2_500_000
"""`seq` up to here prints 19 MB."""


class Disk:
    """A small file system under the whole data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filler = folder / "filler"

    def mount(self) -> None:
        self._folder.mkdir()
        options = f"size={ROOM},mode=711"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", self._folder], check=True)

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        assert os.statvfs(self._folder).f_bavail == 0

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["with a log", "without a log"])
def house(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A server that was started in the background has its log on the same disk."""
    made = Stage()
    Disk(made.data).mount()
    if request.param == "without a log":
        (made.folder / "data.log").symlink_to("/dev/full")
    yield made
    made.close()


@pytest_asyncio.fixture
async def disk(stage: Stage) -> AsyncIterator[Disk]:
    found = Disk(stage.data)
    yield found
    found.make_room()


async def waiting_flood(box: Box) -> str:
    return await box.start("sh", "-c", f"read go; seq 1 {FLOOD}; exit 5", open_stdin=True)


async def let_go(box: Box, exec_id: str) -> None:
    answer = await box.call("POST", f"/execs/{exec_id}/stdin", content=b"go\n")
    assert answer.status_code == 200, answer.text


async def refused(box: Box, path: str, body: dict[str, object]) -> None:
    answer = await box.stage.call("POST", path, json=body)
    assert (answer.status_code, answer.json()["reason"]) == (507, "disk_full"), answer.text
    assert answer.json()["hint"]


async def arrives_whole(box: Box, follower: Follower) -> None:
    wanted = hashlib.sha256(numbers(FLOOD)).digest()
    assert hashlib.sha256(await follower.follow()).digest() == wanted
    assert follower.exit is not None
    assert follower.exit["exit_code"] == 5
    assert hashlib.sha256(await box.output(follower.exec_id)).digest() == wanted


async def test_output_waits_for_room(stage: Stage, disk: Disk) -> None:
    box, other = await stage.create(), await stage.create()
    flood = await waiting_flood(box)
    disk.fill()
    await let_go(box, flood)
    for _ in range(3):
        await other.answers()
        await asyncio.sleep(0.4)
    assert (await box.exec(flood))["state"] == "running"
    await refused(box, "/sandboxes", {})
    await refused(box, f"/sandboxes/{other.id}/execs", {"command": ["true"], "background": True})
    assert set((await stage.sandboxes()).values()) == {"running"}
    quick = await other.run("sh", "-c", "echo while full; exit 4")
    assert quick["exit_code"] == 4
    disk.make_room()
    await arrives_whole(box, Follower(box, flood))
    await (await stage.create()).answers()

    async def kept() -> bool:
        return bool((await other.exec(quick["id"]))["exit_code"] == 4)

    await until(kept, "what ended on a full disk is kept")
    await stage.restart()
    assert (await other.ended(quick["id"]))["exit_code"] == 4
    assert await other.output(quick["id"]) == b"while full\n"


async def test_a_kill_on_a_full_disk_loses_nothing(stage: Stage, disk: Disk) -> None:
    box, other = await stage.create(), await stage.create()
    flood = await waiting_flood(box)
    disk.fill()
    await let_go(box, flood)
    quick = await other.run("sh", "-c", "echo while full; exit 4")
    await stage.restart()
    await other.answers()
    assert (await box.exec(flood))["state"] == "running"
    disk.make_room()
    await arrives_whole(box, Follower(box, flood))
    assert (await other.ended(quick["id"]))["exit_code"] == 4
    assert await other.output(quick["id"]) == b"while full\n"


async def test_sandboxes_can_be_deleted_on_a_full_disk(stage: Stage, disk: Disk) -> None:
    """Whoever wants room has to be able to make it."""
    box = await stage.create()
    await box.run("sh", "-c", "head -c 8000000 /dev/zero >big")
    disk.fill()
    answer = await box.call("DELETE")
    if answer.status_code != 200:
        assert (answer.status_code, answer.json()["reason"]) == (507, "disk_full"), answer.text
        disk.make_room()
        await box.delete()
    await stage.expect_only()
