from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock import errors
from paddock.guest import wire
from paddock.guest.process import MAX_STDERR, Stream, collect
from paddock.guest.wire import Outcome, Start, Type
from tests.unit.guest_link.peer import PATIENCE, START, boot, output_frame, until
from tests.unit.guest_link.real import Sandbox, sandbox, sh

real = pytest.mark.needs("cc")


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(tmp_path) as made:
        yield made


async def _pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
        await asyncio.sleep(0)


@real
async def test_collect(made: Sandbox) -> None:
    done = await collect(made.guest, sh("echo out; echo err >&2; exit 2"), limit=100, timeout=PATIENCE)
    assert (done.exit.code, done.stdout, done.stderr) == (2, b"out\n", b"err\n")


@real
async def test_collect_with_input(made: Sandbox) -> None:
    data = bytes(range(256)) * 4096
    for source in (data, _pieces(data, 100_000)):
        done = await collect(made.guest, sh("cat"), stdin=source, limit=len(data), timeout=PATIENCE)
        assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


@real
async def test_a_process_may_end_before_it_has_read_all(made: Sandbox) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(65_536)

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.get_running_loop().create_future()
        yield b""

    for source in (endless(), silent()):
        done = await collect(made.guest, sh("exit 7"), stdin=source, limit=10, timeout=PATIENCE)
        assert done.exit.code == 7


@real
async def test_a_source_that_fails_kills_the_process(made: Sandbox) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise ValueError("the client went away")

    with pytest.raises(ValueError, match="went away"):
        await collect(made.guest, sh("cat; sleep 300"), stdin=broken(), limit=100, timeout=PATIENCE)
    await _nothing_runs(made)


async def _nothing_runs(made: Sandbox) -> None:
    async def alone() -> bool:
        return (await made.runtime.stats(made.instance)).processes == 1

    async with asyncio.timeout(PATIENCE):
        while not await alone():  # noqa: ASYNC110 (a process's end has no event here)
            await asyncio.sleep(0.01)


@real
async def test_too_large_an_answer(made: Sandbox) -> None:
    with pytest.raises(errors.TooLarge):
        await collect(made.guest, sh("yes"), limit=1_000_000, timeout=PATIENCE)
    await _nothing_runs(made)


@real
async def test_too_slow_an_answer(made: Sandbox) -> None:
    with pytest.raises(errors.Timeout):
        await collect(made.guest, sh("sleep 300"), limit=10, timeout=0.2)
    await _nothing_runs(made)


@real
async def test_cancelling_kills(made: Sandbox) -> None:
    collecting = asyncio.create_task(collect(made.guest, sh("sleep 300"), limit=10, timeout=None))
    await asyncio.sleep(0)
    await made.guest.ping(PATIENCE)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    await _nothing_runs(made)


@real
async def test_a_stream_far_larger_than_its_window(made: Sandbox) -> None:
    size = 0
    async with Stream(made.guest, sh("head -c 10000000 /dev/zero; echo done >&2; exit 5")) as stream:
        async for data in stream:
            size += len(data)
            assert sum(len(chunk) for _, chunk in stream._chunks) <= 1 << 20
    assert size == 10_000_000
    assert stream.exit is not None
    assert (stream.exit.code, stream.stderr) == (5, b"done\n")


@real
async def test_leaving_a_stream_kills(made: Sandbox) -> None:
    async with Stream(made.guest, sh("yes")) as stream:
        assert (await anext(stream)).startswith(b"y\ny\n")
    await stream.aclose()
    await _nothing_runs(made)


@real
async def test_much_stderr_neither_grows_nor_blocks(made: Sandbox) -> None:
    script = "head -c 3000000 /dev/zero >&2; echo end"
    done = await collect(made.guest, sh(script), limit=10, timeout=PATIENCE)
    assert (done.stdout, len(done.stderr)) == (b"end\n", MAX_STDERR)


@real
async def test_a_file_call(made: Sandbox) -> None:
    path = f"{made.instance.workspace}/hello.txt".encode()
    write = Start([b"write", path, b"-", b"0", b"0", b"-"], [], b"/", builtin=True, transient=True)
    done = await collect(made.guest, write, stdin=b"hello", limit=10_000, timeout=PATIENCE)
    assert (done.exit.outcome, done.exit.code, done.stderr) == (Outcome.EXITED, 0, b"")
    assert json.loads(done.stdout)["size"] == 5
    async with Stream(made.guest, replace(write, argv=[b"read", path, b"1", b"3"])) as stream:
        await stream.wait_started()
        assert b"".join([data async for data in stream]) == b"ell"
    missing = replace(write, argv=[b"stat", path + b".not", b"0"])
    done = await collect(made.guest, missing, limit=10_000, timeout=PATIENCE)
    assert (done.exit.code, json.loads(done.stderr)["errno"]) == (2, "ENOENT")


async def test_a_window_of_single_bytes_costs_little() -> None:
    guest, peer = await boot()
    async with Stream(guest, START) as stream:
        count = 100_000
        for start in range(0, count, 1000):
            await peer.send(*[output_frame(1, at, b"%d" % (at % 10)) for at in range(start, start + 1000)])
        await until(lambda: stream._channel.position == count)
        assert len(stream._chunks) <= 3
        await peer.exit(1, count)
        assert b"".join([data async for data in stream]) == b"0123456789" * (count // 10)
    guest.close()
    peer.close()


async def test_a_lost_link_is_no_end() -> None:
    guest, peer = await boot()
    stream = Stream(guest, START)
    assert wire.Start.unpack((await peer.expect(Type.START)).payload).transient
    await peer.output(1, 0, b"part")
    await until(lambda: bool(stream._chunks))
    peer.close()
    await guest.wait_closed()
    assert await anext(stream) == b"part"
    with pytest.raises(errors.Unavailable) as caught:
        await anext(stream)
    assert caught.value.reason == "guest_lost"
    await stream.aclose()


async def test_one_who_leaves_waits_for_nothing_but_lets_the_exec_end() -> None:
    guest, peer = await boot()
    async with Stream(guest, START):
        await peer.expect(Type.START)
        await peer.output(1, 0, b"unread")
    assert (await peer.expect(Type.KILL)).payload == wire.U32.pack(0)
    await peer.output(1, 6, b"and more")
    await peer.exit(1, 14)
    await peer.expect(Type.RELEASE)
    guest.close()
    peer.close()
