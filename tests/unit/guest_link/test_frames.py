from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import replace

import pytest

from paddock import errors
from paddock.guest import frames as frames_module
from paddock.guest import wire
from paddock.guest.frames import FrameSocket
from paddock.guest.link import GuestViolation
from paddock.guest.wire import Type
from tests.unit.guest_link.peer import EXIT, PATIENCE, START, Recorder, boot, descriptors, output_frame, until


class Listener:
    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []
        self.ends: list[Exception | None] = []

    def frame(self, kind: int, channel: int, payload: memoryview) -> None:
        self.frames.append((kind, channel, bytes(payload)))

    def output(self, channel: int, position: int, stream: int, data: bytes) -> None:
        self.frames.append((Type.OUTPUT, channel, data))

    def ended(self, error: Exception | None) -> None:
        self.ends.append(error)


async def test_what_is_sent_in_one_turn_leaves_at_once() -> None:
    # Packets keep apart what was sent apart.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    link = FrameSocket(ours, Listener())
    pieces = [b"%d," % number for number in range(50)]
    for piece in pieces:
        link.send(piece)
    got = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 65536), PATIENCE)
    assert got == b"".join(pieces)
    link.close()
    theirs.close()


async def test_more_than_the_socket_takes_arrives_in_order() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    link = FrameSocket(ours, Listener())
    sent = b"".join(number.to_bytes(4, "big") for number in range(1_000_000))
    for at in range(0, len(sent), 10_007):
        link.send(sent[at : at + 10_007])
    drained = asyncio.create_task(link.drain())
    got = bytearray()
    while len(got) < len(sent):
        more = asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
        got += await asyncio.wait_for(more, PATIENCE)
    assert got == sent
    await asyncio.wait_for(drained, PATIENCE)
    assert link.queued == 0
    link.send(b"and on")
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 100), PATIENCE) == b"and on"
    link.close()
    theirs.close()


async def test_a_peer_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "FULL", 2 << 20)
    ours, theirs = socket.socketpair()
    listener = Listener()
    link = FrameSocket(ours, listener)
    for _ in range(10):
        link.send(bytes(1 << 20))
        await asyncio.sleep(0)
    await until(lambda: link.closed)
    (error,) = listener.ends
    assert isinstance(error, errors.Unavailable)
    assert (error.reason, link.queued) == ("guest_stuck", 0)
    theirs.close()


async def test_closing_wakes_who_waits_for_room_and_tells_nobody_else() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair()
    listener = Listener()
    link = FrameSocket(ours, listener)
    link.send(bytes(4 << 20))
    draining = asyncio.create_task(link.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    link.close()
    link.close()
    await asyncio.wait_for(draining, PATIENCE)
    assert listener.ends == []
    theirs.close()
    assert descriptors() == before


async def test_the_last_words_of_a_peer_that_closed_are_heard() -> None:
    ours, theirs = socket.socketpair()
    listener = Listener()
    link = FrameSocket(ours, listener)
    link.send(b"never read")
    await until(lambda: link.queued == 0)
    theirs.sendall(wire.frame(Type.PROBLEM, 0, b"why"))
    theirs.close()
    link.send(b"into the void")
    await until(lambda: link.closed)
    assert listener.frames == [(Type.PROBLEM, 0, b"why")]
    assert len(listener.ends) == 1


async def test_links_of_one_thread_do_not_mix_their_bytes() -> None:
    pairs = [socket.socketpair() for _ in range(8)]
    listeners = [Listener() for _ in pairs]
    links = [FrameSocket(ours, listener) for (ours, _), listener in zip(pairs, listeners, strict=True)]
    frames = [output_frame(number + 1, 0, bytes([number]) * 5000) * 3 for number in range(8)]
    for at in range(0, len(frames[0]), 777):
        for (_, theirs), data in zip(pairs, frames, strict=True):
            theirs.sendall(data[at : at + 777])
        await asyncio.sleep(0)
    await until(lambda: all(len(listener.frames) == 3 for listener in listeners))
    for number, listener in enumerate(listeners):
        assert listener.frames == [(Type.OUTPUT, number + 1, bytes([number]) * 5000)] * 3
    for link, (_, theirs) in zip(links, pairs, strict=True):
        link.close()
        theirs.close()


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_a_guest_sends_is_taken_or_is_a_violation(seed: int) -> None:
    chance = random.Random(seed)
    script = [
        wire.frame(Type.STARTED, 1, wire.STARTED.pack(5, 6)),
        output_frame(1, 0, b"hello"),
        output_frame(1, 5, b"world", wire.STDERR),
        wire.frame(Type.PONG, 0, b"12345678"),
        wire.frame(Type.CREDIT, 1, wire.U32.pack(0)),
        wire.frame(Type.EXIT, 1, replace(EXIT, end=10, stdout_bytes=5, stderr_bytes=5).pack()),
    ]
    for _ in range(10):
        data = bytearray(b"".join(script))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice(
                [0, 1, 5, 64, 70, 128, 255, chance.randrange(256)]
            )
        guest, peer = await boot()
        sink = Recorder()
        guest.start(START, sink)
        await peer.send(bytes(data[: chance.randrange(len(data) + 1)]))
        peer.close()
        await asyncio.wait_for(guest.wait_closed(), PATIENCE)
        assert guest.failure is None or isinstance(guest.failure, GuestViolation | OSError), guest.failure
        assert sink.end <= len(data)
        assert (sink.exit is None) == (sink.losses == 1)
