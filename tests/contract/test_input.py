"""What execs are given to read."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode

import pytest

from paddock.errors import Conflict, Gone, Invalid
from paddock.sandboxes.execlog import Chunk
from tests.contract.stage import scenario
from tests.contract.world import World, sha256


@scenario
async def test_text(world: World) -> None:
    box = await world.shared()
    assert (await world.run(box, "cat", stdin="häl\nlo")).stdout == "häl\nlo"
    assert (await world.run(box, "cat", stdin="")).stdout == ""
    assert (await world.run(box, "cat")).stdout == ""


@scenario
async def test_bytes(world: World) -> None:
    box = await world.shared()
    data = bytes(range(256)) * 3
    done = await world.run(box, "cat", stdin_base64=b64encode(data).decode())
    assert (done.encoding, done.stdout) == ("base64", b64encode(data).decode())
    assert done.stdin_bytes == len(data)
    with pytest.raises(Invalid):
        await world.run(box, "cat", stdin_base64="***")


@scenario
async def test_a_lot(world: World) -> None:
    box = await world.shared()
    data = os.urandom(1 << 20) * 5
    started = await world.start_exec(box, "cat", open_stdin=True)

    async def feed() -> None:
        for at in range(0, len(data), 300_000):
            await world.service.write_stdin(box, started.id, data[at : at + 300_000])
        await world.service.close_stdin(box, started.id)

    async def take() -> list[bytes]:
        return [p.data async for p in world.service.output(box, started.id) if isinstance(p, Chunk)]

    parts, _ = await asyncio.wait_for(asyncio.gather(take(), feed()), 60)
    assert sha256(parts) == sha256([data])
    done = await world.wait(box, started.id)
    assert (done.exit_code, done.stdin_bytes, done.stdout_bytes) == (0, len(data), len(data))


@scenario
async def test_streamed_and_closed(world: World) -> None:
    box = await world.shared()
    started = await world.start_exec(box, "cat", open_stdin=True, stdin="begin ")
    await world.until_output(box, started.id, b"begin ")
    await world.service.write_stdin(box, started.id, b"middle ")
    await world.until_output(box, started.id, b"middle ")
    await world.service.close_stdin(box, started.id)
    await world.service.close_stdin(box, started.id)
    assert (await world.wait(box, started.id)).exit_code == 0
    assert await world.text(box, started.id) == b"begin middle "
    with pytest.raises(Conflict) as caught:
        await world.service.write_stdin(box, started.id, b"late")
    assert caught.value.reason == "exec_ended"


@scenario
async def test_a_process_that_does_not_read(world: World) -> None:
    """Its input fills up, and nothing else is held up by that."""
    box = await world.shared()
    started = await world.start_sh(box, "sleep 1000", open_stdin=True)
    writing = asyncio.create_task(world.service.write_stdin(box, started.id, bytes(4 << 20)))
    assert (await world.run(box, "cat", stdin="meanwhile")).stdout == "meanwhile"
    assert not writing.done()
    await world.service.cancel_exec(box, started.id, grace=0)
    await world.wait(box, started.id)
    with pytest.raises(Gone):
        await asyncio.wait_for(writing, 30)


@scenario
async def test_input_nobody_wanted(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, "sleep 1000")
    with pytest.raises(Gone) as caught:
        await world.service.write_stdin(box, started.id, b"x")
    assert caught.value.reason == "stdin_closed"
    await world.service.cancel_exec(box, started.id, grace=0)
    await world.wait(box, started.id)
    # A process that ends without taking its input is no error.
    done = await world.run(box, "true", stdin="x" * (1 << 20))
    assert done.exit_code == 0
