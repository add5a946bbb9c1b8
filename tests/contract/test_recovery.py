"""The server may die: sandboxes and execs live on, and no byte is lost."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from paddock.errors import Conflict, NotFound
from paddock.sandboxes.execlog import Chunk
from paddock.sandboxes.model import ExecState, State
from paddock.sandboxes.requests import ExecRequest
from tests.contract.stage import scenario
from tests.contract.world import World

LINES = (
    "n=1; while [ $n -le 300 ]; do echo line $n; n=$((n+1)); [ $((n % 10)) = 0 ] && sleep 0.02; done; exit 5"
)
EXPECTED = b"".join(b"line %d\n" % n for n in range(1, 301))


def guest_pid(world: World, ref: str) -> int:
    instance = world.service.box(ref).instance
    assert instance is not None
    return instance.pid


@scenario
async def test_an_exec_outlives_the_server(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, LINES)
    await world.until_output(made.id, started.id, b"line 20\n")
    await world.restart()
    assert await world.text(made.id, started.id) == EXPECTED
    done = await world.wait(made.id, started.id)
    assert (done.state, done.exit_code, done.stdout_bytes) == ("failed", 5, len(EXPECTED))


@scenario
async def test_an_exec_in_the_foreground_outlives_the_server(world: World) -> None:
    """Only the guest knows it: no row of it is in the store before its end."""
    made = await world.create()
    request = ExecRequest(id="foreground-1", command=["sh", "-c", LINES], labels={"a": "b"})
    asking = asyncio.create_task(world.service.run_exec(made.id, request))
    await world.until(lambda: "foreground-1" in world.service.box(made.id).execs)
    await world.until_output(made.id, "foreground-1", b"line 20\n")
    old = world.service
    await world.restart()
    # The same id finds the same process.
    done = await world.service.run_exec(made.id, request)
    assert (done.exit_code, done.stdout.encode(), done.labels) == (5, EXPECTED, {"a": "b"})
    assert old is not world.service
    asking.cancel()
    await asyncio.wait({asking})


@scenario
async def test_it_ends_while_the_server_is_away(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, "read line; echo heard $line; exit 6", open_stdin=True)
    big = await world.start_sh(made.id, "read line; seq 1 200000 | head -c 1000000", open_stdin=True)
    await world.until(lambda: world.service.box(made.id).execs[started.id].record.pid)
    for one in (started, big):
        await world.service.write_stdin(made.id, one.id, b"something\n")
    await world.crash()
    await asyncio.sleep(0.3)
    await world.start()
    done = await world.wait(made.id, started.id)
    assert done.exit_code == 6
    assert await world.text(made.id, started.id) == b"heard something\n"
    expected = b"".join(b"%d\n" % n for n in range(1, 200_001))[:1_000_000]
    assert await world.text(made.id, big.id) == expected


@scenario
async def test_input_goes_on_after_a_restart(world: World) -> None:
    made = await world.create()
    started = await world.start_exec(made.id, "cat", open_stdin=True)
    await world.service.write_stdin(made.id, started.id, b"before ")
    await world.until_output(made.id, started.id, b"before ")
    await world.restart()
    await world.service.get_exec(made.id, started.id)
    await world.until(lambda: world.service.box(made.id).linked.is_set())
    await world.service.write_stdin(made.id, started.id, b"after")
    await world.service.close_stdin(made.id, started.id)
    done = await world.wait(made.id, started.id)
    assert (done.exit_code, done.stdin_bytes) == (0, 12)
    assert await world.text(made.id, started.id) == b"before after"


@scenario
async def test_again_and_again(world: World) -> None:
    made = await world.create(name="stays")
    started = await world.start_sh(made.id, LINES.replace("0.02", "0.1"))
    for n in range(3):
        await world.until_output(made.id, started.id, b"line %d\n" % (20 + 40 * n))
        await world.restart()
    assert await world.text("stays", started.id) == EXPECTED
    assert (await world.wait("stays", started.id)).exit_code == 5


@scenario
async def test_idle_ones_are_found_again(world: World) -> None:
    made = await world.create(name="idle", labels={"k": "v"})
    done = await world.sh(made.id, "echo kept > file; echo said; exit 2")
    await world.until(lambda: not world.service.box(made.id).execs)
    await world.restart()
    found = world.service.get("idle")
    assert (found.id, found.state, found.labels) == (made.id, State.RUNNING, {"k": "v"})
    assert (await world.sh("idle", "cat file")).stdout == "kept\n"
    assert (await world.service.get_exec("idle", done.id)).exit_code == 2
    assert await world.text("idle", done.id) == b"said\n"


@scenario
async def test_a_broken_link_alone_loses_nothing(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, LINES)
    text = asyncio.create_task(world.text(made.id, started.id))
    for n in (20, 100):
        await world.until_output(made.id, started.id, b"line %d\n" % n)
        guest = world.service.box(made.id).guest
        if guest is not None:
            guest.close()
        assert (await world.sh(made.id, "echo still here")).stdout == "still here\n"
    assert await text == EXPECTED
    assert (await world.wait(made.id, started.id)).exit_code == 5


@scenario
async def test_a_dead_guest_is_a_failed_sandbox(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, "echo up; sleep 1000")
    await world.until_output(made.id, started.id, b"up\n")
    os.kill(guest_pid(world, made.id), signal.SIGKILL)
    await world.until(lambda: world.service.get(made.id).state is State.FAILED)
    failed = world.service.get(made.id)
    assert failed.reason == "guest_died"
    assert failed.message
    done = await world.wait(made.id, started.id)
    assert (done.state, done.reason) == ("failed", "guest_died")
    assert await world.text(made.id, started.id) == b"up\n"
    with pytest.raises(Conflict) as caught:
        await world.sh(made.id, "true")
    assert caught.value.reason == "sandbox_not_running"
    assert (await world.service.stop(made.id)).state is State.FAILED
    await world.restart()
    assert world.service.get(made.id).state is State.FAILED


@scenario
async def test_a_guest_that_died_while_the_server_was_away(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, "echo up; sleep 1000")
    await world.until_output(made.id, started.id, b"up\n")
    pid = guest_pid(world, made.id)
    await world.crash()
    os.kill(pid, signal.SIGKILL)
    await world.start()
    await world.until(lambda: world.service.get(made.id).state is State.FAILED)
    done = await world.wait(made.id, started.id)
    assert done.state is ExecState.FAILED
    assert done.reason in ("sandbox_ended", "guest_died")


@scenario
async def test_states_survive(world: World) -> None:
    stopped, deleted = await world.create(), await world.create()
    await world.service.stop(stopped.id)
    await world.service.delete(deleted.id)
    await world.restart()
    assert world.service.get(stopped.id).state is State.STOPPED
    with pytest.raises(NotFound):
        world.service.get(deleted.id)


@scenario
async def test_a_stop_that_was_cut_short_is_finished(world: World) -> None:
    from paddock.sandboxes.lifecycle import Change

    made = await world.create()
    started = await world.start_sh(made.id, "sleep 1000")
    box = world.service.box(made.id)
    async with box.lock:
        await world.service.move(box, Change.STOP, reason="requested")
    await world.restart()
    await world.until(lambda: world.service.get(made.id).state is State.STOPPED)
    assert world.service.get(made.id).reason == "requested"
    assert (await world.wait(made.id, started.id)).state is ExecState.FAILED


@scenario
async def test_a_delete_that_was_cut_short_is_finished(world: World) -> None:
    from paddock.sandboxes.lifecycle import Change

    made = await world.create(name="half-gone")
    box = world.service.box(made.id)
    async with box.lock:
        await world.service.move(box, Change.DELETE)
        await world.restart()
    with pytest.raises(NotFound):
        world.service.get(made.id)
    assert (await world.create(name="half-gone")).id != made.id


@scenario
async def test_what_nobody_knows_is_removed(world: World) -> None:
    """A create whose server died before the record was committed."""
    made = await world.create(id="unknown-one")
    await world.crash()
    from paddock.sandboxes import records
    from paddock.store import Store

    store = await Store.open(world.settings.database_url)
    await store.write(*records.forget_sandbox(made.id))
    await store.close()
    (world.data.sandboxes / "half-made").mkdir()
    (world.data.logs / "unknown-one" / "ex").mkdir(parents=True)
    await world.start()
    with pytest.raises(NotFound):
        world.service.get(made.id)
    assert not (world.data.sandboxes / "half-made").exists()


@scenario
async def test_paused_stays_paused(world: World) -> None:
    made = await world.create()
    await world.need_pause(made.id)
    started = await world.start_sh(made.id, LINES)
    await world.until_output(made.id, started.id, b"line 20\n")
    await world.service.pause(made.id)
    await world.restart()
    assert world.service.get(made.id).state is State.PAUSED
    assert (await world.service.get_exec(made.id, started.id)).state is ExecState.RUNNING
    await world.service.resume(made.id)
    assert await world.text(made.id, started.id) == EXPECTED
    assert (await world.wait(made.id, started.id)).exit_code == 5


@scenario
async def test_all_output_of_many(world: World) -> None:
    """Chunk places are the same before and after."""
    made = await world.create()
    script = "seq 1 20000; sleep 0.5; seq 1 20000 >&2; exit 1"
    started = [await world.start_sh(made.id, script) for _ in range(5)]
    await world.until_output(made.id, started[-1].id, b"20000\n")
    await world.restart()
    expected = b"".join(b"%d\n" % n for n in range(1, 20_001))
    for one in started:
        pieces = await world.output(made.id, one.id)
        for stream in ("stdout", "stderr"):
            mine = [p for p in pieces if isinstance(p, Chunk) and p.stream == stream]
            assert b"".join(p.data for p in mine) == expected
            assert [p.offset for p in mine] == [sum(len(q.data) for q in mine[:n]) for n in range(len(mine))]


@scenario
async def test_an_exec_id_belongs_to_one_sandbox(world: World) -> None:
    one, other = await world.create(), await world.create()
    started = await world.start_exec(one.id, "sleep", "1000", id="chosen-by-us")
    with pytest.raises(Conflict) as caught:
        await world.start_exec(other.id, "true", id="chosen-by-us")
    assert caught.value.reason == "exec_id_taken"
    await world.service.cancel_exec(one.id, started.id, grace=0)
    assert (await world.wait(one.id, started.id)).state is ExecState.CANCELED
    with pytest.raises(Conflict):
        await world.start_exec(other.id, "true", id="chosen-by-us")


@scenario
async def test_a_sandbox_of_a_runtime_that_is_gone_is_left_alone(world: World) -> None:
    made = await world.create()
    await world.write(made.id, "kept", b"here")
    await world.crash()
    await world.start(without_runtime=True)
    with pytest.raises(NotFound):
        world.service.get(made.id)
    await world.restart()
    assert await world.read(made.id, "kept") == b"here"
