"""Ending execs: timeouts, cancelling, signals."""

from __future__ import annotations

import signal

import pytest

from paddock.errors import Conflict
from paddock.sandboxes.model import ExecState
from tests.contract.stage import scenario
from tests.contract.world import World

DAEMON = "setsid sh -c 'trap \"\" TERM HUP; echo daemon $$; sleep 1000 & wait' &"
"""A child in a session of its own that wants to live on."""


async def pid_of(world: World, box: str, exec_id: str, name: str) -> str:
    await world.until_output(box, exec_id, f"{name} ".encode())
    text = b"".join([getattr(p, "data", b"") for p in await world.output(box, exec_id, follow=False)])
    return text.decode().split(f"{name} ")[1].split()[0]


async def gone(world: World, box: str, pid: str) -> None:
    async def look() -> bool:
        return (await world.sh(box, f"kill -0 {pid} 2>/dev/null")).exit_code != 0

    await world.found(look)


@scenario
async def test_a_timeout_takes_the_whole_tree(world: World) -> None:
    box = await world.shared()
    script = f"trap '' TERM; echo partial; {DAEMON} sleep 1000; sleep 1000"
    started = await world.start_sh(box, script, timeout=1.5)
    daemon = await pid_of(world, box, started.id, "daemon")
    done = await world.wait(box, started.id)
    assert (done.state, done.exit_code, done.reason) == ("timed_out", 124, "timeout")
    assert b"partial\n" in await world.text(box, started.id)
    await gone(world, box, daemon)


@scenario
async def test_in_time_is_in_time(world: World) -> None:
    box = await world.shared()
    assert (await world.sh(box, "exit 3", timeout=60)).state == "failed"


@scenario
async def test_cancel_is_kind_first(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    await world.until_output(box, started.id, b"up\n")
    answered = await world.service.cancel_exec(box, started.id, grace=30)
    assert answered.state in (ExecState.CANCELING, ExecState.CANCELED)
    done = await world.wait(box, started.id)
    assert (done.state, done.exit_code) == ("canceled", 5)
    assert await world.text(box, started.id) == b"up\nbye\n"
    with pytest.raises(Conflict) as caught:
        await world.service.cancel_exec(box, started.id)
    assert caught.value.reason == "exec_ended"


@scenario
async def test_cancel_ends_what_does_not_want_to(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, f"trap '' TERM; {DAEMON} while :; do sleep 0.05; done")
    daemon = await pid_of(world, box, started.id, "daemon")
    await world.service.cancel_exec(box, started.id, grace=0.3)
    with pytest.raises(Conflict) as caught:
        await world.service.cancel_exec(box, started.id)
    assert caught.value.reason in ("exec_canceling", "exec_ended")
    done = await world.wait(box, started.id)
    assert (done.state, done.signal) == ("canceled", signal.SIGKILL)
    await gone(world, box, daemon)


@scenario
async def test_signals_reach_the_process(world: World) -> None:
    box = await world.shared()
    script = "trap 'echo one' USR1; trap 'echo two; exit 9' USR2; echo up; while :; do sleep 0.05; done"
    started = await world.start_sh(box, script)
    await world.until_output(box, started.id, b"up\n")
    await world.service.signal_exec(box, started.id, signal.SIGUSR1)
    await world.until_output(box, started.id, b"one\n")
    await world.service.signal_exec(box, started.id, signal.SIGUSR2)
    done = await world.wait(box, started.id)
    assert (done.state, done.exit_code) == ("failed", 9)


@scenario
async def test_a_signal_to_the_tree_reaches_daemons(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, f"{DAEMON} trap '' USR1; while :; do sleep 0.05; done")
    daemon = await pid_of(world, box, started.id, "daemon")
    await world.service.signal_exec(box, started.id, signal.SIGUSR1)
    assert (await world.sh(box, f"kill -0 {daemon}")).exit_code == 0
    await world.service.signal_exec(box, started.id, signal.SIGKILL, tree=True)
    done = await world.wait(box, started.id)
    assert (done.state, done.signal) == ("failed", signal.SIGKILL)
    await gone(world, box, daemon)
