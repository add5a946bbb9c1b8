"""A guest that has been taken over and lies: its own sandbox suffers; the server and the others do not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from paddock.errors import PaddockError
from paddock.guest import wire
from paddock.guest.wire import Type
from paddock.sandboxes import boxes
from paddock.sandboxes.requests import CreateSandbox, ExecRequest
from tests.contract.world import World
from tests.security.liar import LiarRuntime, LyingGuest, Script
from tests.unit.guest_link.peer import EXIT, entry, output_frame

pytestmark = pytest.mark.needs("cc")


@dataclass
class Village:
    """An honest sandbox, with an exec that runs, beside those of the liar."""

    world: World
    liar: LiarRuntime
    honest: str
    running: str

    async def create(self, script: Script) -> str:
        self.liar.script = script
        async with asyncio.timeout(30):
            return (await self.world.service.create(CreateSandbox(runtime="liar"))).id

    async def unharmed(self) -> None:
        async with asyncio.timeout(30):
            assert (await self.world.run(self.honest, "echo", "fine")).stdout == "fine\n"
            found = await self.world.service.get_exec(self.honest, self.running)
            assert not found.state.ended


@pytest_asyncio.fixture
async def village(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Village]:
    monkeypatch.setattr(boxes, "BOOT_SECONDS", 2.0)
    world = await World.open("fake")
    liar = LiarRuntime()
    runtimes: Any = world.service.runtimes
    runtimes["liar"] = liar
    honest = await world.create()
    running = await world.start_exec(honest.id, "sleep", "1000")
    try:
        yield Village(world, liar, honest.id, running.id)
    finally:
        async with asyncio.timeout(60):
            await world.close()


def _header(size: int, channel: int, kind: int, flags: int = 0, zero: int = 0) -> bytes:
    return wire.HEADER.pack(size, channel, kind, flags, zero)


_HELLO = wire.frame(Type.HELLO, 0, wire.Hello(b"b" * 16).pack())
FIRST_WORDS = {
    "nothing": b"",
    "noise": bytes(range(256)) * 20,
    "a huge length": _header(0xFFFF_FFFF, 0, Type.HELLO),
    "another version": wire.frame(Type.HELLO, 0, wire.Hello(b"b" * 16, version=2).pack()),
    "a short hello": wire.frame(Type.HELLO, 0, b"x"),
    "an inventory": wire.frame(Type.INVENTORY_END),
    "output": output_frame(1, 0, b"x"),
    "a problem": wire.frame(Type.PROBLEM, 0, b"\x1b[2J\x07" * 1000),
    "hello twice": _HELLO * 2,
    "a host's frame": wire.frame(Type.SHUTDOWN, 0, bytes(4)),
}


REFUSALS = ("guest_timeout", "guest_protocol", "guest_version", "guest_problem", "guest_lost")


@pytest.mark.parametrize("name", FIRST_WORDS)
async def test_lies_at_the_start(village: Village, name: str) -> None:
    """The create fails, or the link does right after it; nothing of the sandbox stays but its record."""

    async def script(guest: LyingGuest) -> None:
        await guest.peer.next()
        await guest.peer.send(FIRST_WORDS[name])
        await guest.peer.has_ended()

    if name == "hello twice":
        # The second one may come before or after the create has its answer.
        with contextlib.suppress(PaddockError):
            made = await village.create(script)
            await village.world.until(lambda: village.world.service.boxes[made].guest is None)
    else:
        with pytest.raises(PaddockError) as caught:
            await village.create(script)
        assert caught.value.reason in REFUSALS
    folders = {path.name for path in (village.world.folder / "sandboxes").iterdir()}
    assert folders == {one.id for one in village.world.service.list()}
    await village.unharmed()


def _later(channel: int) -> dict[str, list[bytes]]:
    started = wire.frame(Type.STARTED, channel, wire.STARTED.pack(1, 1))
    return {
        "a huge length": [_header(0xFFFF_FFFF, channel, Type.OUTPUT)],
        "output at a wrong position": [started, output_frame(channel, 5, b"x")],
        "output at the end of numbers": [started, output_frame(channel, (1 << 64) - 1, b"x")],
        "output of an exec that nobody started": [output_frame(channel + 77, 0, b"x")],
        "output of channel 0": [output_frame(0, 0, b"x")],
        "an unknown stream": [started, output_frame(channel, 0, b"x", stream=9)],
        "output without end": [started],
        "started twice": [started, started],
        "exit with a wrong end": [started, wire.frame(Type.EXIT, channel, EXIT.pack()[:8] + b"\xff" * 64)],
        "exit twice": [started, *[wire.frame(Type.EXIT, channel, EXIT.pack())] * 2],
        "credit without end": [started, *[wire.frame(Type.CREDIT, channel, b"\xff" * 4)] * 3],
        "a pong nobody asked for": [wire.frame(Type.PONG, 0, bytes(8))],
        "flags": [_header(0, channel, Type.CREDIT, flags=255, zero=65535)],
        "an unknown frame": [wire.frame(250, channel, b"x")],
        "a second hello": [_HELLO],
        "a problem": [wire.frame(Type.PROBLEM, 0, b"\x1b]0;owned\x07\x1b[2J" * 10_000)],
        "half a frame, for ever": [_header(100, channel, Type.OUTPUT), b"x"],
    }


async def _flood(guest: LyingGuest, channel: int) -> None:
    data = bytes(wire.MAX_PAYLOAD - wire.OUTPUT.size)
    for at in range(256):
        await guest.peer.send(output_frame(channel, at * len(data), data))


HARMLESS = (
    "output without end", "output of an exec that nobody started", "a pong nobody asked for",
    "half a frame, for ever",
)  # fmt: skip
"""A link may live on after these: they cost nothing."""


@pytest.mark.parametrize("name", _later(1))
async def test_lies_about_an_exec(village: Village, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lied = asyncio.Event()

    async def script(guest: LyingGuest) -> None:
        await guest.boot()
        channel = await guest.next_start()
        try:
            for frame in _later(channel)[name]:
                await guest.peer.send(frame)
            if name == "output without end":
                await _flood(guest, channel)
        except OSError:
            pass
        lied.set()
        await guest.peer.has_ended()

    made = await village.create(script)
    service = village.world.service
    request = ExecRequest(command=["true"], background=True, open_stdin=True)
    await service.start_exec(made, request)
    async with asyncio.timeout(30):
        await lied.wait()
    if name not in HARMLESS:
        await village.world.until(lambda: service.boxes[made].guest is None)
    await village.unharmed()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    async with asyncio.timeout(30):
        await service.delete(made)


async def test_a_guest_that_never_answers(village: Village) -> None:
    """Whoever waits may give up, and the sandbox can be deleted."""

    async def script(guest: LyingGuest) -> None:
        await guest.boot()
        await guest.peer.has_ended()

    made = await village.create(script)
    service = village.world.service
    calls = [
        asyncio.ensure_future(service.run_exec(made, ExecRequest(command=["true"]))),
        asyncio.ensure_future(service.files.stat(made, "/")),
        asyncio.ensure_future(service.files.list(made, "/")),
    ]
    await asyncio.wait(calls, timeout=0.3)
    await village.unharmed()
    async with asyncio.timeout(60):
        await service.delete(made)
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, PaddockError) or getattr(result, "state", None)
    await village.unharmed()


async def test_a_guest_that_answers_no_json(village: Village) -> None:
    """File calls get noise, another shape, and numbers without measure instead of what they asked for."""
    answers = [
        b"\xff\xfe{", b"[" * 100_000, b"{}\n", b'{"name": 5}\n', json.dumps({"size": 10**400}).encode(),
        b'"\\u001b[2J"\n', b"null\n",
    ]  # fmt: skip

    async def script(guest: LyingGuest) -> None:
        await guest.boot()
        for answer in answers * 3:
            channel = await guest.next_start()
            done = EXIT.pack()
            exit_ = done[:8] + struct.pack("<QQ", len(answer), len(answer)) + done[24:]
            await guest.peer.send(
                wire.frame(Type.STARTED, channel, wire.STARTED.pack(1, 1)),
                output_frame(channel, 0, answer),
                wire.frame(Type.EXIT, channel, exit_),
            )
        await guest.peer.has_ended()

    made = await village.create(script)
    files = village.world.service.files
    async with asyncio.timeout(60):
        for _ in answers:
            for call in (files.stat(made, "/"), files.list(made, "/"), files.mkdir(made, "/x")):
                with pytest.raises(PaddockError) as caught:
                    await call
                assert caught.value.reason != "internal"
    await village.unharmed()


async def test_an_inventory_of_others(village: Village) -> None:
    """It comes back and claims execs of another sandbox, of a path, and of no sense at all."""
    service = village.world.service
    mine = await service.get_exec(village.honest, village.running)
    stolen = mine.model_dump_json().encode()
    channels = iter(range(1, 1000))

    def claim(**changes: Any) -> wire.Inventory:
        record = json.loads(stolen) | {"sandbox_id": made} | changes
        return entry(next(channels), metadata=json.dumps(record).encode())

    async def script(guest: LyingGuest) -> None:
        await guest.boot()
        await guest.next_start()
        guest.peer.close()

    made = await village.create(script)
    await service.start_exec(made, ExecRequest(command=["true"], background=True))
    guest = village.liar.guests[made]
    peer = await guest.dial()
    claims = [
        entry(next(channels), metadata=stolen),
        entry(next(channels), metadata=b"\xff" * 1000),
        entry(next(channels), metadata=b"[" * 60_000),
        claim(id="../../../escaped"),
        claim(id="/etc/escaped1"),
        claim(id="a" * 5000),
        claim(id="new\nline12"),
        claim(id="exTWICE00001"),
        claim(id="exTWICE00001"),
        claim(created_at=1e300),
        claim(command=["x"] * 10_000),
    ]
    frames = [wire.frame(Type.INVENTORY, one.channel, one.pack()) for one in claims]
    await peer.send(*frames, wire.frame(Type.INVENTORY_END))
    answers = [await peer.next() for _ in claims]
    resumed = {frame.channel for frame in answers if frame.kind == Type.RESUME}
    assert resumed <= {claims[7].channel, claims[8].channel}, "a claim was believed"
    assert len(resumed) <= 1
    peer.close()
    await village.unharmed()
    logs = village.world.folder / "logs"
    assert {path.name for path in logs.iterdir()} <= {one.id for one in service.list()}
    assert not list(village.world.folder.parent.glob("escaped*"))
    assert not list(village.world.folder.rglob("escaped*"))


@pytest.mark.parametrize("name", ["too many", "a channel twice", "impossible positions"])
async def test_an_inventory_that_cannot_be(village: Village, name: str) -> None:
    frames = {
        "too many": [wire.frame(Type.INVENTORY, number, entry(number).pack()) for number in range(1, 5000)],
        "a channel twice": [wire.frame(Type.INVENTORY, 1, entry(1).pack())] * 2,
        "impossible positions": [wire.frame(Type.INVENTORY, 1, entry(1, end=1 << 60).pack())],
    }[name]

    async def script(guest: LyingGuest) -> None:
        await guest.boot()
        await guest.peer.expect(Type.ADOPT)
        guest.peer.close()

    made = await village.create(script)
    peer = await village.liar.guests[made].dial(free_channel=100_000)
    with contextlib.suppress(OSError):
        await peer.send(*frames)
    async with asyncio.timeout(30):
        assert await peer.has_ended()
    peer.close()
    await village.unharmed()
