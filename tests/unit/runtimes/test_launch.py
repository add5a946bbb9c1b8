"""The launcher, `guest/csrc/launch`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paddock.guest.build import launch_binary

pytestmark = pytest.mark.needs("cc")


def launch(*args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(launch_binary()), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        **kwargs,
    )
    return done


def test_the_program_gets_its_name_and_no_environment() -> None:
    done = launch("-k", "2", "--", "/bin/sh", "my-name", "-c", "echo $0; /usr/bin/env", env={"SECRET": "x"})
    assert done.stdout.splitlines()[0] == "my-name"
    assert "SECRET" not in done.stdout


def test_descriptors_above_the_last_are_closed() -> None:
    with open(os.devnull) as one, open(os.devnull) as two:
        fds = sorted((one.fileno(), two.fileno()))
        done = launch("-k", str(fds[0]), "--", "/bin/ls", "ls", "/proc/self/fd", pass_fds=fds)
    shown = set(map(int, done.stdout.split()))
    assert fds[0] in shown
    # ls opens the folder itself, at the lowest number that is free.
    assert len([fd for fd in shown if fd > fds[0]]) <= 1


def test_limits_and_session() -> None:
    limits = "ulimit -n; ulimit -Hn; ulimit -c"
    script = f"{limits}; cut -d' ' -f5,6 /proc/$$/stat; echo $$; cat /proc/$$/oom_score_adj; umask"
    lines = launch("-f", "50", "-o", "300", "-k", "2", "--", "/bin/sh", "sh", "-c", script).stdout.split()
    assert lines[:3] == ["50", "50", "0"]
    assert lines[3] == lines[4] == lines[5], "leads a group and a session of its own"
    assert lines[6:] == ["300", "0022"]


def test_signals_are_as_for_a_fresh_process() -> None:
    # Python ignores SIGPIPE, and so would everything in a sandbox.
    done = launch(
        "-k",
        "2",
        "--",
        "/bin/grep",
        "grep",
        "-E",
        "SigIgn|SigBlk",
        "/proc/self/status",
        restore_signals=False,
    )
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["0" * 16] * 2


@pytest.mark.needs("root")
def test_the_user_is_changed_for_good() -> None:
    done = launch(
        "-u",
        "70000",
        "-k",
        "2",
        "--",
        "/bin/sh",
        "sh",
        "-c",
        "grep -E '^(Uid|Gid|Groups|CapEff)' /proc/self/status",
    )
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in done.stdout.splitlines()}
    assert fields["Uid"] == fields["Gid"] == ["70000"] * 4
    assert set(fields["Groups"]) <= {"70000"}
    assert int(fields["CapEff"][0], 16) == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-g", "/nonexistent/tasks", "--", "/bin/true", "true"), "/nonexistent/tasks"),
        (("-u", "many", "--", "/bin/true", "true"), "many"),
        (("--", "/nonexistent", "x"), "/nonexistent"),
        (("--", "/bin/true"), "no program"),
        ((), "no program"),
    ],
)
def test_a_step_that_fails_ends_it(args: tuple[str, ...], said: str) -> None:
    done = launch(*args)
    assert done.returncode == 125
    assert said in done.stderr


def test_a_cgroup_is_joined_before_anything_else(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.touch()
    assert launch("-g", str(tasks), "-k", "2", "--", "/bin/true", "true").returncode == 0
    assert tasks.read_text() == "0"
