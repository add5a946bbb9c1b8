"""A running exec, with a stub in place of its guest."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import Conflict, Gone, Unavailable
from paddock.guest.wire import Outcome
from paddock.sandboxes import execs
from paddock.sandboxes.execlog import IN_MEMORY, STDERR, STDOUT, Chunk, Gap, OutputLog
from paddock.sandboxes.execs import LiveExec
from paddock.sandboxes.model import ExecState
from tests.unit.sandboxes.makings import ended, exec_

LIMIT = 1 << 20


class StubChannel:
    """What LiveExec asks of a channel; remembers what it was told."""

    def __init__(self, stdin_sent: int = 0) -> None:
        self.acked = 0
        self.stdin_sent = stdin_sent
        self.written = b""
        self.input_ended = False
        self.fail: Exception | None = None
        self.fails_after = 0

    def ack(self, position: int) -> None:
        self.acked = max(self.acked, position)

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        if self.fail is not None:
            self.written += data[: self.fails_after]
            self.stdin_sent += len(data[: self.fails_after])
            raise self.fail
        self.written += data
        self.stdin_sent += len(data)

    async def end_input(self) -> None:
        self.input_ended = True


class Running:
    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.finished: list[LiveExec] = []
        self.channel = StubChannel()
        self.live = LiveExec(exec_(), OutputLog(folder, limit), self.finished.append, stored=False)
        self.connect(self.channel)
        self.sent = 0

    def connect(self, channel: StubChannel) -> None:
        self.channel = channel
        self.live.resumed(channel)  # type: ignore[arg-type]

    def says(self, data: bytes, stream: int = STDOUT) -> None:
        self.live.output(self.sent, stream, data)
        self.sent += len(data)

    def reconnect(self) -> int:
        """The link breaks and comes back; returns from where on the guest has to give its output again."""
        self.live.lost()
        position = self.live.resume_at()
        self.connect(StubChannel())
        self.sent = position
        return position


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path / "log")


async def taken(live: LiveExec, after: int = 0) -> list[Chunk | Gap]:
    return [piece async for piece in live.follow(after)]


def text(pieces: list[Chunk | Gap]) -> bytes:
    return b"".join(piece.data for piece in pieces if isinstance(piece, Chunk))


async def test_small_output_stays_with_the_guest(running: Running) -> None:
    running.live.started(7, 2_000_000_000)
    running.says(b"x" * 1000)
    assert running.channel.acked == 0
    running.says(b"y" * IN_MEMORY)
    assert running.channel.acked == 1000 + IN_MEMORY
    running.live.exited(ended(code=3, stdout=running.sent))
    assert running.finished == [running.live]
    record = running.live.record
    assert (record.state, record.exit_code, record.pid) == ("failed", 3, 7)
    assert record.stdout_bytes == 1000 + IN_MEMORY
    running.live.exited(ended(stdout=running.sent))
    assert running.finished == [running.live]


async def test_waiting_and_following(running: Running) -> None:
    waiting = asyncio.create_task(running.live.wait())
    following = [asyncio.create_task(taken(running.live, after)) for after in (0, 3, 100)]
    for n in range(5):
        await asyncio.sleep(0)
        running.says(b"%d" % n, STDERR if n % 2 else STDOUT)
    assert not waiting.done()
    running.live.exited(ended(stdout=3, stderr=2))
    await waiting
    assert [text(await task) for task in following] == [b"01234", b"34", b""]
    assert text(await taken(running.live)) == b"01234"


async def test_a_waiter_that_gives_up_is_forgotten(running: Running) -> None:
    waiting = asyncio.create_task(running.live.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not running.live._waiters


async def test_a_full_disk_holds_and_tries_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execs, "RETRY_SECONDS", 0.01)
    real, full = running.live.log.append, True

    def append(stream: int, data: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(stream, data)

    monkeypatch.setattr(running.live.log, "append", append)
    running.says(b"a" * 40_000)
    running.says(b"b", STDERR)
    running.live.exited(ended(stdout=40_000, stderr=1))
    await asyncio.sleep(0.05)
    assert (running.channel.acked, running.live.ended) == (0, False)
    full = False
    await asyncio.wait_for(running.live.wait(), 20)
    assert running.channel.acked == 40_001
    assert text(await taken(running.live)) == b"a" * 40_000 + b"b"


async def test_a_link_lost_on_a_full_disk_duplicates_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execs, "RETRY_SECONDS", 0.01)
    real, room = running.live.log.append, [1]

    def append(stream: int, data: bytes) -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        real(stream, data)

    monkeypatch.setattr(running.live.log, "append", append)
    output = [b"a" * 40_000, b"b" * 10, b"c" * 10]
    for data in output:
        running.says(data)
    running.live.exited(ended(stdout=40_020))
    position = running.reconnect()
    assert position == 40_000
    room[0] = 10**6
    for data in output[1:]:
        running.says(data)
    running.live.exited(ended(stdout=40_020))
    await asyncio.wait_for(running.live.wait(), 20)
    assert text(await taken(running.live)) == b"".join(output)


async def test_a_lost_link_starts_again_behind_what_is_safe(running: Running) -> None:
    following = asyncio.create_task(taken(running.live))
    running.says(b"one two ")
    await asyncio.sleep(0.01)
    assert running.reconnect() == 0
    running.says(b"one ")
    running.says(b"two three" + b"." * IN_MEMORY)
    assert running.reconnect() == 13 + IN_MEMORY
    running.says(b"four")
    running.live.exited(ended(stdout=running.sent))
    assert text(await following) == b"one two three" + b"." * IN_MEMORY + b"four"
    # Behind its end there is nothing to forget.
    assert running.live.resume_at() == running.sent


async def test_what_was_heard_outlives_the_guest(running: Running) -> None:
    running.says(b"last words")
    running.live.lost()
    running.live.abandon("guest_died", "it is gone")
    assert text(await taken(running.live)) == b"last words"
    record = running.live.record
    assert (record.state, record.reason, record.error, record.stdout_bytes) == (
        "failed",
        "guest_died",
        "it is gone",
        10,
    )
    assert running.finished == [running.live]
    running.live.abandon("again", "no")
    assert record.reason == "guest_died"


async def test_abandoned_while_canceling(running: Running) -> None:
    running.live.record.state = ExecState.CANCELING
    running.live.abandon("sandbox_stopped", "stopped")
    assert running.live.record.state is ExecState.CANCELED


async def test_a_slow_follower_holds_the_process_back(tmp_path: Path) -> None:
    running = Running(tmp_path / "log", limit=1 << 20)
    follower = running.live.follow(0)
    running.says(b"x" * 100_000)
    await anext(follower)
    for _ in range(5):
        running.says(b"x" * 100_000)
    assert running.channel.acked <= 100_000 + (1 << 18)
    seen = 100_000
    while seen < running.sent:
        piece = await asyncio.wait_for(anext(follower), 20)
        assert isinstance(piece, Chunk)
        seen += len(piece.data)
    more = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    assert running.channel.acked == running.sent
    running.says(b"more")
    assert isinstance(await asyncio.wait_for(more, 20), Chunk)
    await follower.aclose()  # type: ignore[attr-defined]


async def test_a_follower_who_leaves_holds_nobody(tmp_path: Path) -> None:
    running = Running(tmp_path / "log")
    follower = running.live.follow(0)
    running.says(b"x" * 50_000)
    await anext(follower)
    for _ in range(20):
        running.says(b"x" * 50_000)
    assert running.channel.acked < running.sent
    await follower.aclose()  # type: ignore[attr-defined]
    assert running.channel.acked == running.sent


async def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path / "log")
    follower = running.live.follow(0)
    running.says(b"x" * 50_000)
    await anext(follower)
    monkeypatch.setattr(execs, "PATIENCE", 0.0)
    for _ in range(40):
        running.says(b"x" * 50_000)
    assert running.channel.acked == running.sent
    running.live.exited(ended(stdout=running.sent))
    rest = [piece async for piece in follower]
    gap = rest[0]
    assert isinstance(gap, Gap)
    assert gap.end - gap.start + len(text(rest)) == running.sent - 50_000
    assert running.live.record.dropped_bytes == gap.end


async def test_feeding(running: Running) -> None:
    await running.live.feed(b"all of it", end=True)
    assert (running.channel.written, running.channel.input_ended) == (b"all of it", True)
    assert running.live.record.stdin_bytes == 9


async def test_feeding_over_two_links(running: Running) -> None:
    running.channel.fail, running.channel.fails_after = Unavailable("lost"), 4
    feeding = asyncio.create_task(running.live.feed(b"all of it", end=True))
    await asyncio.sleep(0.01)
    running.live.lost()
    await asyncio.sleep(0.01)
    running.live.resume_at()
    # The guest has received less than was sent.
    running.connect(StubChannel(stdin_sent=3))
    await asyncio.wait_for(feeding, 20)
    assert (running.channel.written, running.channel.input_ended) == (b" of it", True)


@pytest.mark.parametrize("error", [Gone("ended"), Conflict("ended")])
async def test_a_process_that_ends_without_its_input_is_no_error(running: Running, error: Any) -> None:
    running.channel.fail = error
    await running.live.feed(b"data", end=True)
    assert not running.channel.input_ended


async def test_calls_need_a_channel(running: Running) -> None:
    running.live.lost()
    with pytest.raises(Unavailable):
        running.live.require_channel()
    running.live.exited(ended(Outcome.SIGNALED, 9))
    with pytest.raises(Conflict) as caught:
        running.live.require_channel()
    assert caught.value.reason == "exec_ended"
