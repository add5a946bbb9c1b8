"""The guest as PID 1 of a real sandbox."""

from __future__ import annotations

import errno
import json
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.guest.build import guest_binary
from tests.unit.guest.driver import (
    KILL,
    KILLED,
    NOT_STARTED,
    SIGNALED,
    TERMINAL,
    USER,
    Guest,
    eventually,
    running,
)

pytestmark = pytest.mark.needs("bwrap")


@pytest.fixture
def init(tmp_path: Path) -> Iterator[Guest]:
    system = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
    # The checkout, too, may lie below /tmp.
    binary = str(guest_binary())
    shared = ("--bind", str(tmp_path), str(tmp_path), "--ro-bind", binary, binary)
    prefix = ("bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", *system, *shared, "--")
    with running(tmp_path, prefix=prefix) as guest:
        yield guest


def programs(init: Guest) -> bytes:
    return bytes(init.run("sh", "-c", "cat /proc/[0-9]*/comm").stdout)


def test_it_is_pid_1_and_reaps(init: Guest) -> None:
    done = init.run("sh", "-c", "cut -d' ' -f2 /proc/1/stat; (sh -c 'sleep 0.1' & ); exit 3")
    assert done.stdout == b"(paddock-guest)\n"
    assert done.exit is not None
    assert done.exit.code == 3
    # Nothing but itself, a shepherd and the processes of this very look.
    eventually(lambda: programs(init).count(b"paddock-guest") == 2 and b"sleep" not in programs(init))
    states = init.run("sh", "-c", "cat /proc/[0-9]*/stat | cut -d' ' -f3").stdout.split()
    assert b"Z" not in states


def test_it_cannot_be_ended_or_stopped_from_inside(init: Guest) -> None:
    script = "for s in KILL TERM STOP INT HUP ABRT SEGV USR1 TSTP RTMIN; do kill -$s 1; done; echo still"
    assert init.run("bash", "-c", script).stdout == b"still\n"
    assert init.run("echo", "here").stdout == b"here\n"


def test_nothing_of_the_host_is_handed_on(init: Guest) -> None:
    assert init.run("cat", "/proc/1/environ").stdout.strip(b"\0") == b""
    assert init.run("sh", "-c", "ls /proc/$$/fd").stdout.split() == [b"0", b"1", b"2"]


def test_orphans_of_a_killed_shepherd_are_killed(init: Guest) -> None:
    done = init.run("sh", "-c", "setsid sleep 1000 & kill -9 $PPID; sleep 1000")
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (SIGNALED, signal.SIGKILL)
    eventually(lambda: b"sleep" not in programs(init))


def test_a_fork_bomb_inside_is_killed(init: Guest) -> None:
    # Bounded here, since this sandbox has no limit of its own: 32 processes that fork without end.
    bomb = "b() { if [ $1 -gt 0 ]; then b $(($1 - 1)) & b $(($1 - 1)) & fi; while :; do (:); done; }"
    channel = init.start("sh", "-c", f"{bomb}; echo go; b 4")
    init.wire.until(lambda: init.wire.outcomes[channel].stdout.startswith(b"go"))
    init.wire.send(KILL, struct.pack("<I", 0), channel)
    done = init.wait(channel)
    assert done.exit is not None
    assert done.exit.outcome == KILLED
    eventually(lambda: programs(init).count(b"paddock-guest") == 2)


def test_terminals_and_builtins_work_inside(init: Guest) -> None:
    assert init.run("tty", flags=TERMINAL).stdout.startswith(b"/dev/pts/")
    found = json.loads(init.builtin("write", "/tmp/new", "-", "0", "0", "-", stdin=b"12345").stdout)
    assert found["size"] == 5
    assert init.builtin("read", "/tmp/new", "1", "3").stdout == b"234"


def test_a_user_that_does_not_exist_inside_cannot_be_taken(init: Guest) -> None:
    done = init.run("true", uid=12345, gid=12345)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.stage, done.exit.code) == (NOT_STARTED, USER, errno.EINVAL)


def test_it_dials_the_host_and_nobody_inside(init: Guest, tmp_path: Path) -> None:
    path, heard = tmp_path / "guest.sock", tmp_path / "heard"
    impostor = (
        "import socket, pathlib\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen(); print('up', flush=True)\n"
        "c, _ = s.accept(); data = c.recv(1000)\n"
        f"s.close(); pathlib.Path({str(heard)!r}).write_text(repr(data) + '.')\n"
    )
    channel = init.start("python3", "-c", impostor, env={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    outcome = init.wire.outcomes[channel]
    init.wire.until(lambda: outcome.stdout == b"up\n" or outcome.exit is not None)
    if outcome.exit is not None:
        pytest.skip("missing ability: python3 inside the sandbox")
    init.drop_link()
    # It connects, sees a process of its own namespace at the other end, and leaves without a word.
    eventually(lambda: heard.exists() and heard.read_text().endswith("."))
    assert heard.read_text() == "b''."
    path.unlink()
    (kept,) = init.accept()
    assert kept.channel == channel
    init.resume(channel)
    init.wait(channel)


def test_shutdown_ends_the_sandbox(init: Guest) -> None:
    init.start("sh", "-c", "trap '' TERM; sleep 1000")
    init.start("setsid", "sleep", "1000")
    assert init.stop(grace=50) == 0
