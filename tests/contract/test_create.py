"""Sandboxes: making, finding, naming, changing."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from paddock.errors import Conflict, Exhausted, Invalid, NotFound, PaddockError, Unavailable
from paddock.sandboxes.model import State
from paddock.sandboxes.requests import CreateSandbox, ExecRequest, UpdateSandbox
from paddock.sandboxes.service import cursor
from tests.contract.stage import scenario
from tests.contract.world import World


@scenario
async def test_a_new_sandbox_runs(world: World) -> None:
    made = await world.create(
        name="first", labels={"team": "red"}, metadata={"n": [1, None]}, environment={"COLOR": "blue"}
    )
    assert made.state is State.RUNNING
    assert (made.name, made.labels, made.metadata) == ("first", {"team": "red"}, {"n": [1, None]})
    assert made.started_at is not None
    assert made.created_at <= made.started_at
    assert set(made.enforcement) == {"memory", "cpus", "processes", "disk", "open_files"}
    assert world.service.get(made.id) == world.service.get("first")
    assert (await world.sh("first", "echo $COLOR")).stdout == "blue\n"


@scenario
async def test_what_is_not_there_is_not_found(world: World) -> None:
    request = ExecRequest(command=["true"])
    for ask in (
        lambda: world.service.stop("nobody"),
        lambda: world.service.delete("nobody"),
        lambda: world.service.run_exec("nobody", request),
        lambda: world.service.files.stat("nobody", "."),
        lambda: world.service.stats("nobody"),
    ):
        with pytest.raises(NotFound) as caught:
            await ask()
        assert caught.value.reason == "sandbox_not_found"
    with pytest.raises(NotFound):
        world.service.get("nobody")
    box = await world.shared()
    with pytest.raises(NotFound) as caught:
        await world.service.get_exec(box, "ex0000000000000000")
    assert caught.value.reason == "exec_not_found"


@scenario
async def test_list_filters_and_pages(world: World) -> None:
    shared = await world.shared()
    made = [await world.create(name=f"n{n}", labels={"odd": str(n % 2), "all": "x"}) for n in range(4)]
    ids = [one.id for one in made]

    def listed(**fields: object) -> list[str]:
        found = world.service.list(**fields)  # type: ignore[arg-type]
        return [one.id for one in found if one.id != shared]

    assert listed() == ids
    assert listed(labels={"odd": "1"}) == [ids[1], ids[3]]
    assert listed(labels={"odd": "1", "all": "y"}) == []
    assert listed(name="n2") == [ids[2]]
    assert listed(after=cursor(made[1])) == ids[2:]
    assert listed(after=cursor(made[0]), limit=1) == [ids[1]]
    with pytest.raises(Invalid):
        listed(after="somewhere")
    await world.service.stop("n0")
    assert listed(states=[State.STOPPED]) == [ids[0]]
    assert ids[0] not in listed(states=[State.RUNNING])
    await world.service.delete("n0")
    assert ids[0] not in listed()
    assert listed(after=cursor(made[0])) == ids[1:], "the place of one that is gone"


@scenario
async def test_one_name_has_one_sandbox(world: World) -> None:
    requests = [world.create(name="twin") for _ in range(5)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    made = [one for one in results if not isinstance(one, BaseException)]
    assert len(made) == 1
    assert all(isinstance(one, Conflict) and one.reason == "name_taken" for one in results if one not in made)
    with pytest.raises(Conflict):
        await world.create(id=made[0].id)
    await world.service.delete("twin")
    again = await world.create(name="twin")
    assert again.id != made[0].id


@scenario
async def test_names_belong_to_tenants(world: World) -> None:
    one, other = await world.create(name="same", tenant="ant"), await world.create(name="same", tenant="bee")
    assert [b.id for b in world.service.list(tenant="ant")] == [one.id]
    assert [b.id for b in world.service.list(tenant="bee", name="same")] == [other.id]


@scenario
async def test_update(world: World) -> None:
    made = await world.create(name="old", labels={"a": "1"}, idle_timeout=500)
    other = await world.create(name="other")
    changed = await world.service.update("old", UpdateSandbox(name="new", labels={"b": "2"}, ttl=100))
    assert (changed.name, changed.labels, changed.idle_timeout) == ("new", {"b": "2"}, 500)
    assert changed.expires_at is not None
    assert world.service.get("new").id == made.id
    with pytest.raises(NotFound):
        world.service.get("old")
    with pytest.raises(Conflict) as caught:
        await world.service.update("new", UpdateSandbox(name="other"))
    assert caught.value.reason == "name_taken"
    changed = await world.service.update("new", UpdateSandbox(name=None, ttl=None, idle_timeout=None))
    assert (changed.name, changed.ttl, changed.expires_at, changed.idle_timeout) == (None, None, None, None)
    assert changed.labels == {"b": "2"}
    await world.restart()
    assert world.service.get(made.id).labels == {"b": "2"}
    assert world.service.get(made.id).name is None
    assert world.service.get("other").id == other.id


@scenario
async def test_what_cannot_be_made_leaves_nothing(world: World) -> None:
    before = {box.id for box in world.service.list()}
    for fields in ({"runtime": "steam"}, {"template": "none"}):
        with pytest.raises(Invalid):
            await world.create(name="never", **fields)
    with pytest.raises(ValidationError):
        CreateSandbox.model_validate({"name": "Not A Name"})
    real = world.runtime.create

    async def fails(spec: object) -> object:
        instance = await real(spec)  # type: ignore[arg-type]
        assert instance.link is not None
        instance.link.close()
        return instance

    world.runtime.create = fails  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises((PaddockError, OSError)):
            await world.create(name="never", id="cut-short")
    finally:
        world.runtime.create = real  # type: ignore[method-assign]
    assert {box.id for box in world.service.list()} == before
    assert (await world.create(name="never")).state is State.RUNNING


@scenario
async def test_a_create_that_is_cancelled_leaves_nothing(world: World) -> None:
    for delay in (0.0, 0.002, 0.01, 0.03):
        task = asyncio.create_task(world.create(name="cut"))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            await world.until(lambda: not world.service.list(name="cut"))
        else:
            await world.service.delete(task.result().id)
    assert (await world.create(name="cut")).state is State.RUNNING


@scenario
async def test_many_at_once(world: World) -> None:
    made = await asyncio.gather(*(world.create() for _ in range(20)))
    results = await asyncio.gather(*(world.sh(one.id, "echo $PADDOCK_SANDBOX_ID") for one in made))
    assert [result.stdout.strip() for result in results] == [one.id for one in made]
    await asyncio.gather(*(world.service.delete(one.id) for one in made))


@scenario
async def test_there_is_a_most(world: World) -> None:
    settings = world.service.settings
    limit = len(world.service.boxes) + 1
    world.service.settings = settings.model_copy(update={"max_sandboxes": limit})
    try:
        await world.create()
        with pytest.raises(Exhausted) as caught:
            await world.create()
        assert caught.value.reason == "too_many_sandboxes"
    finally:
        world.service.settings = settings


@scenario
async def test_events_tell_its_life(world: World) -> None:
    made = await world.create(name="told")
    done = await world.sh(made.id, "true")
    await world.service.update(made.id, UpdateSandbox(labels={"a": "b"}))
    await world.service.stop(made.id)
    await world.service.delete(made.id)
    events = await world.events.read(sandbox_id=made.id)
    assert [event.kind for event in events] == [
        "sandbox.created",
        "sandbox.running",
        "exec.started",
        "exec.finished",
        "sandbox.updated",
        "sandbox.stopping",
        "sandbox.stopped",
        "sandbox.deleted",
    ]
    assert {event.exec_id for event in events} == {None, done.id}


@scenario
async def test_a_tenants_number_is_kept_whatever_fails(world: World) -> None:
    """Were it forgotten, another tenant would get it, and with it the files' owner."""
    real = world.runtime.create

    async def fails(spec: object) -> object:
        raise Unavailable("not now", reason="fault")

    world.runtime.create = fails  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(Unavailable):
            await world.create(tenant="newt")
    finally:
        world.runtime.create = real  # type: ignore[method-assign]
    made = await world.create(tenant="newt")
    slot = world.service.box(made.id).record.slot
    await world.service.delete(made.id)
    await world.restart()
    others = [await world.create() for _ in range(3)]
    again = await world.create(tenant="newt")
    assert world.service.box(again.id).record.slot == slot
    assert slot not in [world.service.box(one.id).record.slot for one in others]


@scenario
async def test_a_name_that_two_tenants_use_needs_an_id(world: World) -> None:
    one = await world.create(name="shared-name", tenant="ant")
    assert world.service.get("shared-name").id == one.id
    other = await world.create(name="shared-name", tenant="bee")
    with pytest.raises(Conflict) as caught:
        world.service.get("shared-name")
    assert caught.value.reason == "name_ambiguous"
    assert other.id in (caught.value.hint or "")
