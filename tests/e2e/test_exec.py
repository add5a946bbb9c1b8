from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess

import pytest

from tests.e2e.command import Paddock, eventually

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.timeout(400)]


def running(paddock: Paddock, box: str) -> list[str]:
    return [item["id"] for item in paddock.json("execs", box) if item["state"] == "running"]


def test_streams_stay_apart_and_the_exit_code_is_the_commands(paddock: Paddock, box: str) -> None:
    done = paddock.run("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)


def test_a_signal_is_128_and_its_number(paddock: Paddock, box: str) -> None:
    assert paddock.run("exec", box, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_the_commands_own_codes_are_not_ours(paddock: Paddock, box: str) -> None:
    for code in (2, 3, 4, 5):
        done = paddock.run("exec", box, "--", "sh", "-c", f"exit {code}")
        assert (done.returncode, done.stderr) == (code, b"")


def test_our_own_codes(paddock: Paddock, box: str) -> None:
    timed_out = paddock.run("exec", "--timeout", "0.3s", box, "--", "sleep", "100")
    assert timed_out.returncode == 5
    assert b"paddock: " in timed_out.stderr
    missing = paddock.run("exec", "no-such-box", "--", "true")
    assert missing.returncode == 3
    assert missing.stderr.startswith(b"paddock: ")
    denied = paddock.run("--token", "nonsense", "sandbox", "list")
    assert denied.returncode == 4


def test_a_command_that_is_not_there(paddock: Paddock, box: str) -> None:
    done = paddock.run("exec", box, "--", "no-such-command")
    assert done.returncode == 127
    assert b"no-such-command" in done.stderr


def test_any_bytes_pass_both_ways(paddock: Paddock, box: str) -> None:
    data = os.urandom(3 << 20)
    done = paddock.run("exec", "-i", box, "--", "cat", input=data)
    assert done.returncode == 0
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("redirection", ["<&-", "</dev/null"])
def test_stdin_may_be_closed_or_empty(paddock: Paddock, box: str, redirection: str) -> None:
    done = paddock.shell(f"paddock exec -i {box} -- wc -c {redirection}")
    assert (done.returncode, done.stdout.strip()) == (0, b"0"), done


def test_stdin_may_be_a_file(paddock: Paddock, box: str) -> None:
    (paddock.work / "input").write_bytes(b"x" * 100_000)
    done = paddock.shell(f"paddock exec -i {box} -- wc -c <input")
    assert done.stdout.strip() == b"100000"


def test_without_i_stdin_stays_here(paddock: Paddock, box: str) -> None:
    done = paddock.shell(f"(paddock exec {box} -- cat; cat) <<< here")
    assert done.stdout == b"here\n"


def test_a_command_may_end_before_its_input(paddock: Paddock, box: str) -> None:
    done = paddock.run("exec", "-i", box, "--", "head", "-c", "3", input=b"abc" * 1_000_000)
    assert (done.returncode, done.stdout) == (0, b"abc")


def test_a_reader_that_goes_ends_the_command(paddock: Paddock, box: str) -> None:
    done = paddock.shell(f"paddock exec {box} -- yes | head -n 1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == b"y\n141\n"
    eventually(lambda: not running(paddock, box), "yes has ended")


def test_options_reach_the_command(paddock: Paddock, box: str) -> None:
    script = 'pwd; echo "$A-$B"'
    done = paddock.run("exec", "-w", "/tmp", "-e", "A=1", "-e", "B", box, "sh", "-c", script, env={"B": "2"})
    assert done.stdout == b"/tmp\n1-2\n"


def test_one_id_is_one_process(paddock: Paddock, box: str) -> None:
    for _ in range(2):
        paddock.text("exec", "-d", "--id", "only-once-1", box, "--", "sh", "-c", "echo once >>log")
    assert paddock.run("wait", box, "only-once-1").returncode == 0
    assert paddock.text("files", "cat", box, "log") == "once\n"


def test_json_has_everything(paddock: Paddock, box: str) -> None:
    done = paddock.run("exec", "--json", box, "--", "sh", "-c", "echo out; printf '\\377' >&2; exit 3")
    told = json.loads(done.stdout)
    assert done.returncode == 3
    assert (told["exit_code"], told["encoding"], told["stdout"], told["stderr"]) == (
        3,
        "base64",
        "b3V0Cg==",
        "/w==",
    )


def test_an_interrupt_goes_to_the_command(paddock: Paddock, box: str) -> None:
    script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    process = paddock.start("exec", box, "--", "bash", "-c", script, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=90)
    assert (out, process.returncode) == (b"interrupted\n", 9)


def test_a_second_interrupt_cancels_what_ignores_the_first(paddock: Paddock, box: str) -> None:
    script = "trap 'echo ignored' INT; echo ready; while :; do sleep 0.1; done"
    process = paddock.start("exec", box, "--", "bash", "-c", script, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"ignored\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode in (130, 143)
    eventually(lambda: not running(paddock, box), "the command has ended")


def test_a_terminated_exec_cancels_its_command(paddock: Paddock, box: str) -> None:
    process = paddock.start("exec", "-i", box, "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    process.communicate(timeout=90)
    assert process.returncode == 143
    eventually(lambda: not running(paddock, box), "the command has ended")


def test_an_interrupt_passes_input_that_nobody_reads(paddock: Paddock, box: str) -> None:
    (paddock.work / "much").write_bytes(bytes(20 << 20))
    with (paddock.work / "much").open("rb") as much:
        process = paddock.start(
            "exec", "-i", box, "--", "sh", "-c", "echo ready; exec sleep 1000", stdin=much
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
    assert process.returncode == 130


def test_a_background_exec_from_start_to_end(paddock: Paddock, box: str) -> None:
    exec_id = paddock.text(
        "exec", "-d", box, "--", "sh", "-c", "echo out; echo err >&2; exec sleep 1000"
    ).strip()
    assert running(paddock, box) == [exec_id]
    assert paddock.run("wait", box, exec_id, "--timeout", "0.2s").returncode == 5
    paddock.text("kill", box, exec_id)
    assert paddock.run("wait", box, exec_id).returncode == 143
    logs = paddock.run("logs", box, exec_id)
    assert (logs.returncode, logs.stdout, logs.stderr) == (0, b"out\n", b"err\n")
    assert paddock.run("logs", box, "--stream", "stderr").stderr == b"err\n"
    followed = [
        json.loads(line) for line in paddock.text("logs", box, exec_id, "--follow", "--json").splitlines()
    ]
    assert followed[-1]["type"] == "exit"
    attached = paddock.run("attach", box, exec_id)
    assert (attached.returncode, attached.stdout) == (143, b"out\n")


def test_run_leaves_nothing_behind(paddock: Paddock) -> None:
    done = paddock.run("run", "--label", "from=run", "-e", "A=1", "--", "sh", "-c", 'echo "$A"; exit 6')
    assert (done.returncode, done.stdout) == (6, b"1\n")
    assert paddock.json("sandbox", "list", "--all", "--label", "from=run") == []


def test_run_passes_stdin_on(paddock: Paddock) -> None:
    assert paddock.run("run", "-i", "cat", input=b"hello").stdout == b"hello"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_an_ended_run_takes_its_sandbox_along(paddock: Paddock, number: signal.Signals, code: int) -> None:
    label = f"by={number.name.lower()}"
    script = "echo ready; exec sleep 1000"
    process = paddock.start("run", "--label", label, "--", "sh", "-c", script, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    process.communicate(timeout=90)
    assert process.returncode == code
    assert paddock.json("sandbox", "list", "--all", "--label", label) == []


def test_run_may_keep_its_sandbox(paddock: Paddock) -> None:
    done = paddock.run("run", "--keep", "--name", "kept", "true")
    assert done.returncode == 0
    assert b"kept sandbox" in done.stderr
    assert paddock.text("sandbox", "delete", "kept") == "kept\n"
