from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import Exhausted
from paddock.sandboxes import slots
from paddock.sandboxes.slots import Slots


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_no_two_owners_share_a_slot(steps: list[tuple[bool, int]]) -> None:
    found = Slots({})
    held: dict[str, int] = {}
    for take, number in steps:
        owner = f"o{number}"
        if take and owner not in held:
            held[owner] = found.take(owner)
        elif not take:
            found.free(owner)
            held.pop(owner, None)
        assert found.of(owner) == held.get(owner)
        assert len(set(held.values())) == len(held)
        assert all(1 <= slot <= slots.MOST for slot in held.values())


def test_what_the_store_knows_is_taken() -> None:
    found = Slots({"a": 1, "b": 3})
    assert found.of("a") == 1
    assert {found.take("c"), found.take("d")}.isdisjoint({1, 3})


def test_numbers_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MOST", 3)
    found = Slots({})
    assert [found.take(owner) for owner in "abc"] == [1, 2, 3]
    with pytest.raises(Exhausted):
        found.take("d")
    found.free("a")
    found.free("a")
    found.free("b")
    assert found.take("d") == 1
    found.free("d")
    # Not the one that was given back a moment ago.
    assert found.take("e") == 2
