from __future__ import annotations

import time

import pytest

from paddock.auth import ANYONE, Audit, Principal, Role
from paddock.store import Store


@pytest.fixture
def audit(store: Store) -> Audit:
    return Audit(store)


async def test_entries_say_who_did_what_newest_first(audit: Audit) -> None:
    before = time.time()
    audit.record(Principal("robot", Role.OPERATOR, "tok_1"), "sandbox.create", "sb_1", "ok", {"name": "x"})
    audit.record(ANYONE, "sandbox.delete", "sb_1", "not_found")
    newest, oldest = await audit.read()
    assert (newest.actor, newest.role, newest.action, newest.outcome) == (
        "anyone",
        "admin",
        "sandbox.delete",
        "not_found",
    )
    assert (oldest.actor, oldest.role, oldest.target) == ("robot", "operator", "sb_1")
    assert oldest.detail == {"name": "x"}
    assert before <= oldest.at <= newest.at <= time.time()


async def test_pages(audit: Audit) -> None:
    for n in range(7):
        audit.record(ANYONE, "x", str(n))
    first = await audit.read(limit=3)
    second = await audit.read(limit=10, before=first[-1].id)
    assert [entry.target for entry in first + second] == ["6", "5", "4", "3", "2", "1", "0"]


async def test_nothing_escapes_the_log_by_its_name(audit: Audit) -> None:
    audit.record(ANYONE, "file.read", "a\0b\udcff" + "x" * 5000)
    [entry] = await audit.read()
    assert entry.target.startswith("a\\0b\\udcff")
    assert len(entry.target) == 1024
