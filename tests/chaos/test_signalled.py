"""The server stopped and continued, asked to end, and parts of its sandboxes killed beneath it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal

import pytest

from tests.chaos.remains import below, parts_of
from tests.chaos.stage import Box, Follower, Stage, until
from tests.chaos.test_killed_under_execs import FLOOD, assert_counted, count_in_three_ways, numbers

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.leaks_ok]


async def test_a_server_that_was_stopped_for_a_while_goes_on(box: Box) -> None:
    followers, waiting = await count_in_three_ways(box)
    flood = Follower(box, await box.start("seq", "1", str(FLOOD)))
    following = [asyncio.ensure_future(one.follow()) for one in (*followers, flood)]
    os.kill(box.stage.pid, signal.SIGSTOP)
    await asyncio.sleep(3)
    os.kill(box.stage.pid, signal.SIGCONT)
    await asyncio.gather(*following)
    assert_counted(followers)
    assert (await waiting)["exit_code"] == 7
    assert hashlib.sha256(flood.data).digest() == hashlib.sha256(numbers(FLOOD)).digest()
    assert [one.losses for one in (*followers, flood)] == [0] * 4


async def test_a_server_that_is_asked_to_end_leaves_its_sandboxes_running(box: Box) -> None:
    lasting = await box.start("sleep", "600")
    followers, waiting = await count_in_three_ways(box)
    following = [asyncio.ensure_future(one.follow()) for one in followers]
    await followers[0].reached(20)
    assert await box.stage.down() == 0
    _, guest = parts_of(box.stage.data, box.id)
    assert "sleep" in below(guest).values()
    await box.stage.up()
    await asyncio.gather(*following)
    assert_counted(followers)
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await box.ended("in-foreground"))["exit_code"] == 7
    assert (await box.exec(lasting))["state"] == "running"


async def test_a_killed_guest_fails_its_sandbox_alone(stage: Stage) -> None:
    dying, other = await stage.create(), await stage.create()
    background = await dying.start("sh", "-c", "echo kept; sleep 600")
    lives = await other.start("sh", "-c", "sleep 1; exit 6")
    foreground = asyncio.ensure_future(dying.run("sleep", "600"))
    follower = Follower(dying, background)
    following = asyncio.ensure_future(follower.follow())
    await follower.reached(5)
    _, guest = parts_of(stage.data, dying.id)
    os.kill(guest, signal.SIGKILL)
    body = await dying.becomes("failed")
    assert (body["reason"], bool(body["message"])) == ("guest_died", True)
    assert await following == b"kept\n"
    for ended in (await dying.ended(background), await foreground):
        assert (ended["state"], ended["reason"], bool(ended["error"])) == ("failed", "guest_died", True)
    assert await dying.output(background) == b"kept\n"
    refused = await dying.call("POST", "/execs", json={"command": ["true"]})
    assert (refused.status_code, refused.json()["reason"]) == (409, "sandbox_not_running")
    await other.answers()
    assert (await other.ended(lives))["exit_code"] == 6
    await dying.delete()
    await stage.expect_only(other.id)


async def test_a_sandbox_lives_on_without_its_bwrap(stage: Stage) -> None:
    box = await stage.create()
    exec_id = await box.start("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 6")
    bwrap, _ = parts_of(stage.data, box.id)
    os.kill(bwrap, signal.SIGKILL)
    await box.answers()
    await stage.restart()
    await box.run("touch", "go")
    assert (await box.ended(exec_id))["exit_code"] == 6
    await box.delete()
    await stage.expect_only()


async def test_a_killed_shepherd_ends_its_exec_alone(box: Box) -> None:
    """Nothing of the command's tree runs on without it."""
    doomed = await box.start("sh", "-c", "setsid sleep 700 & sleep 700")
    other = await box.start("sh", "-c", "sleep 1; exit 6")
    _, guest = parts_of(box.stage.data, box.id)

    async def tree() -> int | None:
        for child in [pid for pid in below(guest) if "sleep" in below(pid).values()]:
            names = list(below(child).values())
            if names.count("sleep") == 2 and "sh" in names:
                return child
        return None

    shepherd = await until(tree, "the command and its daemon run")
    os.kill(shepherd, signal.SIGKILL)
    ended = await box.ended(doomed)
    assert ended["state"] == "failed", ended
    assert ended["exit_code"] != 0

    async def gone() -> bool:
        return "sleep" not in below(guest).values()

    assert (await box.ended(other))["exit_code"] == 6
    await until(gone, "the command's tree is gone")
    await box.answers()
