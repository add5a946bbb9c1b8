"""Sandboxes and execs in the store: which statement keeps what."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection

from sqlalchemy import bindparam, delete, func, select, update

from paddock.sandboxes.execlog import Piece
from paddock.sandboxes.model import Exec, ExecState, SandboxRecord, State
from paddock.store import Op, Store
from paddock.store.schema import execs, sandboxes, uid_slots

_INSERT_SANDBOX = sandboxes.insert()
_UPDATE_SANDBOX = (
    update(sandboxes)
    .where(sandboxes.c.id == bindparam("key"))
    .values({name: bindparam(name) for name in ("name", "name_key", "state", "updated_at", "record")})
)
_INSERT_SLOT = uid_slots.insert()
_DELETE_EXECS = delete(execs).where(execs.c.sandbox_id == bindparam("key"))
_DELETE_SANDBOX = delete(sandboxes).where(sandboxes.c.id == bindparam("key"))
_DELETE_SLOT = delete(uid_slots).where(uid_slots.c.owner == bindparam("key"))
_INSERT_EXEC = execs.insert()
_UPDATE_EXEC = (
    update(execs)
    .where(execs.c.id == bindparam("key"), execs.c.sandbox_id == bindparam("owner"))
    .values({name: bindparam(name) for name in ("state", "finished_at", "record")})
)


def name_key(record: SandboxRecord) -> str | None:
    if record.name is None or record.state is State.DELETED:
        return None
    return f"{record.tenant or ''}/{record.name}"


def insert_sandbox(record: SandboxRecord) -> Op:
    values = {
        "id": record.id,
        "name": record.name,
        "name_key": name_key(record),
        "tenant": record.tenant,
        "runtime": record.runtime,
        "state": record.state.value,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "record": record.model_dump_json(),
    }
    return _INSERT_SANDBOX, values


def update_sandbox(record: SandboxRecord) -> Op:
    values = {
        "key": record.id,
        "name": record.name,
        "name_key": name_key(record),
        "state": record.state.value,
        "updated_at": record.updated_at,
        "record": record.model_dump_json(),
    }
    return _UPDATE_SANDBOX, values


def forget_sandbox(sandbox_id: str) -> list[Op]:
    return [
        (_DELETE_EXECS, {"key": sandbox_id}),
        (_DELETE_SANDBOX, {"key": sandbox_id}),
        (_DELETE_SLOT, {"key": slot_owner(sandbox_id, None)}),
    ]


def slot_owner(sandbox_id: str, tenant: str | None) -> str:
    return f"tenant:{tenant}" if tenant else f"sandbox:{sandbox_id}"


def is_tenant(owner: str) -> bool:
    return owner.startswith("tenant:")


def insert_slot(slot: int, owner: str) -> Op:
    return _INSERT_SLOT, {"slot": slot, "owner": owner}


async def all_sandboxes(store: Store) -> list[SandboxRecord]:
    rows = await store.fetch_all(select(sandboxes.c.record).order_by(sandboxes.c.created_at))
    return [SandboxRecord.model_validate_json(row["record"]) for row in rows]


async def all_slots(store: Store) -> dict[str, int]:
    rows = await store.fetch_all(select(uid_slots.c.owner, uid_slots.c.slot))
    return {row["owner"]: row["slot"] for row in rows}


class StoredExec:
    """An exec as the store has it: its record, and its output when that is small."""

    __slots__ = ("exec", "output")

    def __init__(self, record: Exec, output: list[Piece] | None) -> None:
        self.exec = record
        self.output = output

    def dump(self) -> str:
        text = self.exec.model_dump_json()
        if not self.output:
            return f'{{"exec":{text},"inline":{json.dumps(self.output is not None)}}}'
        pieces = [[stream, b64encode(data).decode()] for stream, data in self.output]
        return f'{{"exec":{text},"inline":true,"output":{json.dumps(pieces)}}}'

    @classmethod
    def load(cls, text: str) -> StoredExec:
        body = json.loads(text)
        pieces = [(stream, b64decode(data)) for stream, data in body.get("output", ())]
        return cls(Exec.model_validate(body["exec"]), pieces if body["inline"] else None)


def insert_exec(stored: StoredExec) -> Op:
    record = stored.exec
    values = {
        "id": record.id,
        "sandbox_id": record.sandbox_id,
        "state": record.state.value,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "record": stored.dump(),
    }
    return _INSERT_EXEC, values


def update_exec(stored: StoredExec) -> Op:
    record = stored.exec
    values = {
        "key": record.id,
        "owner": record.sandbox_id,
        "state": record.state.value,
        "finished_at": record.finished_at,
        "record": stored.dump(),
    }
    return _UPDATE_EXEC, values


async def one_exec(store: Store, sandbox_id: str, exec_id: str) -> StoredExec | None:
    row = await store.fetch_one(
        select(execs.c.record).where(execs.c.id == exec_id, execs.c.sandbox_id == sandbox_id)
    )
    return StoredExec.load(row["record"]) if row else None


async def exec_owner(store: Store, exec_id: str) -> str | None:
    row = await store.fetch_one(select(execs.c.sandbox_id).where(execs.c.id == exec_id))
    return row["sandbox_id"] if row else None


async def some_execs(
    store: Store, sandbox_id: str, states: Collection[ExecState], limit: int
) -> list[StoredExec]:
    query = select(execs.c.record).where(execs.c.sandbox_id == sandbox_id)
    if states:
        query = query.where(execs.c.state.in_([state.value for state in states]))
    rows = await store.fetch_all(query.order_by(execs.c.created_at.desc(), execs.c.id).limit(limit))
    return [StoredExec.load(row["record"]) for row in rows]


async def unfinished_execs(store: Store, sandbox_id: str) -> list[StoredExec]:
    return await some_execs(store, sandbox_id, (ExecState.RUNNING, ExecState.CANCELING), 100_000)


async def surplus_execs(store: Store, *, older_than: float, keep: int) -> list[tuple[str, str]]:
    """(sandbox, exec) of finished execs that are too old, or beyond the newest `keep` of their sandbox."""
    rank = func.row_number().over(partition_by=execs.c.sandbox_id, order_by=execs.c.finished_at.desc())
    ranked = (
        select(execs.c.id, execs.c.sandbox_id, execs.c.finished_at, rank.label("place"))
        .where(execs.c.finished_at.is_not(None))
        .subquery()
    )
    rows = await store.fetch_all(
        select(ranked.c.sandbox_id, ranked.c.id)
        .where((ranked.c.finished_at < older_than) | (ranked.c.place > keep))
        .limit(1000)
    )
    return [(row["sandbox_id"], row["id"]) for row in rows]


def forget_execs(exec_ids: list[str]) -> Op:
    return delete(execs).where(execs.c.id.in_(exec_ids))
