from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from paddock import errors
from paddock.guest import wire
from paddock.guest.link import Guest
from paddock.guest.wire import Type
from tests.unit.guest_link.peer import START, Peer, Recorder, boot, entry, redial, until

WITH_INPUT = replace(START, stdin=True)


@pytest.fixture
async def booted() -> AsyncIterator[tuple[Guest, Peer]]:
    guest, peer = await boot()
    yield guest, peer
    guest.close()
    peer.close()


async def test_input_waits_for_credit(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    channel = guest.start(WITH_INPUT, Recorder())
    data = bytes(range(256)) * 2000
    writing = asyncio.create_task(channel.write(data))
    await peer.expect(Type.START)
    first = await peer.expect(Type.STDIN)
    assert len(first.payload) == wire.STDIN_CREDIT == channel.stdin_sent
    assert not writing.done()
    await peer.send(wire.frame(Type.CREDIT, 1, wire.U32.pack(1000)))
    second = await peer.expect(Type.STDIN)
    assert len(second.payload) == 1000
    await peer.send(wire.frame(Type.CREDIT, 1, wire.U32.pack(wire.STDIN_CREDIT)))
    third = await peer.expect(Type.STDIN)
    await writing
    assert first.payload + second.payload + third.payload == data
    assert channel.stdin_sent == len(data)
    await channel.end_input()
    await channel.end_input()
    end = await peer.expect(Type.STDIN)
    assert (end.payload, end.flags) == (b"", wire.END_OF_INPUT)
    with pytest.raises(errors.Gone) as caught:
        await channel.write(b"more")
    assert caught.value.reason == "stdin_closed"


async def test_writers_take_turns(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    channel = guest.start(WITH_INPUT, Recorder())
    sizes = (300_000, 300_000)
    writing = [asyncio.create_task(channel.write(bytes([n]) * size)) for n, size in enumerate(sizes)]
    await peer.expect(Type.START)
    received = b""
    while len(received) < sum(sizes):
        part = (await peer.expect(Type.STDIN)).payload
        received += part
        await peer.send(wire.frame(Type.CREDIT, 1, wire.U32.pack(len(part))))
    await asyncio.gather(*writing)
    assert received == bytes(300_000) + b"\1" * 300_000


async def test_a_writer_is_told_when_the_exec_ends(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    channel = guest.start(WITH_INPUT, Recorder())
    writing = asyncio.create_task(channel.write(bytes(300_000)))
    await until(lambda: channel.stdin_sent == wire.STDIN_CREDIT)
    await peer.exit(1)
    with pytest.raises(errors.Gone) as caught:
        await writing
    assert caught.value.reason == "exec_ended"
    await channel.end_input()


async def test_a_writer_is_told_when_the_link_is_lost(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    channel = guest.start(WITH_INPUT, Recorder())
    writing = asyncio.create_task(channel.write(bytes(300_000)))
    await until(lambda: channel.stdin_sent == wire.STDIN_CREDIT)
    peer.close()
    with pytest.raises(errors.Unavailable):
        await writing


async def test_a_cancelled_writer_leaves_the_channel_usable(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    channel = guest.start(WITH_INPUT, Recorder())
    writing = asyncio.create_task(channel.write(bytes(300_000)))
    await until(lambda: channel.stdin_sent == wire.STDIN_CREDIT)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await peer.send(wire.frame(Type.CREDIT, 1, wire.U32.pack(5)))
    await channel.write(b"after")
    await peer.expect(Type.START)
    await peer.expect(Type.STDIN)
    assert (await peer.expect(Type.STDIN)).payload == b"after"


async def test_an_exec_without_input_takes_none(booted: tuple[Guest, Peer]) -> None:
    guest, _ = booted
    with pytest.raises(errors.Gone):
        await guest.start(START, Recorder()).write(b"x")


async def test_a_terminal_always_has_input(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    await guest.start(replace(START, terminal=True), Recorder()).write(b"ls\n")
    await peer.expect(Type.START)
    assert (await peer.expect(Type.STDIN)).payload == b"ls\n"


async def test_after_a_redial_credit_begins_at_nothing() -> None:
    kept = entry(3, stdin_received=77)
    guest, peer = await redial(kept)
    channel = guest.resume(kept, Recorder(), 0)
    assert channel.stdin_sent == 77
    writing = asyncio.create_task(channel.write(b"hello"))
    await peer.expect(Type.RESUME)
    assert not writing.done()
    await peer.send(wire.frame(Type.CREDIT, 3, wire.U32.pack(3)))
    assert (await peer.expect(Type.STDIN)).payload == b"hel"
    await peer.send(wire.frame(Type.CREDIT, 3, wire.U32.pack(100)))
    assert (await peer.expect(Type.STDIN)).payload == b"lo"
    await writing
    assert channel.stdin_sent == 82
    guest.close()
    peer.close()


async def test_after_a_redial_closed_input_stays_closed() -> None:
    kept = entry(3, stdin_open=False)
    guest, peer = await redial(kept)
    with pytest.raises(errors.Gone):
        await guest.resume(kept, Recorder(), 0).write(b"x")
    guest.close()
    peer.close()


async def test_small_acknowledgements_are_gathered(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    window = 64 << 10
    sink = Recorder()
    channel = guest.start(replace(START, window=window), sink)
    await peer.expect(Type.START)
    await peer.output(1, 0, bytes(window // 4))
    await until(lambda: sink.end == window // 4)
    for position in range(0, window // 4 + 1, 64):
        channel.ack(position)
    # The step came in one frame; nothing is left for the idle timer to say.
    assert (await peer.expect(Type.ACK)).payload == wire.U64.pack(window // 4)
    await peer.output(1, window // 4, b"a little")
    await until(lambda: sink.end == window // 4 + 8)
    channel.ack(window // 4 + 4)
    channel.ack(window // 4 + 8)
    channel.ack(3)
    assert (await peer.expect(Type.ACK)).payload == wire.U64.pack(window // 4 + 8)


async def test_nobody_acknowledges_what_has_not_come(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(START, sink)
    await peer.expect(Type.START)
    await peer.output(1, 0, b"four")
    await until(lambda: sink.end == 4)
    channel.ack(1 << 40)
    assert (await peer.expect(Type.ACK)).payload == wire.U64.pack(4)


async def test_after_the_exit_the_rest_is_acknowledged_at_once(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(START, sink)
    await peer.expect(Type.START)
    await peer.output(1, 0, b"four")
    await peer.exit(1, 4)
    await sink.wait_exit()
    channel.ack(4)
    channel.release()
    channel.ack(4)
    assert (await peer.expect(Type.ACK)).payload == wire.U64.pack(4)
    await peer.expect(Type.RELEASE)


async def test_acknowledged_output_makes_room_in_the_window(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(replace(START, window=wire.MIN_WINDOW), sink)
    for round_number in range(8):
        await peer.output(1, round_number * wire.MIN_WINDOW, bytes(wire.MIN_WINDOW))
        await until(lambda: sink.end == channel.position == (round_number + 1) * wire.MIN_WINDOW)  # noqa: B023
        channel.ack(sink.end)
    assert not guest.lost


async def test_a_resumed_exec_of_the_smallest_window_goes_on() -> None:
    kept = entry(3)
    guest, peer = await redial(kept)
    sink = Recorder()
    channel = guest.resume(kept, sink, 0)
    await peer.expect(Type.RESUME)
    await peer.output(3, 0, bytes(wire.MIN_WINDOW))
    await until(lambda: sink.end == wire.MIN_WINDOW)
    channel.ack(sink.end)
    assert (await peer.expect(Type.ACK)).payload == wire.U64.pack(wire.MIN_WINDOW)
    guest.close()
    peer.close()


async def test_control_frames(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(START, sink)
    await peer.expect(Type.START)
    await peer.send(wire.frame(Type.STARTED, 1, wire.STARTED.pack(42, 7)))
    await until(lambda: sink.pid is not None)
    channel.signal(15)
    channel.signal(9, tree=True)
    channel.resize(50, 132)
    channel.kill(250)
    assert (await peer.expect(Type.SIGNAL)).payload == b"\x0f\0\0\0\0"
    assert (await peer.expect(Type.SIGNAL)).payload == b"\x09\0\0\0\1"
    assert (await peer.expect(Type.RESIZE)).payload == wire.RESIZE.pack(50, 132)
    assert (await peer.expect(Type.KILL)).payload == wire.U32.pack(250)
    await peer.exit(1)
    await sink.wait_exit()
    channel.signal(15)
    channel.kill(0)
    channel.release()
    await peer.expect(Type.RELEASE)


async def test_a_signal_waits_for_the_process_to_start(booted: tuple[Guest, Peer]) -> None:
    guest, peer = booted
    sink = Recorder()
    channel = guest.start(START, sink)
    for number in range(100):
        channel.signal(number)
    channel.kill(1)
    await peer.expect(Type.START)
    await peer.expect(Type.KILL)
    await peer.send(wire.frame(Type.STARTED, 1, wire.STARTED.pack(42, 7)))
    numbers = [(await peer.expect(Type.SIGNAL)).payload[0] for _ in range(64)]
    assert numbers == list(range(64))
    await until(lambda: sink.pid == 42)
    channel.signal(15)
    assert (await peer.expect(Type.SIGNAL)).payload[0] == 15


async def test_a_resumed_exec_takes_signals_at_once() -> None:
    kept = entry(3)
    guest, peer = await redial(kept)
    guest.resume(kept, Recorder(), 0).signal(15)
    await peer.expect(Type.RESUME)
    assert (await peer.expect(Type.SIGNAL)).channel == 3
    guest.close()
    peer.close()
