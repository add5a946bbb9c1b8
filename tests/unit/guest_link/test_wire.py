from __future__ import annotations

import contextlib
import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock import errors
from paddock.guest import wire
from paddock.guest.wire import Boot, Exit, Greeting, GuestViolation, Hello, Inventory, Outcome, Stage, Start

# A loaded machine is slow: that is no fault of the code.
patient = settings(
    deadline=None, max_examples=60, database=None, suppress_health_check=[HealthCheck.too_slow]
)
text = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"x"))
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
u64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
user = st.none() | st.integers(0, 0xFFFF_FFFE)

starts = st.builds(
    Start,
    argv=st.lists(text, min_size=1, max_size=5),
    environment=st.lists(text.map(lambda value: b"NAME=" + value), max_size=5),
    cwd=text,
    metadata=text,
    terminal=st.booleans(),
    stdin=st.booleans(),
    builtin=st.booleans(),
    transient=st.booleans(),
    uid=user,
    gid=user,
    rows=u16,
    columns=u16,
    timeout_ms=u32,
    grace_ms=u32,
    window=st.integers(wire.MIN_WINDOW, wire.MAX_WINDOW),
    limits=st.lists(st.tuples(st.integers(0, 255), u64, u64), max_size=4).map(tuple),
)
exits = st.builds(
    Exit,
    outcome=st.sampled_from([o for o in Outcome if o != Outcome.NOT_STARTED]),
    stage=st.just(Stage.NONE),
    code=st.integers(-(2**31), 2**31 - 1),
    end=u64,
    stdout_bytes=u64,
    stderr_bytes=u64,
    started_ns=u64,
    finished_ns=u64,
    user_us=u64,
    system_us=u64,
    max_rss_kib=u64,
)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    acknowledged = draw(st.integers(0, 2**62))
    end = acknowledged + draw(st.integers(0, wire.MAX_WINDOW))
    return Inventory(
        draw(st.integers(1, wire.MAX_CHANNEL)), draw(st.booleans()), draw(st.booleans()), draw(u32),
        acknowledged, end, draw(u64), draw(u64), draw(text),
    )  # fmt: skip


@patient
@given(starts)
def test_start_comes_back_as_it_was(start: Start) -> None:
    assert Start.unpack(start.pack()) == start


@patient
@given(exits)
def test_exit_comes_back_as_it_was(exit: Exit) -> None:
    assert Exit.unpack(exit.pack()) == exit


def test_an_exec_that_did_not_start_has_a_stage() -> None:
    exit = Exit(Outcome.NOT_STARTED, Stage.EXEC, 2, 0, 0, 0, 0, 0, 0, 0, 0)
    assert Exit.unpack(exit.pack()) == exit
    for wrong in (replace(exit, stage=Stage.NONE), replace(exit, outcome=Outcome.EXITED)):
        with pytest.raises(GuestViolation):
            Exit.unpack(wrong.pack())


@patient
@given(inventories())
def test_inventory_comes_back_as_it_was(entry: Inventory) -> None:
    assert Inventory.unpack(entry.channel, entry.pack()) == entry


@patient
@given(
    st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16), st.integers(1, 2**32 - 1), u16
)
def test_greetings_come_back_as_they_were(secret: bytes, boot_id: bytes, channel: int, version: int) -> None:
    for value in (Boot(secret, b"/run/paddock", version), Hello(boot_id, version)):
        assert type(value).unpack(value.pack()) == value
    greeting = Greeting(secret, boot_id, channel, version)
    assert Greeting.unpack(greeting.pack()) == greeting


@patient
@given(st.binary(max_size=200))
def test_noise_is_a_violation_or_a_value_that_packs_to_itself(data: bytes) -> None:
    for kind in (Start, Exit, Hello, Greeting, Boot):
        try:
            value = kind.unpack(data)
        except GuestViolation:
            continue
        if not isinstance(value, Start):
            assert value.pack() == data
    with contextlib.suppress(GuestViolation):
        assert Inventory.unpack(1, data).pack() == data


@patient
@given(starts, st.data())
def test_a_start_cut_short_or_lengthened_is_a_violation(start: Start, data: st.DataObject) -> None:
    payload = start.pack()
    cut = data.draw(st.integers(0, len(payload) - 1))
    for broken in (payload[:cut], payload + b"\0"):
        with pytest.raises(GuestViolation):
            Start.unpack(broken)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"argv": []}, "empty_command"),
        ({"argv": [b"a\0b"]}, "nul_byte"),
        ({"environment": [b"NAME"]}, "bad_environment"),
        ({"environment": [b"A=b"] * 4097}, "start_too_large"),
        ({"argv": [b"x" * 300_000]}, "start_too_large"),
        ({"metadata": b"x" * 65_537}, "start_too_large"),
        ({"window": 4095}, "bad_window"),
        ({"window": (16 << 20) + 1}, "bad_window"),
        ({"rows": 65_536}, "out_of_range"),
        ({"timeout_ms": -1}, "out_of_range"),
        ({"limits": ((256, 0, 0),)}, "out_of_range"),
    ],
)
def test_what_cannot_be_said_is_the_callers_mistake(changes: dict[str, object], reason: str) -> None:
    start = replace(Start([b"true"], [], b"/"), **changes)  # type: ignore[arg-type]
    with pytest.raises(errors.Invalid) as caught:
        start.pack()
    assert caught.value.reason == reason


def test_the_largest_start_fits_a_frame() -> None:
    empty = len(Start([b""], [], b"/").pack())
    assert len(Start([b"x" * (wire.MAX_PAYLOAD - empty)], [], b"/").pack()) == wire.MAX_PAYLOAD
    with pytest.raises(errors.TooLarge):
        Start([b"x" * (wire.MAX_PAYLOAD - empty + 1)], [], b"/").pack()


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack("<BBHIQQQQI", 0, 0, 0, 1, 0, 0, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 3, 0, 0, 1, 0, 0, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 1, 2, 0, 1, 0, 0, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 1, 0, 1, 1, 0, 0, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 1, 0, 0, 1, 5, 4, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 1, 0, 0, 1, 0, wire.MAX_WINDOW + 1, 0, 0, 0),
        struct.pack("<BBHIQQQQI", 1, 0, 0, 1, 0, 0, 0, 0, 1) + b"\0",
        struct.pack("<BBHIQQQQI", 1, 0, 0, 1, 0, 0, 0, 0, 2) + b"x",
        struct.pack("<BBHIQQQQI", 1, 0, 0, 1, 0, 0, 0, 0, 65_537) + b"x" * 65_537,
    ],
    ids=["no-state", "state", "stdin", "reserved", "order", "window", "nul", "short", "metadata"],
)
def test_an_inventory_that_cannot_be_is_a_violation(payload: bytes) -> None:
    with pytest.raises(GuestViolation) as caught:
        Inventory.unpack(1, payload)
    assert caught.value.reason == "guest_protocol"


def test_numbers_are_those_of_the_document() -> None:
    assert (
        wire.frame(wire.Type.SIGNAL, 7, wire.SIGNAL.pack(9, 1)).hex()
        == "050000000700000006000000" + "0900000001"
    )
    assert [wire.Type.BOOT, wire.Type.KILL, wire.Type.HELLO, wire.Type.PROBLEM] == [1, 13, 64, 73]
    assert len(Exit.unpack(bytes(72)).pack()) == 72
