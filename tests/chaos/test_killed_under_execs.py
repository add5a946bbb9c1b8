"""`kill -9` of the server while commands run: their output arrives once, their end is the true one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from typing import Any

import pytest

from tests.chaos.stage import CUT, Box, Follower, until

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.leaks_ok]

LINES = 150
COUNT = f"i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 7"
COUNTED = b"".join(b"%d\n" % number for number in range(LINES))
FLOOD = 4_500_000
"""`seq` up to here prints 35 MB: more than may be ahead of a client, less than is kept."""


def numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, last + 1))


async def count_in_three_ways(box: Box) -> tuple[list[Follower], asyncio.Task[Any]]:
    """In the background, on a terminal, and in the foreground, where the request ends with the server."""
    await box.start("sh", "-c", COUNT, id="in-background")
    await box.start("sh", "-c", COUNT, id="on-terminal", terminal={})
    waiting = asyncio.ensure_future(box.run("sh", "-c", COUNT, id="in-foreground"))

    async def all_started() -> bool:
        return (await box.call("GET", "/execs/in-foreground")).status_code == 200

    await until(all_started, "the foreground exec is known")
    return [Follower(box, name) for name in ("in-background", "on-terminal", "in-foreground")], waiting


def assert_counted(followers: list[Follower]) -> None:
    for follower in followers:
        ends = b"\r\n" if follower.exec_id == "on-terminal" else b"\n"
        assert bytes(follower.data) == COUNTED.replace(b"\n", ends), follower.exec_id
        assert follower.exit is not None
        assert (follower.exit["state"], follower.exit["exit_code"]) == ("failed", 7)


async def cut_or_done(waiting: asyncio.Future[dict[str, Any]], code: int) -> None:
    """The call of a foreground exec whose server was killed: on a slow machine it may have come before."""
    try:
        assert (await waiting)["exit_code"] == code
    except CUT:
        return


@pytest.mark.parametrize("kills", [1, 5])
async def test_each_line_arrives_once(box: Box, chance: random.Random, kills: int) -> None:
    followers, waiting = await count_in_three_ways(box)
    following = [asyncio.ensure_future(follower.follow()) for follower in followers]
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.01, 0.4))
        await box.stage.restart()
    await asyncio.gather(*following)
    await cut_or_done(waiting, 7)
    assert_counted(followers)
    for follower in followers:
        assert (await box.ended(follower.exec_id))["exit_code"] == 7
        assert await box.output(follower.exec_id) == bytes(follower.data)
    again = await box.run("sh", "-c", COUNT, id="in-foreground")
    assert (again["stdout"].encode(), again["exit_code"]) == (COUNTED, 7)


async def test_a_flood_arrives_whole(box: Box, chance: random.Random) -> None:
    wanted = hashlib.sha256(numbers(FLOOD)).hexdigest()
    exec_id = await box.start("sh", "-c", f"seq 1 {FLOOD}; exit 3")
    follower = Follower(box, exec_id)
    following = asyncio.ensure_future(follower.follow())
    for megabytes in sorted(chance.uniform(0.1, 12) for _ in range(2)):
        await follower.reached(int(megabytes * 1e6))
        await box.stage.restart()
    assert hashlib.sha256(await following).hexdigest() == wanted
    assert follower.losses >= 2
    assert follower.exit is not None
    assert follower.exit["exit_code"] == 3
    assert hashlib.sha256(await box.output(exec_id)).hexdigest() == wanted


async def test_a_flood_that_nobody_follows_arrives_whole(box: Box, chance: random.Random) -> None:
    exec_id = await box.start("sh", "-c", f"seq 1 {FLOOD}; seq 1 {FLOOD // 8} >&2; exit 5")
    await asyncio.sleep(chance.uniform(0.01, 0.15))
    await box.stage.restart()
    assert (await box.ended(exec_id))["exit_code"] == 5
    for stream, last in (("stdout", FLOOD), ("stderr", FLOOD // 8)):
        path = f"/execs/{exec_id}/output"
        answer = await box.call("GET", path, params={"encoding": "raw", "stream": stream})
        assert hashlib.sha256(answer.content).digest() == hashlib.sha256(numbers(last)).digest(), stream


async def write_all(box: Box, exec_id: str, data: bytes) -> None:
    """Input in pieces. After a loss the exec's record tells how much has arrived."""
    sent = 0
    while sent < len(data):
        try:
            answer = await box.call("POST", f"/execs/{exec_id}/stdin", content=data[sent : sent + 50_000])
            if answer.status_code == 200:
                sent = answer.json()["exec"]["stdin_bytes"]
                continue
        except CUT:
            pass
        await asyncio.sleep(0.05)
        try:
            answer = await box.call("GET", f"/execs/{exec_id}")
        except CUT:
            continue
        if answer.status_code == 200:
            sent = answer.json()["stdin_bytes"]


async def test_input_arrives_once(box: Box, chance: random.Random) -> None:
    data = chance.randbytes(8 << 20)
    exec_id = await box.start("sha256sum", open_stdin=True)
    writing = asyncio.ensure_future(write_all(box, exec_id, data))
    for _ in range(2):
        await asyncio.sleep(chance.uniform(0.05, 0.25))
        await box.stage.restart()
    await writing

    async def closed() -> bool:
        answer = await box.call("POST", f"/execs/{exec_id}/close-stdin")
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200

    await until(closed, "stdin is closed")
    assert (await box.ended(exec_id))["stdin_bytes"] == len(data)
    assert await box.output(exec_id) == f"{hashlib.sha256(data).hexdigest()}  -\n".encode()


async def test_input_that_came_with_the_request_arrives(box: Box) -> None:
    """More of it than the guest takes at once, and a process that does not read until the server is back."""
    data = bytes(range(256)) * 2400
    waiting = "while [ ! -e go ]; do sleep 0.02; done; exec sha256sum"
    exec_id = await box.start("sh", "-c", waiting, stdin_base64=base64.b64encode(data).decode())
    await box.stage.restart()
    await box.run("touch", "go")
    ended = await box.ended(exec_id)
    assert ended["exit_code"] == 0, ended
    assert await box.output(exec_id) == f"{hashlib.sha256(data).hexdigest()}  -\n".encode()


async def test_ends_that_come_while_nobody_is_there(box: Box) -> None:
    """An exit, a signal, a deadline, and a whole background tree, all between two servers."""
    waits = "while [ ! -e go ]; do sleep 0.02; done; "
    exits = await box.start("sh", "-c", f"{waits} echo out; echo err >&2; exit 42")
    dies = await box.start("sh", "-c", f"{waits} kill -9 $$")
    late = await box.start("sh", "-c", "echo begun; sleep 600", timeout=1.5)
    away = asyncio.ensure_future(box.run("sh", "-c", "sleep 1; touch go", id="the-trigger"))
    await asyncio.sleep(0.2)
    box.stage.kill()
    await cut_or_done(away, 0)
    await asyncio.sleep(2)
    await box.stage.up()
    one, two, three = [await box.ended(name) for name in (exits, dies, late)]
    assert (one["state"], one["exit_code"], one["stdout_bytes"], one["stderr_bytes"]) == ("failed", 42, 4, 4)
    assert (two["state"], two["signal"]) == ("failed", 9)
    assert (three["state"], three["stdout_bytes"]) == ("timed_out", 6)
    assert three["finished_at"] - three["started_at"] < 30
    assert (await box.ended("the-trigger"))["exit_code"] == 0
