from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from paddock import errors
from paddock.guest import link as link_module
from paddock.guest import wire
from paddock.guest.link import Guest, GuestViolation
from paddock.guest.wire import Type
from tests.unit.guest_link.peer import (
    BOOT_ID,
    EXIT,
    PATIENCE,
    SECRET,
    START,
    Peer,
    Recorder,
    boot,
    descriptors,
    entry,
    output_frame,
    redial,
    until,
)


@pytest.fixture
async def booted() -> AsyncIterator[tuple[Guest, Peer]]:
    guest, peer = await boot()
    yield guest, peer
    guest.close()
    peer.close()


async def test_boot_learns_who_the_guest_is(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    assert guest.boot_id == BOOT_ID
    assert not guest.lost
    guest.adopt()
    await peer.expect(Type.ADOPT)


async def test_a_guest_that_says_nothing_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with pytest.raises(errors.Timeout):
        await Guest.boot(ours, SECRET, "/run", timeout=0.05)
    assert ours.fileno() == -1
    theirs.close()


async def test_a_guest_that_dies_at_once_is_unavailable() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(errors.Unavailable) as caught:
        await Guest.boot(ours, SECRET, "/run", timeout=PATIENCE)
    assert caught.value.reason == "guest_lost"


@pytest.mark.parametrize(
    "answer",
    [
        wire.frame(Type.HELLO, 0, wire.Hello(BOOT_ID, version=2).pack()),
        wire.frame(Type.HELLO, 1, wire.Hello(BOOT_ID).pack()),
        wire.frame(Type.INVENTORY_END),
        wire.frame(Type.PONG, 0, bytes(8)),
        output_frame(1, 0, b"early"),
        wire.frame(Type.EXIT, 1, EXIT.pack()),
    ],
    ids=["version", "channel", "inventory", "pong", "output", "exit"],
)
async def test_a_first_answer_other_than_hello_is_a_violation(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(answer)
    with pytest.raises(GuestViolation):
        await Guest.boot(ours, SECRET, "/run", timeout=PATIENCE)
    theirs.close()


async def test_cancelling_boot_closes_the_link() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair()
    booting = asyncio.create_task(Guest.boot(ours, SECRET, "/run", timeout=PATIENCE))
    await Peer(theirs).expect(Type.BOOT)
    booting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await booting
    theirs.close()
    assert descriptors() == before


async def test_an_exec_from_start_to_exit(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(START, sink)
    frame = await peer.expect(Type.START)
    assert (frame.channel, wire.Start.unpack(frame.payload)) == (channel.number, START)
    await peer.send(wire.frame(Type.STARTED, 1, wire.STARTED.pack(42, 7)))
    await peer.output(1, 0, b"out")
    await peer.output(1, 3, b"err", wire.STDERR)
    done = replace(EXIT, code=5, end=6, stdout_bytes=3, stderr_bytes=3)
    await peer.send(wire.frame(Type.EXIT, 1, done.pack()))
    assert await sink.wait_exit() == done
    assert (sink.pid, sink.stdout, sink.stderr) == (42, b"out", b"err")
    assert channel.exit == done
    channel.release()
    channel.release()
    assert (await peer.expect(Type.RELEASE)).channel == 1


async def test_channel_numbers_are_never_used_twice(booted: tuple[Guest, Peer]) -> None:
    guest, _ = booted
    numbers = []
    for _ in range(3):
        channel = guest.start(START, Recorder())
        channel.release()
        numbers.append(channel.number)
    assert numbers == [1, 2, 3]


async def test_frames_may_arrive_in_any_pieces(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    guest.start(START, sink)
    data = bytes(range(256)) * 3
    frames = output_frame(1, 0, data) + wire.frame(
        Type.EXIT, 1, replace(EXIT, end=len(data), stdout_bytes=len(data)).pack()
    )
    for at in range(0, len(frames), 7):
        await peer.send(frames[at : at + 7])
        await asyncio.sleep(0)
    await sink.wait_exit()
    assert sink.stdout == data


async def test_large_output_arrives_whole(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    guest.start(replace(START, window=wire.MAX_WINDOW), sink)
    piece = bytes(range(256)) * 1023
    for number in range(40):
        await peer.output(1, number * len(piece), piece)
    await peer.exit(1, 40 * len(piece))
    await sink.wait_exit()
    assert sink.stdout == piece * 40


@pytest.mark.parametrize(
    "frames",
    [
        [output_frame(1, 1, b"a gap")],
        [output_frame(1, 0, b"ab"), output_frame(1, 1, b"an overlap")],
        [output_frame(1, 0, b"x", stream=3)],
        [output_frame(1, 0, b"")],
        [output_frame(2, 0, b"nobody's")],
        [output_frame(0, 0, b"nobody's")],
        [output_frame(1, 0, b"x" * 3000), output_frame(1, 3000, b"x" * 3000)],
        [wire.frame(Type.EXIT, 1, replace(EXIT, end=1, stdout_bytes=1).pack())],
        [output_frame(1, 0, b"ab"), wire.frame(Type.EXIT, 1, EXIT.pack())],
        [output_frame(1, 0, b"ab"), wire.frame(Type.EXIT, 1, replace(EXIT, end=2, stdout_bytes=1).pack())],
        [wire.frame(Type.EXIT, 1, EXIT.pack()), wire.frame(Type.EXIT, 1, EXIT.pack())],
        [wire.frame(Type.EXIT, 1, EXIT.pack()), output_frame(1, 0, b"late")],
        [wire.frame(Type.EXIT, 1, EXIT.pack()[:-1])],
        [wire.frame(Type.EXIT, 9, EXIT.pack())],
        [wire.frame(Type.STARTED, 1, bytes(12)), wire.frame(Type.STARTED, 1, bytes(12))],
        [wire.frame(Type.CREDIT, 1, wire.U32.pack(1))],
        [wire.frame(Type.CREDIT, 1, bytes(3))],
        [wire.frame(Type.PONG, 1, bytes(8))],
        [wire.frame(Type.PONG, 0, bytes(9))],
        [wire.frame(Type.HELLO, 0, wire.Hello(BOOT_ID).pack())],
        [wire.frame(Type.INVENTORY, 1, entry(1).pack())],
        [wire.frame(Type.INVENTORY_END)],
        [wire.frame(Type.DIAL, 0, wire.Greeting(SECRET, BOOT_ID, 1).pack())],
        [wire.frame(Type.PROBLEM, 0, b"something is \xff wrong")],
        [wire.frame(Type.START, 1, START.pack())],
        [wire.frame(99)],
        [wire.frame(Type.PONG, 0, bytes(8), flags=1)],
        [wire.HEADER.pack(8, 0, Type.PONG, 0, 1) + bytes(8)],
        [wire.HEADER.pack(wire.MAX_PAYLOAD + 1, 1, Type.OUTPUT, 0, 0)],
        [wire.HEADER.pack(0xFFFF_FFFF, 0, Type.PROBLEM, 0, 0)],
    ],
)
async def test_a_violation_ends_the_link_and_the_sinks_hear_of_it(
    booted: tuple[Guest, Peer], frames: list[bytes]
) -> None:
    guest, peer = booted
    sink = Recorder()
    guest.start(replace(START, window=wire.MIN_WINDOW), sink)
    await peer.send(*frames)
    async with asyncio.timeout(PATIENCE):
        await guest.wait_closed()
    assert guest.lost
    assert isinstance(guest.failure, GuestViolation)
    assert sink.losses == (0 if sink.exit else 1)
    assert await peer.has_ended()
    with pytest.raises(errors.Unavailable) as caught:
        guest.start(START, Recorder())
    assert caught.value.reason == "guest_lost"


async def test_frames_for_a_released_exec_are_late_not_wrong(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    guest.start(START, sink).release()
    await peer.output(1, 0, b"late")
    await peer.send(wire.frame(Type.STARTED, 1, bytes(12)), wire.frame(Type.CREDIT, 1, wire.U32.pack(5)))
    await peer.exit(1, 4)
    await _answers_ping(guest, peer, 2)
    assert (sink.end, sink.exit, sink.losses) == (0, None, 0)


async def _answers_ping(guest: Guest, peer: Peer, skip: int) -> None:
    pinging = asyncio.create_task(guest.ping(PATIENCE))
    for _ in range(skip):
        await peer.next()
    frame = await peer.expect(Type.PING)
    await peer.send(wire.frame(Type.PONG, 0, b"whatever"), wire.frame(Type.PONG, 0, frame.payload))
    assert await pinging > 0


async def test_ping_takes_its_own_answer_only(booted: tuple[Guest, Peer]) -> None:
    await _answers_ping(*booted, 0)


async def test_ping_gives_up_and_its_late_answer_does_no_harm(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    with pytest.raises(errors.Timeout):
        await guest.ping(0.02)
    frame = await peer.expect(Type.PING)
    await peer.send(wire.frame(Type.PONG, 0, frame.payload))
    await _answers_ping(guest, peer, 0)


async def test_losing_the_link_tells_every_sink_that_waits(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    ended, running, released = Recorder(), Recorder(), Recorder()
    guest.start(START, ended)
    channel = guest.start(replace(START, stdin=True), running)
    guest.start(START, released).release()
    await peer.exit(1)
    await ended.wait_exit()
    pinging = asyncio.create_task(guest.ping(PATIENCE))
    await asyncio.sleep(0)
    peer.close()
    await guest.wait_closed()
    assert guest.failure is None or isinstance(guest.failure, OSError)
    assert (ended.losses, running.losses, released.losses) == (0, 1, 0)
    with pytest.raises(errors.Unavailable):
        await pinging
    for call in (lambda: channel.kill(0), lambda: channel.signal(15), lambda: guest.shutdown(0), guest.adopt):
        with pytest.raises(errors.Unavailable):
            call()
    with pytest.raises(errors.Unavailable):
        await channel.write(b"x")
    channel.ack(0)
    channel.release()


async def test_what_was_said_before_the_end_is_heard(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    guest.start(START, sink)
    await peer.output(1, 0, b"last words")
    await peer.exit(1, 10)
    peer.close()
    await guest.wait_closed()
    assert sink.stdout == b"last words"
    assert sink.exit is not None


async def test_a_sink_that_raises_ends_the_link_but_not_the_loop(booted: tuple[Guest, Peer]) -> None:
    class Broken(Recorder):
        def output(self, position: int, stream: int, data: bytes) -> None:
            raise ValueError("no room")

        def lost(self) -> None:
            raise ValueError("not even this")

    guest, peer = booted
    other = Recorder()
    guest.start(START, Broken())
    guest.start(START, other)
    await peer.output(1, 0, b"x")
    await guest.wait_closed()
    assert isinstance(guest.failure, ValueError)
    assert other.losses == 1


async def test_closing_from_within_a_sink_stops_everything(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted

    class Closes(Recorder):
        def output(self, position: int, stream: int, data: bytes) -> None:
            super().output(position, stream, data)
            guest.close()

    sink = Closes()
    guest.start(START, sink)
    await peer.send(output_frame(1, 0, b"one"), output_frame(1, 3, b"two"))
    await guest.wait_closed()
    assert (sink.stdout, sink.losses) == (b"one", 1)


async def test_the_inventory_is_there_before_the_link_is_handed_out() -> None:
    entries = [entry(3, end=9), entry(7, running=False, stdin_open=False)]
    guest, peer = await redial(*entries, free_channel=8)
    assert guest.inventory == entries
    assert guest.boot_id == BOOT_ID
    sink = Recorder()
    sink.end = 5
    channel = guest.resume(entries[0], sink, 5)
    guest.forget(entries[1])
    fresh = guest.start(START, Recorder())
    assert (await peer.next()).payload == wire.U64.pack(5)
    assert (await peer.expect(Type.RELEASE)).channel == 7
    assert (await peer.expect(Type.START)).channel == fresh.number == 8
    await peer.output(3, 5, b"rest")
    await peer.exit(3, 9)
    await sink.wait_exit()
    assert (channel.number, sink.stdout) == (3, b"rest")
    guest.close()
    peer.close()


async def test_an_entry_is_answered_once_and_only_with_a_position_it_has() -> None:
    kept = entry(3, acknowledged=10, end=20)
    guest, peer = await redial(kept)
    for position in (9, 21):
        with pytest.raises(GuestViolation):
            guest.resume(kept, Recorder(), position)
    guest.forget(kept)
    with pytest.raises(errors.Conflict):
        guest.resume(kept, Recorder(), 10)
    guest.close()
    peer.close()


async def test_no_output_before_resume() -> None:
    guest, peer = await redial(entry(3, end=5))
    await peer.output(3, 0, b"early")
    await guest.wait_closed()
    assert isinstance(guest.failure, GuestViolation)
    peer.close()


@pytest.mark.parametrize(
    "entries",
    [[entry(3), entry(3)], [entry(100)], [entry(number, metadata=b"x" * 60_000) for number in range(1, 20)]],
)
async def test_an_inventory_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, entries: list[wire.Inventory]
) -> None:
    monkeypatch.setattr(link_module, "MAX_INVENTORY_METADATA", 1_000_000)
    ours, theirs = socket.socketpair()
    frames = b"".join(wire.frame(Type.INVENTORY, e.channel, e.pack()) for e in entries)
    coming = asyncio.create_task(Guest.welcome(ours, wire.Greeting(SECRET, BOOT_ID, 100), timeout=PATIENCE))
    peer = Peer(theirs)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await peer.send(frames)
    with pytest.raises(GuestViolation):
        await coming
    peer.close()


async def test_a_guest_that_stops_reading_cannot_make_us_grow(
    booted: tuple[Guest, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, _ = booted
    monkeypatch.setattr(link_module, "BUSY", 1 << 20)
    big = replace(START, argv=[b"x" * 200_000])

    async def flood() -> None:
        for _ in range(100):
            guest.start(big, Recorder())
            await asyncio.sleep(0)

    with pytest.raises(errors.Unavailable) as caught:
        await flood()
    assert caught.value.reason == "guest_busy"
    assert not guest.lost


async def test_shutdown_is_said(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    guest.shutdown(1500)
    assert (await peer.expect(Type.SHUTDOWN)).payload == wire.U32.pack(1500)
    peer.close()
    await until(lambda: guest.lost)
