"""Links: the first one, later ones, and what a guest does with a host that breaks the rules."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.guest.driver import (
    ACK,
    ADOPT,
    BOOT,
    BUILTIN,
    EXIT,
    KILL,
    PING,
    PROBLEM,
    RELEASE,
    RESIZE,
    RESUME,
    SECRET,
    SHUTDOWN,
    SIGNAL,
    START,
    STARTED,
    STDIN,
    STDIN_WANTED,
    TRANSIENT,
    WELCOME,
    Guest,
    alive,
    eventually,
    running,
    start_payload,
    string,
)


def boot_payload(version: int = 1, folder: bytes = b"/x") -> bytes:
    return struct.pack("<HH", version, 0) + SECRET + string(folder)


def closed_with_problem(guest: Guest) -> bytes:
    guest.wire.until_closed()
    problems = [frame.payload for frame in guest.wire.inbox if frame.type == PROBLEM]
    assert len(problems) == 1
    return problems[0]


# The first link


@pytest.mark.parametrize(
    "first",
    [
        lambda wire: wire.send(PING, bytes(8)),
        lambda wire: wire.send(WELCOME, struct.pack("<H", 1)),
        lambda wire: wire.send(BOOT, boot_payload(version=2)),
        lambda wire: wire.send(BOOT, boot_payload()[:-1]),
        lambda wire: wire.send(BOOT, boot_payload() + b"x"),
        lambda wire: wire.send(BOOT, boot_payload(), channel=1),
        lambda wire: wire.send(BOOT, boot_payload(folder=b"/" + b"x" * 100)),
        lambda wire: wire.send_raw(b"\xff" * 12),
    ],
)
def test_a_guest_without_a_proper_boot_exits(tmp_path: Path, first: Callable[[object], None]) -> None:
    guest = Guest(tmp_path)
    try:
        first(guest.wire)
        assert closed_with_problem(guest)
        assert guest.process.wait() == 1
    finally:
        guest.close()


def test_a_provisional_guest_dies_with_its_link_and_takes_everything_along(tmp_path: Path) -> None:
    guest = Guest(tmp_path).boot(adopt=False)
    try:
        pids = tmp_path / "pids"
        guest.start("sh", "-c", f"setsid sleep 1000 & echo $! >>{pids}; echo $$ >>{pids}; sleep 1000")
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        guest.drop_link()
        assert guest.process.wait() == 1
        assert not any(alive(int(pid)) for pid in pids.read_text().split())
    finally:
        guest.close()


def test_an_adopted_guest_without_a_folder_exits_on_loss(tmp_path: Path) -> None:
    guest = Guest(tmp_path, dial_folder="").boot()
    try:
        guest.wire.ping()
        guest.drop_link()
        assert guest.process.wait() == 1
    finally:
        guest.close()


def test_shutdown_lets_processes_end_themselves(guest: Guest, tmp_path: Path) -> None:
    last = tmp_path / "last"
    channel = guest.start(
        "sh", "-c", f"trap 'echo word >{last}; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    )
    guest.wire.until(lambda: guest.wire.outcomes[channel].stdout == b"up\n")
    assert guest.stop(grace=60000) == 0
    assert last.read_text() == "word\n"


def test_shutdown_kills_after_the_grace(guest: Guest, tmp_path: Path) -> None:
    channel = guest.start("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1000; done")
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: outcome.stdout.endswith(b"\n"))
    assert guest.stop(grace=100) == 0
    assert not alive(int(outcome.stdout))


def test_nothing_starts_during_a_shutdown(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    guest.wire.until(lambda: guest.wire.outcomes[channel].stdout == b"up\n")
    guest.wire.send(SHUTDOWN, struct.pack("<I", 60000))
    refused = guest.wait(guest.start("true"))
    assert refused.exit is not None
    assert refused.exit.outcome == 2
    guest.wire.send(SHUTDOWN, struct.pack("<I", 0))
    assert guest.process.wait() == 0


# Later links


def test_processes_and_unacknowledged_output_survive_a_lost_link(guest: Guest) -> None:
    guest.wire.auto_ack = False
    script = "echo one; read line; echo $line; exit 7"
    channel = guest.start("sh", "-c", script, flags=STDIN_WANTED, metadata=b"\x01meta")
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: outcome.stdout == b"one\n")
    pid = outcome.pid
    guest.drop_link()
    (kept,) = guest.accept()
    assert (kept.channel, kept.state, kept.stdin_open, kept.pid) == (channel, 1, 1, pid)
    assert (kept.acked, kept.end, kept.stdin_received, kept.metadata) == (0, 4, 0, b"\x01meta")
    outcome.stdout.clear()
    guest.resume(channel, position=0)
    guest.wire.until(lambda: outcome.stdout == b"one\n" and outcome.credit == 262144)
    guest.wire.send(STDIN, b"two\n", channel)
    done = guest.wait(channel)
    assert done.stdout == b"one\ntwo\n"
    assert STARTED not in done.order
    assert done.exit is not None
    assert done.exit.code == 7


def test_an_exec_that_ends_while_nobody_listens_is_reported_later_and_again(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "sleep 0.1; echo done; exit 9")
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    guest.drop_link()
    pid = guest.wire.outcomes[channel].pid
    eventually(lambda: not alive(pid))
    for _ in range(2):
        (kept,) = guest.accept()
        assert kept.channel == channel
        guest.resume(channel)
        done = guest.wait(channel, release=False)
        assert done.exit is not None
        assert (done.exit.code, bytes(done.stdout)) == (9, b"done\n")
        guest.drop_link()
    assert [kept.state for kept in guest.accept()] == [2]
    guest.wire.send(RELEASE, channel=channel)
    guest.wire.ping()
    guest.drop_link()
    assert guest.accept() == []


def test_output_resumes_exactly_where_the_host_asks(guest: Guest) -> None:
    guest.wire.auto_ack = False
    script = "i=0; while [ $i -lt 2000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done"
    channel = guest.start("sh", "-c", script)
    outcome = guest.wait(channel, release=False)
    whole, end = bytes(outcome.stdout), outcome.position
    assert whole == b"".join(b"%d\n" % i for i in range(2000))
    guest.wire.send(ACK, struct.pack("<Q", 1000), channel)
    guest.wire.ping()
    for position in (1000, 1001, end - 1, end):
        guest.drop_link()
        (kept,) = guest.accept()
        assert kept.acked <= position
        assert kept.end == end
        outcome.stdout.clear()
        outcome.stderr.clear()
        guest.resume(channel, position)
        guest.wait(channel, release=False)
        assert outcome.position == end
        assert whole.endswith(bytes(outcome.stdout))
        assert len(outcome.stdout) + len(outcome.stderr) == end - position


def test_a_process_waits_while_there_is_no_link(guest: Guest, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    channel = guest.start("sh", "-c", f"head -c 1000000 /dev/zero; touch {marker}", window=65536)
    guest.wire.auto_ack = False
    guest.wire.until(lambda: guest.wire.outcomes[channel].position > 0)
    guest.drop_link()
    guest.accept()
    guest.wire.auto_ack = True
    assert not marker.exists()
    outcome = guest.resume(channel)
    guest.wait(channel)
    assert len(outcome.stdout) == 1_000_000
    assert marker.exists()


def test_timeouts_hold_without_a_link(guest: Guest) -> None:
    channel = guest.start("sleep", "1000", timeout=300)
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    pid = guest.wire.outcomes[channel].pid
    guest.drop_link()
    eventually(lambda: not alive(pid))
    guest.accept()
    guest.resume(channel)
    done = guest.wait(channel)
    assert done.exit is not None
    assert done.exit.outcome == 3


def test_transient_execs_end_with_the_link(guest: Guest, tmp_path: Path) -> None:
    gone = guest.start("sleep", "1000", flags=TRANSIENT)
    target = tmp_path / "upload"
    half = guest.start("write", str(target), "-", "0", "0", "-", flags=TRANSIENT | BUILTIN | STDIN_WANTED)
    guest.feed(half, b"half of it", end=False)
    stays = guest.start("sleep", "1000")
    guest.wire.until(lambda: all(guest.wire.outcomes[c].pid for c in (gone, half, stays)))
    pids = [guest.wire.outcomes[c].pid for c in (gone, half)]
    guest.wire.ping()
    guest.drop_link()
    assert [kept.channel for kept in guest.accept()] == [stays]
    eventually(lambda: not any(alive(pid) for pid in pids))
    # An upload whose end never came must not take the place of a file.
    assert [path.name for path in tmp_path.iterdir()] == ["guest.sock"]


def test_released_processes_go_on_unreported(guest: Guest, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    channel = guest.start("sh", "-c", f"read x; head -c 500000 /dev/zero; touch {marker}", flags=STDIN_WANTED)
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    guest.wire.send(RELEASE, channel=channel)
    eventually(marker.exists)
    guest.wire.ping()
    assert guest.wire.outcomes[channel].order == [STARTED]


def test_late_frames_are_ignored(guest: Guest) -> None:
    channel = guest.start("true")
    guest.wait(channel)
    for type_, payload in (
        (STDIN, b"late"),
        (SIGNAL, struct.pack("<IB", 15, 0)),
        (RESIZE, struct.pack("<HH", 1, 1)),
        (ACK, struct.pack("<Q", 0)),
        (KILL, struct.pack("<I", 0)),
        (RELEASE, b""),
    ):
        guest.wire.send(type_, payload, channel)
    guest.wire.ping()
    assert EXIT in guest.wire.outcomes[channel].order


def test_channels_may_start_out_of_order(guest: Guest) -> None:
    for channel in (5, 3, 4):
        guest.channel = channel - 1
        assert guest.run("echo", str(channel)).stdout == b"%d\n" % channel
    guest.channel = 2
    guest.start("true")
    assert b"channel" in closed_with_problem(guest)


@pytest.mark.parametrize(
    "offence",
    [
        lambda g: g.wire.send_raw(struct.pack("<IIBBH", 262145, 0, PING, 0, 0)),
        lambda g: g.wire.send_raw(struct.pack("<IIBBH", 8, 0, PING, 0, 1) + bytes(8)),
        lambda g: g.wire.send(PING, bytes(8), flags=1),
        lambda g: g.wire.send(PING, bytes(7)),
        lambda g: g.wire.send(0),
        lambda g: g.wire.send(14),
        lambda g: g.wire.send(64),
        lambda g: g.wire.send(255, bytes(100)),
        lambda g: g.wire.send(BOOT, boot_payload()),
        lambda g: g.wire.send(WELCOME, struct.pack("<H", 1)),
        lambda g: g.wire.send(ADOPT, b"x"),
        lambda g: g.wire.send(ADOPT, channel=1),
        lambda g: g.wire.send(START, start_payload(["true"])),
        lambda g: g.wire.send(START, start_payload(["true"]) + b"x", channel=9),
        lambda g: g.wire.send(START, start_payload(["true"])[:-1], channel=9),
        lambda g: g.wire.send(START, start_payload([]), channel=9),
        lambda g: g.wire.send(START, start_payload([b"a\0b"]), channel=9),
        lambda g: g.wire.send(START, start_payload(["true"], flags=16), channel=9),
        lambda g: g.wire.send(START, start_payload(["true"], window=4095), channel=9),
        lambda g: g.wire.send(START, start_payload(["true"], window=(16 << 20) + 1), channel=9),
        lambda g: g.wire.send(START, start_payload(["true"], metadata=bytes(65537)), channel=9),
        lambda g: g.wire.send(START, start_payload(["x"] * 4097), channel=9),
        lambda g: g.wire.send(
            START, start_payload(["true"], env={str(n): "" for n in range(4097)}), channel=9
        ),
        lambda g: g.wire.send(START, start_payload(["true"]), channel=1),
        lambda g: g.wire.send(STDIN, b"x", channel=99),
        lambda g: g.wire.send(ACK, struct.pack("<Q", 1), channel=1),
        lambda g: g.wire.send(RESUME, struct.pack("<Q", 0), channel=1),
        lambda g: g.wire.send(SIGNAL, struct.pack("<IB", 1, 2), channel=1),
        lambda g: [g.wire.send(STDIN, bytes(200000), channel=1) for _ in range(2)],
    ],
)
def test_a_violation_costs_the_link_and_nothing_else(
    guest: Guest, offence: Callable[[Guest], object]
) -> None:
    channel = guest.start("sleep", "1000", flags=STDIN_WANTED)
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    offence(guest)
    assert closed_with_problem(guest)
    (kept,) = guest.accept()
    assert (kept.channel, kept.state) == (channel, 1)
    guest.resume(channel)
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)


@pytest.mark.parametrize("position", [0, 3, 6])
def test_resume_outside_what_is_kept_is_a_violation(guest: Guest, position: int) -> None:
    channel = guest.start("echo", "five")
    guest.wait(channel, release=False)
    guest.wire.send(ACK, struct.pack("<Q", 4), channel)
    guest.wire.ping()
    guest.drop_link()
    (kept,) = guest.accept()
    assert (kept.acked, kept.end) == (5, 5)
    guest.wire.send(RESUME, struct.pack("<Q", position), channel)
    assert closed_with_problem(guest)


def test_a_host_that_does_not_read_stops_neither_reaping_nor_timers(guest: Guest) -> None:
    guest.wire.auto_ack = False
    flood = guest.start("cat", "/dev/zero", window=16 << 20)
    doomed = guest.start("sleep", "1000", timeout=500)
    outcome = guest.wire.outcomes[doomed]
    guest.wire.until(lambda: outcome.pid > 0 and guest.wire.outcomes[flood].pid > 0)
    eventually(lambda: not alive(outcome.pid))
    done = guest.wait(doomed)
    assert done.exit is not None
    assert done.exit.outcome == 3
    guest.wire.auto_ack = True
    guest.wire.send(KILL, struct.pack("<I", 0), flood)
    guest.wire.send(ACK, struct.pack("<Q", guest.wire.outcomes[flood].position), flood)
    guest.wait(flood)


def test_many_answers_are_not_queued_without_bound(guest: Guest) -> None:
    frames = b"".join(struct.pack("<IIBBH", 8, 0, PING, 0, 0) + struct.pack("<Q", n) for n in range(50_000))
    guest.wire.send_raw(frames)
    guest.wire.until(lambda: len(guest.wire.inbox) == 50_000)
    assert [struct.unpack("<Q", f.payload)[0] for f in guest.wire.inbox] == list(range(50_000))


def test_the_secret_is_in_no_child_and_not_dumpable(guest: Guest) -> None:
    channel = guest.start("sleep", "1000")
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    shepherd = int(
        Path(f"/proc/{guest.wire.outcomes[channel].pid}/stat").read_text().rpartition(")")[2].split()[1]
    )
    assert shepherd != guest.process.pid
    if os.geteuid() == 0:
        assert SECRET not in memory_of(shepherd)
        assert SECRET in memory_of(guest.process.pid)
        assert not Path(f"/proc/{guest.process.pid}/environ").read_bytes().strip(b"\0")
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)


def memory_of(pid: int) -> bytes:
    found = bytearray()
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, rights, *_ = line.split()
            begin, end = (int(number, 16) for number in span.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                try:
                    memory.seek(begin)
                    found += memory.read(end - begin)
                except OSError:
                    continue
    return bytes(found)


def test_the_dial_is_tried_until_it_works(tmp_path: Path) -> None:
    with running(tmp_path) as guest:
        channel = guest.start("sleep", "1000")
        guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
        guest.drop_link()
        guest.listen()
        assert guest.listener is not None
        refused, _ = guest.listener.accept()
        refused.close()
        assert [kept.channel for kept in guest.accept()] == [channel]
        guest.resume(channel)
        guest.wire.send(KILL, struct.pack("<I", 0), channel)
        guest.wait(channel)
