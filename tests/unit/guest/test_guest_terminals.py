"""Execs on a terminal."""

from __future__ import annotations

import signal
import struct

from tests.unit.guest.driver import KILL, KILLED, RESIZE, SIGNAL, STDIN, TERMINAL, Guest, alive, eventually


def test_a_terminal_is_the_controlling_one_of_a_new_session(guest: Guest) -> None:
    done = guest.run(
        "sh", "-c", "tty; echo yes >/dev/tty; echo err >&2; stty size", flags=TERMINAL, rows=11, columns=77
    )
    first, *rest = done.stdout.decode().splitlines()
    assert first.startswith("/dev/pts/")
    assert rest == ["yes", "err", "11 77"]
    assert done.stderr == b""


def test_resize_reaches_the_foreground_process(guest: Guest) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done"
    channel = guest.start("sh", "-c", script, flags=TERMINAL)
    guest.wire.until(lambda: b"ready" in guest.wire.outcomes[channel].stdout)
    guest.wire.send(RESIZE, struct.pack("<HH", 50, 132), channel)
    assert guest.wait(channel).stdout == b"ready\r\n50 132\r\n"


def test_end_of_input_is_the_terminals_own(guest: Guest) -> None:
    assert guest.run("cat", flags=TERMINAL, stdin=b"line\n").stdout == b"line\r\nline\r\n"
    # A line that was not ended is handed over first; the second character then ends the input.
    assert guest.run("cat", flags=TERMINAL, stdin=b"open").stdout == b"openopen"


def test_interrupt_by_key_and_by_signal(guest: Guest) -> None:
    for interrupt in ("key", "signal"):
        channel = guest.start(
            "sh",
            "-c",
            "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done",
            flags=TERMINAL,
        )
        guest.wire.until(lambda c=channel: b"ready" in guest.wire.outcomes[c].stdout)  # type: ignore[misc]
        if interrupt == "key":
            guest.wire.send(STDIN, b"\x03", channel)
        else:
            guest.wire.send(SIGNAL, struct.pack("<IB", signal.SIGINT, 0), channel)
        done = guest.wait(channel)
        assert b"caught" in done.stdout
        assert done.exit is not None
        assert done.exit.code == 3


def test_the_last_output_of_a_terminal_is_not_lost(guest: Guest) -> None:
    for _ in range(10):
        done = guest.run(
            "sh", "-c", "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done", flags=TERMINAL
        )
        assert done.stdout == b"".join(b"line %d\r\n" % i for i in range(500))


def test_what_holds_a_terminal_open_does_not_hold_the_exec(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "trap '' HUP; sleep 1000 & echo $!", flags=TERMINAL)
    done = guest.wait(channel)
    assert done.exit is not None
    assert done.exit.code == 0
    survivor = int(done.stdout)
    assert alive(survivor)
    assert guest.stop() == 0
    eventually(lambda: not alive(survivor))


def test_kill_on_a_terminal(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "echo ready; trap '' HUP TERM; cat; sleep 1000", flags=TERMINAL)
    guest.wire.until(lambda: b"ready" in guest.wire.outcomes[channel].stdout)
    guest.wire.send(KILL, struct.pack("<I", 50), channel)
    done = guest.wait(channel)
    assert done.exit is not None
    assert done.exit.outcome == KILLED
    assert done.stdout == b"ready\r\n"
