"""What a sandbox may use: tried by using more."""

from __future__ import annotations

import pytest

from paddock.errors import Exhausted, Unsupported
from paddock.runtimes.base import Enforcement
from paddock.sandboxes.model import Sandbox
from tests.contract.stage import scenario
from tests.contract.world import World

HOG = "head -c 300000000 /dev/zero | tail -c 250000000 | wc -c"
"""tail has to hold all that it may be asked for."""


def held(world: World, made: Sandbox, limit: str, least: Enforcement = Enforcement.FULL) -> None:
    how = made.enforcement[limit]
    fine = how is Enforcement.FULL or (how is Enforcement.PARTIAL and least is Enforcement.PARTIAL)
    world.need(fine, f"{limit} limit")


@scenario
async def test_memory(world: World) -> None:
    made = await world.create(limits={"memory": 64 << 20})
    held(world, made, "memory")
    done = await world.sh(made.id, f"{HOG}; echo survived")
    assert "250000000" not in done.stdout
    stats = await world.service.stats(made.id)
    assert stats.memory is not None
    assert stats.memory <= 65 << 20
    assert (await world.sh(made.id, "echo usable")).stdout == "usable\n"


@scenario
async def test_processes(world: World) -> None:
    made = await world.create(limits={"processes": 20})
    held(world, made, "processes", Enforcement.PARTIAL)
    # Whichever shell: it may go on or end when it cannot fork, and its parent does not fork any more.
    fork = "n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n+1)); done"
    started = await world.start_sh(made.id, f"sh -c '{fork}'; echo full; read line", open_stdin=True)
    await world.until_output(made.id, started.id, b"full\n")
    assert world.service.box(made.id).execs[started.id].log.stderr > 0
    stats = await world.service.stats(made.id)
    if stats.processes is not None:
        assert stats.processes <= 40
    await world.service.cancel_exec(made.id, started.id, grace=0)
    await world.wait(made.id, started.id)
    assert (await world.sh(made.id, "echo usable")).stdout == "usable\n"


@scenario
async def test_cpu(world: World) -> None:
    made = await world.create(limits={"cpus": 0.2})
    held(world, made, "cpus")
    done = await world.sh(made.id, "while :; do :; done", timeout=3)
    assert done.state == "timed_out"
    assert done.usage is not None
    # A fifth of the time that it ran, with room for the length of a period and for the grace at the end.
    assert done.usage.user_seconds + done.usage.system_seconds < 2.5


@scenario
async def test_open_files(world: World) -> None:
    made = await world.create(limits={"open_files": 100})
    held(world, made, "open_files")
    assert (await world.sh(made.id, "ulimit -n; ulimit -Hn")).stdout == "100\n100\n"


@scenario
async def test_an_exact_disk(world: World) -> None:
    made = await world.create(limits={"disk": 32 << 20})
    held(world, made, "disk")
    done = await world.sh(
        made.id, "head -c 100000000 /dev/zero > big; echo $?; rm big; echo fine > small; cat small"
    )
    assert done.stdout == "1\nfine\n"


@scenario
async def test_a_watched_disk(world: World) -> None:
    """Where the limit is not exact it is looked after: what runs is ended, and nothing new may start."""
    made = await world.create(limits={"disk": 8 << 20}, tenant="big")
    how = made.enforcement["disk"]
    world.need(how is Enforcement.PARTIAL, "watched disk limit")
    done = await world.sh(made.id, "head -c 30000000 /dev/zero > big; sleep 50")
    assert (done.state, done.reason) == ("canceled", "disk_limit")
    with pytest.raises(Exhausted) as caught:
        await world.sh(made.id, "true")
    assert caught.value.reason == "disk_limit"
    await world.service.files.remove(made.id, "big")
    assert (await world.sh(made.id, "echo fine")).stdout == "fine\n"


@scenario
async def test_strict_is_strict(world: World) -> None:
    asked: dict[str, object] = {"limits": {"disk": 32 << 20}}
    loose = await world.create(name="loose", **asked)
    if set(loose.enforcement.values()) == {Enforcement.FULL}:
        assert (await world.create(name="strict", strict=True, **asked)).strict
    else:
        with pytest.raises(Unsupported) as caught:
            await world.create(name="strict", strict=True, **asked)
        assert caught.value.reason == "limit_unenforceable"
        assert not world.service.list(name="strict")
