from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.config import DataDir
from paddock.errors import Conflict, Gone, Unavailable
from paddock.runtimes.fake import FakeRuntime
from paddock.sandboxes import box as module
from paddock.sandboxes.box import Box
from paddock.sandboxes.model import State
from paddock.sandboxes.planning import spec_of
from tests.unit.sandboxes.makings import sandbox


def make(**fields: object) -> Box:
    record = sandbox(**fields)
    return Box(record, spec_of(record, DataDir(Path("/nowhere")), None), FakeRuntime())


def guest(lost: bool = False) -> Any:
    return SimpleNamespace(lost=lost)


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
async def test_only_a_running_one_has_a_link(state: State) -> None:
    box = make(state=state)
    box.guest = guest()
    with pytest.raises(Gone if state is State.DELETED else Conflict):
        await box.link()


async def test_the_link_is_waited_for() -> None:
    box = make()
    box.guest = guest(lost=True)
    box.linked.set()
    asking = asyncio.create_task(box.link())
    await asyncio.sleep(0.01)
    assert not asking.done()
    box.guest = guest()
    box.linked.set()
    assert await asyncio.wait_for(asking, 20) is box.guest


async def test_waiting_ends_with_the_sandbox() -> None:
    box = make()
    asking = asyncio.create_task(box.link())
    await asyncio.sleep(0)
    box.record.state = State.FAILED
    box.linked.set()
    with pytest.raises(Conflict) as caught:
        await asyncio.wait_for(asking, 20)
    assert caught.value.reason == "sandbox_not_running"


async def test_a_guest_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINK_SECONDS", 0.01)
    with pytest.raises(Unavailable) as caught:
        await make().link()
    assert caught.value.reason == "guest_lost"


async def test_its_tasks_end_with_it() -> None:
    box = make()
    tasks = [box.own(asyncio.sleep(1000)) for _ in range(3)]
    done = box.own(asyncio.sleep(0))
    await done
    assert box.tasks == set(tasks)
    await box.end_tasks()
    assert all(task.cancelled() for task in tasks)
    assert not box.tasks


async def test_activity_is_seen() -> None:
    box = make(last_active_at=1000.0)
    assert box.view().last_active_at == 1000.0
    box.calls = 1
    assert box.view().last_active_at > 1e9
    box.calls = 0
    box.touch()
    assert box.view().last_active_at > 1e9
