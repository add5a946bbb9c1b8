"""Calls that meet: each is answered with a success or with a reason, and the outcome is one of the two."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from tests.chaos.stage import Box, Stage, until

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.leaks_ok]


@pytest.fixture(scope="module", params=["bubblewrap", "fake"])
def house(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(default_runtime=request.param)
    yield made
    made.close()


async def test_one_id_starts_one_process(box: Box, chance: random.Random) -> None:
    """Foreground and background mixed; the file has one line for each time that the command ran."""
    for number in range(12):
        exec_id = f"the-one-{number:04d}"
        body = {"id": exec_id, "command": ["sh", "-c", f"echo ran >>runs-{number}; echo out; exit 3"]}
        kinds = [chance.random() < 0.5 for _ in range(8)]
        answers = await asyncio.gather(
            *(box.call("POST", "/execs", json=body | {"background": kind}) for kind in kinds)
        )
        for answer, background in zip(answers, kinds, strict=True):
            assert answer.status_code == (202 if background else 200), answer.text
            assert answer.json()["id"] == exec_id
            if not background:
                assert (answer.json()["exit_code"], answer.json()["stdout"]) == (3, "out\n")
        assert (await box.ended(exec_id))["exit_code"] == 3
        assert (await box.run("cat", f"runs-{number}"))["stdout"] == "ran\n"


async def test_one_name_is_given_once(stage: Stage) -> None:
    for number in range(5):
        body = {"name": f"wanted-{number}"}
        answers = await asyncio.gather(*(stage.call("POST", "/sandboxes", json=body) for _ in range(3)))
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
        reasons = {answer.json()["reason"] for answer in answers if answer.status_code == 409}
        assert reasons == {"name_taken"}
        await Box(stage, f"wanted-{number}").delete()
    assert await stage.sandboxes() == {}


async def test_a_delete_ends_what_runs(stage: Stage) -> None:
    box, other = await stage.create(), await stage.create()
    running = [asyncio.ensure_future(box.run("sleep", "600")) for _ in range(4)]
    await box.start("sh", "-c", "setsid sleep 600 & sleep 600")

    async def busy() -> bool:
        answer = await box.call("GET", "/execs", params={"state": "running"})
        return len(answer.json()["execs"]) == 5

    await until(busy, "five execs run")
    await box.delete()
    for ended in await asyncio.gather(*running):
        assert (ended["state"], ended["reason"]) == ("failed", "sandbox_deleted")
    await stage.expect_only(other.id)
    assert (await box.call("GET")).status_code == 404
    await other.answers()


async def test_execs_that_meet_a_delete(stage: Stage, chance: random.Random) -> None:
    for _ in range(4):
        box = await stage.create()
        starting = [
            box.call("POST", "/execs", json={"command": ["sleep", "600"], "background": background})
            for background in (True, False) * 4
        ]
        tasks = [asyncio.ensure_future(work) for work in starting]
        await asyncio.sleep(chance.uniform(0, 0.02))
        await box.delete()
        for answer in await asyncio.gather(*tasks):
            if answer.status_code in (200, 202):
                continue
            assert answer.status_code in (404, 409, 410, 503), answer.text
            assert answer.json()["reason"]
        await stage.expect_only()


async def test_deletes_that_meet(stage: Stage) -> None:
    for _ in range(4):
        box = await stage.create(name="mine")
        await box.start("sleep", "600")
        answers = await asyncio.gather(*(box.call("DELETE") for _ in range(3)))
        assert {answer.status_code for answer in answers} <= {200, 404}
        assert any(answer.status_code == 200 for answer in answers)
        await stage.expect_only()


@pytest.mark.needs("cgroup-freezer")
async def test_changes_that_meet_a_delete(stage: Stage, chance: random.Random) -> None:
    for _ in range(4):
        box = await stage.create(name="changing")
        await box.start("sleep", "600")
        calls = [
            ("POST", "/stop", {}),
            ("POST", "/pause", {}),
            ("PATCH", "", {"json": {"name": "changed", "labels": {"a": "b"}}}),
            ("DELETE", "", {}),
            ("POST", "/resume", {}),
        ]
        chance.shuffle(calls)
        answers = await asyncio.gather(*(box.call(method, path, **more) for method, path, more in calls))
        for (method, path, _), answer in zip(calls, answers, strict=True):
            assert answer.status_code in (200, 404, 409, 410), (method, path, answer.text)
            assert answer.status_code == 200 or answer.json()["reason"]
        assert (await box.call("GET")).status_code == 404
        await stage.expect_only()
        # Neither name is held by one that is gone.
        for name in ("changing", "changed"):
            await (await stage.create(name=name)).delete()


@pytest.mark.needs("cgroup-freezer")
async def test_a_pause_under_an_exec_holds_it_and_loses_nothing(box: Box) -> None:
    exec_id = await box.start("sh", "-c", "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); done; exit 7")
    counting = await box.start("sh", "-c", "while [ ! -e go ]; do echo x; sleep 0.01; done; exit 8")
    for _ in range(5):
        # It comes before the pause, and waits in it, or after it, and is refused.
        meeting = asyncio.ensure_future(box.call("POST", "/execs", json={"command": ["true"]}))
        paused = await box.call("POST", "/pause")
        assert paused.status_code == 200, paused.text
        before = len(await read_now(box, counting))
        await asyncio.sleep(0.1)
        assert len(await read_now(box, counting)) == before
        assert (await box.call("POST", "/resume")).status_code == 200
        assert (await meeting).status_code in (200, 409), (await meeting).text
    await box.run("touch", "go")
    assert (await box.ended(counting))["exit_code"] == 8
    assert (await box.ended(exec_id))["exit_code"] == 7
    assert await box.output(exec_id) == b"".join(b"%d\n" % number for number in range(400))


async def read_now(box: Box, exec_id: str) -> bytes:
    params = {"encoding": "raw", "follow": "false"}
    answer = await box.call("GET", f"/execs/{exec_id}/output", params=params)
    assert answer.status_code == 200, answer.text
    return answer.content
