"""The link against the real guest."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from paddock.guest.link import Channel, Guest
from paddock.guest.wire import Exit, Outcome, Stage, Start
from tests.unit.guest_link.peer import PATIENCE, Recorder, until
from tests.unit.guest_link.real import Sandbox, sandbox, sh

pytestmark = pytest.mark.needs("cc")


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(tmp_path) as made:
        yield made


class Acking(Recorder):
    """Takes output as a server does: what it has, it acknowledges."""

    channel: Channel | None = None

    def output(self, position: int, stream: int, data: bytes) -> None:
        super().output(position, stream, data)
        if self.channel is not None:
            self.channel.ack(self.end)


def _start(guest: Guest, start: Start) -> Acking:
    sink = Acking()
    sink.channel = guest.start(start, sink)
    return sink


async def test_a_command_and_its_output(made: Sandbox) -> None:
    sink = _start(made.guest, sh("printf out; printf err >&2; exit 3"))
    exit = await sink.wait_exit()
    assert (exit.outcome, exit.code, exit.stdout_bytes, exit.stderr_bytes) == (Outcome.EXITED, 3, 3, 3)
    assert (sink.stdout, sink.stderr) == (b"out", b"err")
    assert sink.pid is not None
    assert 0 < exit.started_ns <= exit.finished_ns
    assert await made.guest.ping(PATIENCE) > 0


async def test_a_command_that_does_not_exist(made: Sandbox) -> None:
    exit = await _start(made.guest, replace(sh(""), argv=[b"no-such-command"])).wait_exit()
    assert (exit.outcome, exit.stage, exit.code) == (Outcome.NOT_STARTED, Stage.EXEC, 2)


async def test_input_larger_than_any_credit(made: Sandbox) -> None:
    data = bytes(range(256)) * 8192
    sink = _start(made.guest, replace(sh("cat"), stdin=True))
    assert sink.channel is not None
    await sink.channel.write(data)
    await sink.channel.end_input()
    exit = await sink.wait_exit()
    assert exit.code == 0
    assert hashlib.sha256(sink.stdout).digest() == hashlib.sha256(data).digest()


async def test_output_far_beyond_the_window(made: Sandbox) -> None:
    sink = _start(made.guest, replace(sh("head -c 5000000 /dev/zero"), window=65_536))
    exit = await sink.wait_exit()
    assert (exit.end, sink.end) == (5_000_000, 5_000_000)


async def test_who_is_not_acknowledged_waits(made: Sandbox) -> None:
    sink = Recorder()
    channel = made.guest.start(replace(sh("head -c 300000 /dev/zero; echo end >&2"), window=100_000), sink)
    await until(lambda: sink.end == 100_000)
    assert await made.guest.ping(PATIENCE) > 0
    assert (sink.end, sink.exit) == (100_000, None)
    for _ in range(4):
        channel.ack(sink.end)
        await until(lambda: sink.exit is not None or sink.end > channel._acked)
    assert (await sink.wait_exit()).end == 300_004
    assert sink.stderr == b"end\n"


async def test_signal_and_kill(made: Sandbox) -> None:
    first = _start(made.guest, sh("echo ready; exec sleep 300"))
    second = _start(made.guest, sh("trap '' TERM; (trap '' TERM; sleep 300) & echo ready; wait"))
    await until(lambda: first.stdout == second.stdout == b"ready\n")
    assert first.channel is not None
    assert second.channel is not None
    first.channel.signal(15)
    exit = await first.wait_exit()
    assert (exit.outcome, exit.code) == (Outcome.SIGNALED, 15)
    second.channel.kill(50)
    assert (await second.wait_exit()).outcome == Outcome.KILLED


async def test_a_terminal(made: Sandbox) -> None:
    start = replace(sh("stty size; read line; stty size; echo got $line"), terminal=True, rows=10, columns=40)
    sink = _start(made.guest, start)
    assert sink.channel is not None
    await until(lambda: b"10 40" in sink.stdout)
    sink.channel.resize(33, 111)
    await sink.channel.write(b"hello\n")
    await sink.wait_exit()
    assert b"33 111" in sink.stdout
    assert b"got hello" in sink.stdout


async def test_exactly_the_same_bytes_across_lost_links(made: Sandbox) -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 9"
    sink = _start(made.guest, replace(sh(script), metadata=b"which one", window=16_384))
    started = len(sink.stdout)
    for wanted in (20_000, 60_000, 100_000):
        await until(lambda: sink.end - started >= wanted)  # noqa: B023
        assert sink.exit is None
        losses = sink.losses
        guest = await made.redial()
        assert sink.losses == losses + 1
        (kept,) = guest.inventory
        assert (kept.metadata, kept.running) == (b"which one", True)
        sink.channel = guest.resume(kept, sink, sink.end)
    await until(lambda: sink.exit is not None)
    assert sink.exit is not None
    assert sink.exit.code == 9
    assert sink.stdout == b"".join(b"line %d\n" % number for number in range(20_000))


async def test_an_exec_that_ends_while_nobody_listens(made: Sandbox) -> None:
    sink = _start(made.guest, replace(sh("read x; echo $x; exit 4"), stdin=True, metadata=b"m"))
    assert sink.channel is not None
    transient = _start(made.guest, replace(sh("sleep 300"), transient=True))
    await until(lambda: sink.pid is not None and transient.pid is not None)
    await sink.channel.write(b"word\n")
    await made.guest.ping(PATIENCE)
    guest = await made.redial()
    assert transient.losses == 1
    assert [kept.metadata for kept in guest.inventory] == [b"m"]
    sink.channel = guest.resume(guest.inventory[0], sink, sink.end)
    await until(lambda: sink.exit is not None)
    assert sink.stdout == b"word\n"
    sink.channel.release()
    assert (await made.redial()).inventory == []


async def test_input_goes_on_after_a_lost_link(made: Sandbox) -> None:
    sink = _start(made.guest, replace(sh("exec cat"), stdin=True))
    assert sink.channel is not None
    await sink.channel.write(b"before ")
    await until(lambda: sink.stdout == b"before ")
    guest = await made.redial()
    (kept,) = guest.inventory
    assert (kept.stdin_received, kept.stdin_open) == (7, True)
    sink.channel = guest.resume(kept, sink, sink.end)
    await sink.channel.write(b"after")
    await sink.channel.end_input()
    await until(lambda: sink.exit is not None)
    assert sink.stdout == b"before after"


async def test_many_at_once(made: Sandbox) -> None:
    sinks = [_start(made.guest, sh(f"echo {number}; exit {number}")) for number in range(40)]
    exits: list[Exit] = [await sink.wait_exit() for sink in sinks]
    assert [exit.code for exit in exits] == list(range(40))
    assert [sink.stdout for sink in sinks] == [b"%d\n" % number for number in range(40)]


async def test_shutdown_ends_everything(made: Sandbox) -> None:
    sink = _start(made.guest, sh("trap '' TERM; echo ready; sleep 300"))
    await until(lambda: sink.stdout == b"ready\n")
    made.guest.shutdown(20)
    # Closed at once: what was said before still arrives.
    made.guest.close()
    async with asyncio.timeout(PATIENCE):
        await made.runtime.wait(made.instance)
    assert made.runtime.exited(made.instance)


async def test_an_unadopted_guest_dies_with_its_link(tmp_path: Path) -> None:
    async with sandbox(tmp_path, adopt=False) as made:
        sink = _start(made.guest, sh("echo ready; sleep 300"))
        await until(lambda: sink.stdout == b"ready\n")
        made.guest.close()
        async with asyncio.timeout(PATIENCE):
            await made.runtime.wait(made.instance)


@pytest.mark.parametrize(
    "scenario",
    [
        test_a_command_and_its_output,
        test_input_larger_than_any_credit,
        test_output_far_beyond_the_window,
        test_exactly_the_same_bytes_across_lost_links,
        test_an_exec_that_ends_while_nobody_listens,
    ],
)
def test_the_same_on_the_servers_loop(tmp_path: Path, scenario: Callable[[Sandbox], Awaitable[None]]) -> None:
    async def run() -> None:
        async with sandbox(tmp_path) as made:
            await scenario(made)

    uvloop.run(run())
