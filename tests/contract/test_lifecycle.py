"""Pausing, stopping, deleting, and the rules that do so by themselves."""

from __future__ import annotations

import asyncio

import pytest

from paddock.errors import Conflict, NotFound
from paddock.sandboxes.model import ExecState, State
from paddock.sandboxes.requests import UpdateSandbox
from tests.contract.stage import scenario
from tests.contract.world import World


@scenario
async def test_pause_and_resume(world: World) -> None:
    made = await world.create()
    await world.need_pause(made.id)
    started = await world.start_sh(made.id, "n=0; while :; do echo $n; n=$((n+1)); sleep 0.01; done")
    await world.until_output(made.id, started.id, b"3\n")
    paused = await world.service.pause(made.id)
    assert paused.state is State.PAUSED
    live = world.service.box(made.id).execs[started.id]
    await asyncio.sleep(0.1)
    heard = live.log.end
    await asyncio.sleep(0.3)
    assert live.log.end == heard
    for refused in (
        world.sh(made.id, "true"),
        world.service.files.stat(made.id, "."),
        world.service.pause(made.id),
    ):
        with pytest.raises(Conflict):
            await refused
    assert (await world.service.resume(made.id)).state is State.RUNNING
    await world.until(lambda: live.log.end > heard)
    with pytest.raises(Conflict):
        await world.service.resume(made.id)
    assert (await world.sh(made.id, "echo awake")).stdout == "awake\n"


@scenario
async def test_a_paused_one_can_be_stopped_and_deleted(world: World) -> None:
    one, other = await world.create(), await world.create()
    await world.need_pause(one.id)
    await world.start_sh(one.id, "sleep 1000")
    await world.start_sh(other.id, "sleep 1000")
    await world.service.pause(one.id)
    await world.service.pause(other.id)
    assert (await world.service.stop(one.id)).state is State.STOPPED
    await world.service.delete(other.id)


@scenario
async def test_stop_is_kind_and_keeps_files(world: World) -> None:
    made = await world.create()
    script = "trap 'echo bye; echo bye > said; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    started = await world.start_sh(made.id, script)
    await world.until_output(made.id, started.id, b"up\n")
    stopped = await world.service.stop(made.id, reason="tired")
    assert (stopped.state, stopped.reason) == (State.STOPPED, "tired")
    assert stopped.ended_at is not None
    done = await world.wait(made.id, started.id)
    assert done.state.ended
    assert b"up\n" in await world.text(made.id, started.id)
    assert (await world.service.stop(made.id)).state is State.STOPPED
    for refused in (world.sh(made.id, "true"), world.service.files.stat(made.id, ".")):
        with pytest.raises(Conflict) as caught:
            await refused
        assert caught.value.reason == "sandbox_not_running"
    found = world.data.sandboxes.joinpath(made.id).rglob("said")
    assert [path.read_text() for path in found] == ["bye\n"]


@scenario
async def test_stop_ends_what_does_not_want_to(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(
        made.id, "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 1000"
    )
    await world.until(lambda: world.service.box(made.id).execs[started.id].record.pid)
    assert (await world.service.stop(made.id)).state is State.STOPPED
    assert (await world.wait(made.id, started.id)).state.ended


@scenario
async def test_delete_during_an_exec(world: World) -> None:
    made = await world.create()
    asking = asyncio.create_task(world.sh(made.id, "echo up; sleep 1000"))
    await world.until(lambda: any(e.record.pid for e in world.service.box(made.id).execs.values()))
    [live] = world.service.box(made.id).execs.values()
    following = asyncio.create_task(world.output(made.id, live.record.id))
    await asyncio.sleep(0)
    deleted = await world.service.delete(made.id)
    assert deleted.state is State.DELETED
    done = await asyncio.wait_for(asking, 30)
    assert (done.state, done.reason) == ("failed", "sandbox_deleted")
    await asyncio.wait_for(following, 30)
    with pytest.raises(NotFound):
        world.service.get(made.id)
    with pytest.raises(NotFound):
        await world.service.delete(made.id)


@scenario
async def test_delete_twice_at_once(world: World) -> None:
    made = await world.create()
    results = await asyncio.gather(*(world.service.delete(made.id) for _ in range(4)), return_exceptions=True)
    assert any(not isinstance(one, BaseException) for one in results)
    assert all(isinstance(one, NotFound) for one in results if isinstance(one, BaseException))


@scenario
async def test_a_lifetime_ends(world: World) -> None:
    made = await world.create(ttl=0.5)
    await world.until(lambda: world.service.get(made.id).state is State.STOPPED)
    assert world.service.get(made.id).reason == "expired"
    other = await world.create(ttl=60)
    changed = await world.service.update(other.id, UpdateSandbox(ttl=1000))
    assert changed.expires_at is not None
    assert changed.expires_at > changed.created_at + 900
    await world.service.update(other.id, UpdateSandbox(ttl=0.1))
    await world.until(lambda: world.service.get(other.id).state is State.STOPPED)


@scenario
async def test_idle_ones_are_stopped(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, "sleep 2.5")
    await world.service.update(made.id, UpdateSandbox(idle_timeout=1))
    done = await world.wait(made.id, started.id)
    # Not while it worked.
    assert done.state is ExecState.COMPLETED
    await world.until(lambda: world.service.get(made.id).state is State.STOPPED)
    assert world.service.get(made.id).reason == "idle"


@scenario
async def test_ended_ones_are_deleted(world: World) -> None:
    made = await world.create(auto_delete=0)
    assert world.service.get(made.id).state is State.RUNNING
    await world.service.stop(made.id)

    def gone() -> bool:
        return made.id not in world.service.boxes

    await world.until(gone)


@scenario
async def test_tenants_keep_their_files(world: World) -> None:
    one = await world.create(tenant="ant")
    outputs = world.service.get(one.id).outputs
    await world.sh(one.id, f"echo mine > file; echo result > {outputs}/result; echo x > ~/gone")
    await world.service.delete(one.id)
    await world.restart()
    again, both, stranger = [await world.create(tenant=who) for who in ("ant", "ant", "bee")]
    for box in (again, both):
        done = await world.sh(box.id, f"cat file {outputs.replace(one.id, box.id)}/result; ls ~")
        assert done.stdout == "mine\nresult\n"
    assert (await world.sh(again.id, "echo changed > file")).exit_code == 0
    assert (await world.sh(both.id, "cat file")).stdout == "changed\n"
    assert (await world.sh(stranger.id, "ls -A")).stdout == ""


@scenario
async def test_private_files_are_private(world: World) -> None:
    one, other = await world.create(), await world.create()
    await world.sh(one.id, "echo secret > file")
    assert (await world.sh(other.id, "ls -A")).stdout == ""


@scenario
async def test_stats(world: World) -> None:
    made = await world.create()
    started = await world.start_sh(made.id, "sleep 1000")
    await world.sh(made.id, "head -c 3000000 /dev/zero > file")
    stats = await world.service.stats(made.id)
    assert stats.execs_running == 1
    if stats.processes is not None:
        assert stats.processes >= 2
    if stats.memory is not None:
        assert stats.memory > 0
    if stats.disk is not None:
        assert stats.disk >= 3_000_000
    await world.service.cancel_exec(made.id, started.id, grace=0)
    await world.wait(made.id, started.id)
    await world.service.stop(made.id)
    assert (await world.service.stats(made.id)).execs_running == 0
