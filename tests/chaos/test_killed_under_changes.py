"""`kill -9` of the server while sandboxes are made, changed, deleted: each is what was told, or is gone."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any

import httpx2
import pytest

from tests.chaos.remains import parts_of
from tests.chaos.stage import CUT, Box, Stage

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.leaks_ok]

ROUNDS = 3


async def create_until_cut(stage: Stage, acknowledged: list[Box], **body: Any) -> None:
    while True:
        try:
            acknowledged.append(await stage.create(**body))
        except CUT:
            return


async def test_creates_that_are_cut_short_leave_nothing(stage: Stage, chance: random.Random) -> None:
    for _ in range(ROUNDS):
        acknowledged: list[Box] = []
        creating = [create_until_cut(stage, acknowledged) for _ in range(4)]
        tasks = [asyncio.ensure_future(work) for work in creating]
        await asyncio.sleep(chance.uniform(0.02, 0.5))
        stage.kill()
        await asyncio.gather(*tasks)
        await stage.up()
        found = await stage.sandboxes()
        for box in acknowledged:
            assert found[box.id] == "running"
        for sandbox, state in found.items():
            # The answer of one that was committed may not have got through: it is whole, or says it is not.
            if state == "running":
                await Box(stage, sandbox).answers()
            else:
                assert (await Box(stage, sandbox).becomes("failed"))["reason"] == "ended_while_away"
        await stage.expect_only(*found)
        await stage.clear()


async def test_deletions_that_are_cut_short_are_finished(stage: Stage, chance: random.Random) -> None:
    for _ in range(ROUNDS):
        boxes = [await stage.create(name=f"box-{number}") for number in range(4)]
        for box in boxes:
            await box.start("sh", "-c", "yes | head -c 300000; sleep 600")
        deleting = [asyncio.ensure_future(box.call("DELETE")) for box in boxes]
        await asyncio.sleep(chance.uniform(0.0, 0.08))
        stage.kill()
        answers = await asyncio.gather(*deleting, return_exceptions=True)
        await stage.up()
        found = await stage.sandboxes()
        for box, answer in zip(boxes, answers, strict=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, CUT), answer
            else:
                assert answer.status_code == 200
                assert box.id not in found, "told to be deleted, and there again"
        assert set(found.values()) <= {"running"}
        await asyncio.gather(*(Box(stage, sandbox).answers() for sandbox in found))
        await stage.expect_only(*found)
        await stage.clear()


DEFINITE = {"stop": {"running", "stopped"}, "pause": {"running", "paused"}, "resume": {"running", "paused"}}


@pytest.mark.needs("cgroup-freezer")
async def test_changes_that_are_cut_short_come_out_one_way_or_the_other(
    stage: Stage, chance: random.Random
) -> None:
    for _ in range(ROUNDS):
        boxes = {what: await stage.create() for what in DEFINITE}
        execs = {what: await box.start("sh", "-c", "sleep 600") for what, box in boxes.items()}
        assert (await boxes["resume"].call("POST", "/pause")).status_code == 200
        changing = {what: asyncio.ensure_future(box.call("POST", f"/{what}")) for what, box in boxes.items()}
        await asyncio.sleep(chance.uniform(0.0, 0.05))
        stage.kill()
        await asyncio.gather(*changing.values(), return_exceptions=True)
        await stage.up()
        for what, box in boxes.items():
            state = (await box.becomes("running", "paused", "stopped"))["state"]
            assert state in DEFINITE[what]
            await goes_on(box, state, execs[what])
        await stage.clear()


async def goes_on(box: Box, state: str, exec_id: str) -> None:
    """What the state says is how it is."""
    if state == "stopped":
        ended = await box.ended(exec_id)
        assert ended["state"] in ("failed", "canceled")
        assert ended["signal"] == signal.SIGTERM or ended["reason"] in ("sandbox_stopped", "sandbox_ended")
        return
    if state == "paused":
        refused = await box.call("POST", "/execs", json={"command": ["true"]})
        assert refused.json()["reason"] == "sandbox_not_running", refused.text
        resumed = await box.call("POST", "/resume")
        assert resumed.status_code == 200, resumed.text
    await box.answers()
    assert (await box.exec(exec_id))["state"] == "running"


async def test_a_sandbox_that_dies_while_nobody_is_there(stage: Stage) -> None:
    dying, other = await stage.create(), await stage.create()
    execs = [await dying.start("sleep", "600"), await dying.start("sh", "-c", "echo kept; sleep 600")]
    lives = await other.start("sh", "-c", "echo alive; sleep 1; exit 6")
    await dying.answers()
    _, guest = parts_of(stage.data, dying.id)
    stage.kill()
    os.kill(guest, signal.SIGKILL)
    await stage.up()
    body = await dying.becomes("failed")
    assert body["reason"] == "ended_while_away"
    for exec_id in execs:
        ended = await dying.ended(exec_id)
        assert (ended["state"], ended["reason"], bool(ended["error"])) == ("failed", "sandbox_ended", True)
    assert (await other.ended(lives))["exit_code"] == 6
    refused = await dying.call("POST", "/execs", json={"command": ["true"]})
    assert (refused.status_code, refused.json()["reason"]) == (409, "sandbox_not_running")
    await dying.delete()
    await stage.expect_only(other.id)
    await other.answers()


async def test_a_name_is_free_again_after_a_create_that_was_cut_short(stage: Stage) -> None:
    creating = asyncio.ensure_future(stage.create(name="wanted"))
    await asyncio.sleep(0.01)
    stage.kill()
    (cut,) = await asyncio.gather(creating, return_exceptions=True)
    assert isinstance(cut, Box | httpx2.HTTPError | OSError)
    await stage.up()
    # It was made, and then it is whole, or there is nothing of it.
    answer = await stage.call("POST", "/sandboxes", json={"name": "wanted"})
    assert answer.status_code in (201, 409), answer.text
    named = Box(stage, "wanted")
    if await named.state() == "failed":
        assert answer.status_code == 409
        await named.delete()
        await stage.create(name="wanted")
    assert (await named.run("true"))["exit_code"] == 0
