"""Execs: how a command starts, runs and ends."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guest.driver import (
    DIRECTORY,
    EXEC,
    EXITED,
    KILL,
    KILLED,
    LIMITS,
    NOT_STARTED,
    RELEASE,
    SIGNAL,
    SIGNALED,
    STARTED,
    STDIN_WANTED,
    TIMED_OUT,
    Guest,
    alive,
    eventually,
)


def test_output_streams_exit_code_and_times(guest: Guest) -> None:
    done = guest.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (bytes(done.stdout), bytes(done.stderr)) == (b"out\n", b"err\n")
    assert done.order[0] == STARTED
    assert done.pid > 1
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (EXITED, 3)
    assert (done.exit.end, done.exit.stdout_bytes, done.exit.stderr_bytes) == (8, 4, 4)
    assert 0 < done.exit.started <= done.exit.finished
    assert done.exit.max_rss > 0


def test_a_signal_is_told_from_an_exit_code(guest: Guest) -> None:
    done = guest.run("sh", "-c", "kill -USR1 $$")
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (SIGNALED, signal.SIGUSR1)


def test_environment_directory_and_argv_are_exactly_what_was_asked(guest: Guest, tmp_path: Path) -> None:
    env = {"ONE": "1 \n=x", "PATH": "/usr/bin:/bin"}
    done = guest.run("env", "-0", env=env)
    assert sorted(done.stdout.split(b"\0")[:-1]) == [b"ONE=1 \n=x", b"PATH=/usr/bin:/bin"]
    done = guest.run("sh", "-c", 'pwd; printf "[%s]" "$@"', "sh", "", "a b", b"\xff", cwd=str(tmp_path))
    assert done.stdout == str(tmp_path).encode() + b"\n[][a b][\xff]"


def test_the_search_path_is_that_of_the_new_environment(guest: Guest, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("echo plain $1\n")
    plain.chmod(0o755)
    env = {"PATH": f"/nonexistent:{tmp_path}:/usr/bin:/bin"}
    assert guest.run("tool", env=env).stdout == b"found\n"
    assert guest.run("plain", "word", env=env).stdout == b"plain word\n"
    found = guest.run("true", env={})
    assert found.exit is not None
    assert found.exit.outcome == EXITED
    missing = guest.run("tool")
    assert missing.exit is not None
    assert missing.exit.outcome == NOT_STARTED


@pytest.mark.parametrize(
    ("argv", "options", "stage", "code"),
    [
        (["no-such-program"], {}, EXEC, errno.ENOENT),
        (["/etc/passwd"], {}, EXEC, errno.EACCES),
        (["/etc/passwd/x"], {}, EXEC, errno.ENOTDIR),
        ([""], {}, EXEC, errno.ENOENT),
        (["true"], {"cwd": "/no/such/folder"}, DIRECTORY, errno.ENOENT),
        (["true"], {"cwd": "/etc/passwd"}, DIRECTORY, errno.ENOTDIR),
        (["true"], {"limits": [(99, 1, 1)]}, LIMITS, errno.EINVAL),
        (["true"], {"limits": [(resource.RLIMIT_CORE, 2, 1)]}, LIMITS, errno.EINVAL),
    ],
)
def test_what_cannot_start_says_at_which_stage_and_why(
    guest: Guest, argv: list[str], options: dict[str, Any], stage: int, code: int
) -> None:
    done = guest.run(*argv, **options)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.stage, done.exit.code) == (NOT_STARTED, stage, code)
    assert STARTED not in done.order
    again = guest.run("true")
    assert again.exit is not None
    assert again.exit.code == 0


def test_limits_are_set_for_the_command_alone(guest: Guest) -> None:
    done = guest.run("sh", "-c", "ulimit -n; ulimit -c", limits=[(resource.RLIMIT_NOFILE, 77, 78), (4, 0, 0)])
    assert done.stdout == b"77\n0\n"
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert guest.run("sh", "-c", "ulimit -n").stdout == f"{soft}\n".encode()


@pytest.mark.needs("root")
def test_a_command_runs_as_the_user_asked_for(guest: Guest) -> None:
    script = "id -u; id -g; id -G; echo again >/dev/stdout"
    assert guest.run("sh", "-c", script, uid=12345, gid=54321).stdout == b"12345\n54321\n54321\nagain\n"


def test_a_command_starts_with_default_signals_and_nothing_inherited(guest: Guest) -> None:
    status = guest.run("cat", "/proc/self/status").stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["SigBlk"], 16) == 0
    assert int(fields["SigIgn"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Umask"] == "0022"
    assert guest.run("sh", "-c", "ls /proc/$$/fd").stdout.split() == [b"0", b"1", b"2"]


def test_a_command_leads_a_session_of_its_own(guest: Guest) -> None:
    done = guest.run("sh", "-c", "cut -d' ' -f1,5,6 /proc/self/stat; echo $$")
    (_, group, session), shell = done.stdout.split()[:3], done.stdout.split()[3]
    assert group == session == shell


def test_commands_are_first_in_line_for_the_oom_killer(guest: Guest) -> None:
    assert guest.run("cat", "/proc/self/oom_score_adj").stdout == b"500\n"
    own = Path(f"/proc/{guest.process.pid}/oom_score_adj").read_text()
    assert own == Path("/proc/self/oom_score_adj").read_text()


def test_stdin_is_empty_unless_wanted(guest: Guest) -> None:
    assert guest.run("wc", "-c").stdout == b"0\n"


def test_stdin_carries_any_bytes_with_back_pressure(guest: Guest) -> None:
    data = os.urandom(3_000_000)
    done = guest.run("cat", stdin=data)
    assert done.stdout == data


def test_a_process_that_does_not_read_its_stdin_does_not_stop_the_host(guest: Guest) -> None:
    channel = guest.start("sleep", "1000", flags=STDIN_WANTED)
    guest.feed(channel, b"x" * 262144, end=False)
    guest.wire.ping()
    outcome = guest.wire.outcomes[channel]
    # A pipe takes 64 KiB; nothing beyond what it took may be credited.
    assert outcome.credit <= 65536
    assert guest.run("echo", "hi").stdout == b"hi\n"
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)


def test_stdin_of_a_process_that_closed_it_is_dropped(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "exec <&-; echo closed; sleep 1000", flags=STDIN_WANTED)
    guest.wire.until(lambda: guest.wire.outcomes[channel].stdout == b"closed\n")
    guest.feed(channel, b"x" * 1_000_000)
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)


def test_output_waits_for_acknowledgement(guest: Guest) -> None:
    guest.wire.auto_ack = False
    channel = guest.start("sh", "-c", "head -c 1000000 /dev/zero; echo end >&2", window=8192)
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: outcome.position == 8192)
    guest.wire.ping()
    assert outcome.position == 8192
    assert outcome.exit is None
    guest.wire.auto_ack = True
    guest.wire.send(8, struct.pack("<Q", 8192), channel)
    guest.wait(channel)
    assert len(outcome.stdout) == 1_000_000
    assert outcome.stderr == b"end\n"


def test_a_flood_of_output_arrives_whole(guest: Guest) -> None:
    script = (
        "i=0; while [ $i -lt 300 ]; do echo $i; echo e$i >&2; i=$((i+1)); done; head -c 20000000 /dev/zero"
    )
    done = guest.run("sh", "-c", script, window=1 << 20)
    head = b"".join(b"%d\n" % i for i in range(300))
    assert done.stdout[: len(head)] == head
    assert len(done.stdout) == len(head) + 20_000_000
    assert done.stderr == b"".join(b"e%d\n" % i for i in range(300))


def test_an_exec_ends_with_its_own_process_and_not_with_its_children(guest: Guest, tmp_path: Path) -> None:
    go, wrote = tmp_path / "go", tmp_path / "wrote"
    child = tmp_path / "child.sh"
    child.write_text(
        f"while [ ! -e {go} ]; do sleep 0.02; done; head -c 300000 /dev/zero; echo $$ >{wrote}; sleep 1000"
    )
    channel = guest.start("sh", "-c", f"sh {child} & echo main")
    done = guest.wait(channel, release=False)
    assert done.stdout == b"main\n"
    go.touch()
    # More than a pipe holds: it is read and dropped, and the child neither blocks nor dies.
    eventually(lambda: wrote.exists() and wrote.read_text().endswith("\n"))
    survivor = int(wrote.read_text())
    assert guest.wire.outcomes[channel].position == 5
    guest.wire.send(RELEASE, channel=channel)
    guest.wire.ping()
    assert alive(survivor)
    assert guest.stop() == 0
    eventually(lambda: not alive(survivor))


@pytest.mark.parametrize("grace", [0, 5000])
def test_kill_ends_the_whole_tree_and_what_daemonised_itself(
    guest: Guest, tmp_path: Path, grace: int
) -> None:
    pids = tmp_path / "pids"
    script = (
        f"echo $$ >>{pids}; setsid sh -c 'echo $$ >>{pids}; sleep 1000' & "
        f"(setsid sh -c 'sh -c \"echo \\$\\$ >>{pids}; sleep 1000\" &' &) ; sleep 1000"
    )
    channel = guest.start("sh", "-c", script)
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    tree = [int(pid) for pid in pids.read_text().split()]
    guest.wire.send(KILL, struct.pack("<I", grace), channel)
    done = guest.wait(channel)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (KILLED, -(signal.SIGTERM if grace else signal.SIGKILL))
    assert not any(alive(pid) for pid in tree)


def test_what_ignores_sigterm_is_killed_after_the_grace(guest: Guest) -> None:
    channel = guest.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
    guest.wire.until(lambda: guest.wire.outcomes[channel].stdout == b"ready\n")
    guest.wire.send(KILL, struct.pack("<I", 100), channel)
    done = guest.wait(channel)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (KILLED, -signal.SIGKILL)


def test_a_fork_bomb_can_be_killed(guest: Guest) -> None:
    bomb = "n() { while :; do (sleep 0.2 & ) ; done; }; echo ready; n & n & n"
    channel = guest.start("sh", "-c", bomb)
    guest.wire.until(lambda: guest.wire.outcomes[channel].stdout == b"ready\n")
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    done = guest.wait(channel)
    assert done.exit is not None
    assert done.exit.outcome == KILLED
    assert guest.run("echo", "alive").stdout == b"alive\n"


def test_a_timeout_kills_the_tree_and_keeps_the_output(guest: Guest) -> None:
    done = guest.run("sh", "-c", "echo partial; sleep 1000 & sleep 1000", timeout=200)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code, bytes(done.stdout)) == (
        TIMED_OUT,
        -signal.SIGKILL,
        b"partial\n",
    )


def test_a_timeout_with_grace_lets_the_command_say_its_last_word(guest: Guest) -> None:
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    done = guest.run("sh", "-c", script, timeout=1000, grace=30000)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code, bytes(done.stdout)) == (TIMED_OUT, 5, b"ready\nbye\n")


@pytest.mark.parametrize("scope", [0, 1])
def test_signals_reach_the_group_or_the_tree(guest: Guest, scope: int) -> None:
    inner = "trap 'echo inner' USR1; echo ready; while :; do sleep 0.02; done"
    script = f"trap 'echo outer' USR1; setsid sh -c \"{inner}\" & while :; do sleep 0.02; done"
    channel = guest.start("sh", "-c", script)
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: b"ready" in outcome.stdout)
    guest.wire.send(SIGNAL, struct.pack("<IB", signal.SIGUSR1, scope), channel)
    guest.wire.until(lambda: b"outer" in outcome.stdout and (scope == 0 or b"inner" in outcome.stdout))
    guest.wire.send(SIGNAL, struct.pack("<IB", 99, scope), channel)
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)
    assert (b"inner" in outcome.stdout) == (scope == 1)


def test_a_killed_shepherd_ends_its_exec_and_its_orphans(guest: Guest, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! >>{pids}; echo $$ >>{pids}; kill -9 $PPID; sleep 1000"
    done = guest.run("sh", "-c", script)
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (SIGNALED, signal.SIGKILL)
    eventually(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))
    assert guest.run("echo", "on").stdout == b"on\n"


def test_a_stopped_shepherd_goes_on(guest: Guest) -> None:
    done = guest.run("sh", "-c", "kill -STOP $PPID; sleep 0.1; exit 4")
    assert done.exit is not None
    assert (done.exit.outcome, done.exit.code) == (EXITED, 4)


def test_many_execs_at_once(guest: Guest) -> None:
    channels = [guest.start("sh", "-c", f"echo {n}; sleep 0.1; exit {n}") for n in range(60)]
    for n, channel in enumerate(channels):
        done = guest.wait(channel)
        assert done.exit is not None
        assert (done.exit.code, bytes(done.stdout)) == (n, b"%d\n" % n)


def test_nothing_is_left_in_the_guest_when_all_is_released(guest: Guest) -> None:
    fds = Path(f"/proc/{guest.process.pid}/fd")
    guest.wire.ping()
    before = len(list(fds.iterdir()))
    for _ in range(30):
        guest.run("sh", "-c", "echo a; echo b >&2", stdin=b"c")
        guest.run("no-such-program")
    guest.wire.ping()
    eventually(lambda: len(list(fds.iterdir())) == before)


def test_an_idle_guest_is_small(guest: Guest) -> None:
    guest.run("head", "-c", "5000000", "/dev/zero", window=4 << 20)

    def private() -> int:
        lines = Path(f"/proc/{guest.process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

    eventually(lambda: private() < 200)
