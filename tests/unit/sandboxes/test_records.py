from __future__ import annotations

import pytest

from paddock.errors import Conflict
from paddock.sandboxes import records
from paddock.sandboxes.model import ExecState, State
from paddock.sandboxes.records import StoredExec
from paddock.store import Store
from tests.unit.sandboxes.makings import exec_, sandbox


async def test_sandboxes_come_back_as_they_were(store: Store) -> None:
    one = sandbox(name="one", labels={"a": "b"}, metadata={"x": [1, {"y": None}]}, handle={"pid": 5})
    two = sandbox(id="sb-two", created_at=1001.0, tenant="ant", state="paused")
    await store.write(records.insert_sandbox(two))
    await store.write(records.insert_sandbox(one))
    assert await records.all_sandboxes(store) == [one, two]
    changed = one.model_copy(update={"name": "other", "state": State.STOPPED, "reason": "idle"})
    await store.write(records.update_sandbox(changed))
    assert await records.all_sandboxes(store) == [changed, two]


async def test_a_name_is_taken_while_its_sandbox_lives(store: Store) -> None:
    one = sandbox(name="same")
    await store.write(records.insert_sandbox(one))
    with pytest.raises(Conflict):
        await store.write(records.insert_sandbox(sandbox(id="sb-two", name="same")))
    await store.write(records.insert_sandbox(sandbox(id="sb-three", name="same", tenant="ant")))
    await store.write(records.update_sandbox(one.model_copy(update={"state": State.DELETED})))
    await store.write(records.insert_sandbox(sandbox(id="sb-two", name="same")))


@pytest.mark.parametrize(
    "output", [None, [], [(1, b"out"), (2, b"\xff\x00"), (1, "ü".encode())]], ids=["files", "none", "inline"]
)
async def test_execs_come_back_as_they_were(store: Store, output: list[tuple[int, bytes]] | None) -> None:
    record = exec_(labels={"a": "b"}, command=["x", "ü\n"], usage={"max_rss": 5}, created_by="me")
    await store.write(records.insert_exec(StoredExec(record, output)))
    found = await records.one_exec(store, "sb-one", record.id)
    assert found is not None
    assert (found.exec, found.output) == (record, output)
    assert await records.one_exec(store, "sb-two", record.id) is None
    assert await records.exec_owner(store, record.id) == "sb-one"
    assert await records.exec_owner(store, "ex99999999") is None


async def test_an_exec_is_changed_by_its_own_sandbox_alone(store: Store) -> None:
    await store.write(records.insert_exec(StoredExec(exec_(), [])))
    stranger = exec_(sandbox_id="sb-evil", command=["forged"], state="completed")
    with pytest.raises(Conflict):
        await store.write(records.insert_exec(StoredExec(stranger, [])))
    await store.write(records.update_exec(StoredExec(stranger, [])))
    found = await records.one_exec(store, "sb-one", "ex00000001")
    assert found is not None
    assert found.exec == exec_()
    done = exec_(state="failed", exit_code=5, finished_at=1005.0)
    await store.write(records.update_exec(StoredExec(done, [(1, b"x")])))
    found = await records.one_exec(store, "sb-one", "ex00000001")
    assert found is not None
    assert (found.exec, found.output) == (done, [(1, b"x")])


async def test_lists_of_execs(store: Store) -> None:
    states = [ExecState.RUNNING, ExecState.COMPLETED, ExecState.CANCELING, ExecState.FAILED]
    made = [exec_(id=f"ex0000000{n}", created_at=1000.0 + n, state=state) for n, state in enumerate(states)]
    for record in [*made, exec_(id="ex-elsewhere", sandbox_id="sb-two")]:
        await store.write(records.insert_exec(StoredExec(record, [])))

    async def ids(states: tuple[ExecState, ...] = (), limit: int = 100) -> list[str]:
        return [one.exec.id[-1] for one in await records.some_execs(store, "sb-one", states, limit)]

    assert await ids() == ["3", "2", "1", "0"]
    assert await ids(limit=2) == ["3", "2"]
    assert await ids((ExecState.COMPLETED, ExecState.FAILED)) == ["3", "1"]
    assert [one.exec.id[-1] for one in await records.unfinished_execs(store, "sb-one")] == ["2", "0"]


async def test_surplus_execs(store: Store) -> None:
    for n in range(6):
        record = exec_(id=f"ex0000000{n}", state="completed", finished_at=1000.0 + n)
        await store.write(records.insert_exec(StoredExec(record, [])))
    await store.write(records.insert_exec(StoredExec(exec_(id="ex-running-1"), None)))
    other = exec_(id="ex-elsewhere", sandbox_id="sb-two", state="completed", finished_at=1.0)
    await store.write(records.insert_exec(StoredExec(other, None)))

    async def surplus(older_than: float, keep: int) -> set[str]:
        return {
            exec_id for _, exec_id in await records.surplus_execs(store, older_than=older_than, keep=keep)
        }

    assert await surplus(0, 100) == set()
    assert await surplus(0, 4) == {"ex00000000", "ex00000001"}
    assert await surplus(1002, 100) == {"ex00000000", "ex00000001", "ex-elsewhere"}
    old = await surplus(1002, 4)
    await store.write(records.forget_execs(sorted(old)))
    assert await surplus(1002, 4) == set()
    assert await records.one_exec(store, "sb-one", "ex00000002") is not None


async def test_forgetting_a_sandbox_takes_all_of_it(store: Store) -> None:
    await store.write(records.insert_sandbox(sandbox()), records.insert_slot(1, "sandbox:sb-one"))
    await store.write(records.insert_sandbox(sandbox(id="sb-two")), records.insert_slot(2, "tenant:ant"))
    for owner in ("sb-one", "sb-two"):
        record = exec_(id=f"ex-of-{owner}", sandbox_id=owner)
        await store.write(records.insert_exec(StoredExec(record, [])))
    await store.write(*records.forget_sandbox("sb-one"))
    assert [record.id for record in await records.all_sandboxes(store)] == ["sb-two"]
    assert await records.all_slots(store) == {"tenant:ant": 2}
    assert await records.exec_owner(store, "ex-of-sb-one") is None
    assert await records.exec_owner(store, "ex-of-sb-two") == "sb-two"


def test_owners_of_slots() -> None:
    assert records.slot_owner("sb-one", None) == "sandbox:sb-one"
    assert records.slot_owner("sb-one", "ant") == "tenant:ant"
    assert records.is_tenant("tenant:ant")
    assert not records.is_tenant("sandbox:tenant")
