"""A server that goes and comes back under running commands."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.e2e.command import Paddock

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.timeout(400)]

COUNT = "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done; exit 4"


def test_a_server_is_started_when_none_runs_and_says_so(alone: Paddock) -> None:
    first = alone.run("sandbox", "list", "-q")
    assert first.returncode == 0
    assert b"paddock: started a server on http://127.0.0.1:" in first.stderr
    again = alone.run("sandbox", "list", "-q")
    assert (again.returncode, again.stderr) == (0, b"")


def test_up_status_and_down(alone: Paddock) -> None:
    assert alone.run("status").returncode == 3
    url = alone.text("up", "--detach").strip()
    assert alone.text("up", "--detach").strip() == url
    told = alone.json("status")
    assert (told["running"], told["url"], told["pid"]) == (True, url, alone.server_pid)
    box = alone.text("sandbox", "create").strip()
    assert alone.run("down").returncode == 0
    assert alone.run("status").returncode == 3
    assert alone.run("down").returncode == 0
    # Its sandboxes live on.
    assert alone.text("sandbox", "list", "-q").split() == [box]
    assert alone.text("exec", box, "--", "echo", "still here") == "still here\n"


def test_two_at_once_start_one_server(alone: Paddock) -> None:
    both = [alone.start("sandbox", "list", "--json", stdin=subprocess.DEVNULL) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, b"[]\n"), err


def test_output_is_whole_over_a_killed_server(alone: Paddock) -> None:
    box = alone.text("sandbox", "create").strip()
    process = alone.start("exec", box, "--", "sh", "-c", COUNT, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    first = process.stdout.readline()
    alone.kill_server()
    alone.text("up", "--detach")
    rest, err = process.communicate(timeout=120)
    assert process.returncode == 4, err
    assert (first + rest).split() == [b"%d" % i for i in range(40)]


def test_input_is_whole_over_a_killed_server(alone: Paddock) -> None:
    box = alone.text("sandbox", "create").strip()
    process = alone.start("exec", "-i", box, "--", "cat")
    assert process.stdin is not None
    assert process.stdout is not None
    data = os.urandom(1 << 20)
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"first\n"
    alone.kill_server()
    process.stdin.write(b"between\n")
    process.stdin.flush()
    alone.text("up", "--detach")
    assert process.stdout.readline() == b"between\n"
    out, err = process.communicate(data, timeout=120)
    assert (process.returncode, out == data) == (0, True), err


def test_a_server_that_cannot_start_says_why(alone: Paddock) -> None:
    done = alone.run("sandbox", "list", env={"PADDOCK_DEFAULT_RUNTIME": "nonsense"})
    assert done.returncode == 1
    assert b"nonsense" in done.stderr
    alone.text("sandbox", "list")


def test_settings_that_make_no_sense_are_usage_errors(alone: Paddock) -> None:
    done = alone.run("up", "--detach", "--host", "0.0.0.0", "--no-auth")
    assert done.returncode == 2
    assert b"loopback" in done.stderr
