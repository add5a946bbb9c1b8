"""Whatever bytes a host sends, the guest neither crashes nor hangs nor keeps anything back."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.guest.driver import (
    ACK,
    BUILTIN,
    KILL,
    PING,
    RELEASE,
    RESIZE,
    RESUME,
    SHUTDOWN,
    SIGNAL,
    START,
    STDIN,
    Frame,
    Guest,
    LinkClosed,
    start_payload,
)

channels = st.integers(0, 4)
numbers = st.one_of(st.integers(0, 70), st.sampled_from([2**31, 2**32 - 1, 262144]))
positions = st.one_of(st.integers(0, 100), st.just(2**64 - 1))
COMMANDS = (
    ["true"],
    ["echo", "hi"],
    ["cat"],
    ["sleep", "1000"],
    ["no-such"],
    ["sh", "-c", "echo $$; exec cat"],
)
CALLS = (["stat", "/", "0"], ["list", "/", "1", "3"], ["nothing"], ["read", "/etc/passwd", "0", "-1"])


def frame(type_: int, payload: st.SearchStrategy[bytes], most_flags: int = 0) -> st.SearchStrategy[bytes]:
    flags = st.integers(0, most_flags)
    return st.builds(lambda c, p, f: Frame(c, type_, p, f).pack(), channels, payload, flags)


starts = st.one_of(
    st.builds(
        lambda argv, flags, window: start_payload(argv, flags=flags, window=window),
        st.sampled_from(COMMANDS),
        st.integers(0, 3).map(lambda bits: bits | 8 * (bits & 1)),
        st.sampled_from([4096, 65536, 1 << 20]),
    ),
    st.builds(lambda argv: start_payload(argv, flags=BUILTIN), st.sampled_from(CALLS)),
)
frames = st.one_of(
    frame(START, starts),
    frame(STDIN, st.binary(max_size=50), most_flags=1),
    frame(SIGNAL, st.builds(lambda n, s: struct.pack("<IB", n, s), st.integers(0, 70), st.integers(0, 1))),
    frame(
        RESIZE, st.builds(lambda a, b: struct.pack("<HH", a, b), st.integers(0, 65535), st.integers(0, 65535))
    ),
    frame(ACK, positions.map(lambda n: struct.pack("<Q", n))),
    frame(RESUME, positions.map(lambda n: struct.pack("<Q", n))),
    frame(RELEASE, st.just(b"")),
    frame(KILL, numbers.map(lambda n: struct.pack("<I", n))),
    frame(PING, st.binary(min_size=8, max_size=8)),
    st.builds(
        lambda t, c, p: Frame(c, t, p).pack(), st.integers(0, 255), channels, st.binary(max_size=80)
    ).filter(lambda data: data[8] != SHUTDOWN),
    st.binary(max_size=100),
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(frames, max_size=25))
def test_any_sequence_of_frames_is_survived(sequence: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        guest = Guest(Path(folder)).boot()
        try:
            with contextlib.suppress(LinkClosed, ConnectionError):
                for data in sequence:
                    guest.wire.send_raw(data)
                    guest.wire.pump(0)
            guest.drop_link()
            # Whether that was a violation or not, it comes back, and works.
            _accept_any(guest)
            guest.channel = 1_000_000
            assert guest.run("echo", "well").stdout == b"well\n"
            assert guest.stop() == 0
        finally:
            guest.close()


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200))
def test_anything_but_a_boot_ends_a_new_guest(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        guest = Guest(Path(folder))
        try:
            with contextlib.suppress(LinkClosed, ConnectionError):
                guest.wire.send_raw(data)
            guest.drop_link()
            assert guest.process.wait() == 1
        finally:
            guest.close()


def _accept_any(guest: Guest) -> None:
    """As a host that has lost its memory: everything kept is released."""
    guest.listen()
    assert guest.listener is not None
    while True:
        sock, _ = guest.listener.accept()
        guest.wire = type(guest.wire)(sock)
        try:
            guest.wire.expect(65)
            guest.wire.send(2, struct.pack("<H", 1))
            while (listed := _next(guest)).type != 67:
                guest.wire.send(RELEASE, channel=listed.channel)
            return
        except (LinkClosed, ConnectionError):
            continue


def _next(guest: Guest) -> Frame:
    guest.wire.until(lambda: bool(guest.wire.inbox))
    return guest.wire.inbox.pop(0)
