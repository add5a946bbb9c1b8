"""Execs: what they are started with, and how they end."""

from __future__ import annotations

import asyncio
import signal

import pytest

from paddock.errors import Conflict, Invalid, Timeout
from paddock.sandboxes.model import ExecState
from paddock.sandboxes.requests import ExecRequest
from tests.contract.stage import scenario
from tests.contract.world import World


@scenario
async def test_exit_codes(world: World) -> None:
    box = await world.shared()
    for code in (0, 1, 7, 255):
        done = await world.sh(box, f"exit {code}")
        assert done.exit_code == code
        assert done.state == ("completed" if code == 0 else "failed")
        assert (done.signal, done.reason, done.error) == (None, None, None)
        assert done.started_at is not None
        assert done.finished_at is not None
        assert done.created_at - 1 <= done.started_at <= done.finished_at


@scenario
async def test_a_signal_ends_it(world: World) -> None:
    box = await world.shared()
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        done = await world.sh(box, f"kill -{number.value} $$")
        assert (done.state, done.signal, done.exit_code) == ("failed", number, 128 + number)


@scenario
async def test_a_command_that_is_not_there(world: World) -> None:
    box = await world.shared()
    for command in ("no-such-command", "/no/such/command"):
        done = await world.run(box, command)
        assert (done.state, done.exit_code, done.reason) == ("failed", 127, "command_not_found")
        assert done.error is not None
        assert command in done.error


@scenario
async def test_a_file_that_is_no_program(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    await world.sh(box, f"echo '#!/bin/sh' > {folder}/plain; mkdir {folder}/sub")
    for command in (f"./{folder}/plain", f"./{folder}/sub"):
        done = await world.run(box, command)
        assert (done.exit_code, done.reason) == (126, "not_executable"), command


@scenario
async def test_cwd(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    workspace = world.service.get(box).workspace
    assert (await world.run(box, "pwd")).stdout == f"{workspace}\n"
    assert (await world.run(box, "pwd", cwd=folder)).stdout == f"{workspace}/{folder}\n"
    assert (await world.run(box, "pwd", cwd="/usr")).stdout == "/usr\n"
    done = await world.run(box, "pwd", cwd="missing")
    assert (done.state, done.exit_code, done.reason) == ("failed", 126, "bad_cwd")
    assert "missing" in (done.error or "")


@scenario
async def test_environment(world: World) -> None:
    made = await world.create(environment={"A": "sandbox", "B": "sandbox", "ODD": "a=b\n'ü"})
    done = await world.sh(made.id, 'echo "$A $B"; printf %s "$ODD"', environment={"B": "exec"})
    assert done.stdout == "sandbox exec\na=b\n'ü"
    names = {
        line.split("=")[0] for line in (await world.run(made.id, "env")).stdout.splitlines() if "=" in line
    }
    assert {"PATH", "HOME", "USER", "LANG", "PADDOCK_SANDBOX_ID"} <= names
    assert not {"PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "SUDO_USER", "TERM"} & names
    home = world.service.get(made.id).home
    assert (await world.sh(made.id, "cd && pwd && touch ~/x")).stdout == f"{home}\n"


@scenario
async def test_arguments_arrive_as_they_are(world: World) -> None:
    box = await world.shared()
    words = ["", " ", "a b", "*", "'\"$`\\", "-n", "\n", "ü☃", "x" * 100_000]
    done = await world.run(box, "printf", "%s|", *words)
    assert done.stdout == "".join(f"{word}|" for word in words)
    command = ["printf", "%s|", *(str(n) for n in range(4000))]
    assert (await world.run(box, *command)).stdout == "".join(f"{n}|" for n in range(4000))


@scenario
async def test_only_the_sandbox_user(world: World) -> None:
    box = await world.shared()
    assert (await world.run(box, "true", user="paddock")).exit_code == 0
    with pytest.raises(Invalid) as caught:
        await world.run(box, "true", user="root")
    assert caught.value.reason == "user_unknown"
    with pytest.raises(Invalid) as caught:
        await world.run(box, "true", timeout=10_000_000)
    assert caught.value.reason == "timeout_too_long"


@scenario
async def test_in_the_background(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, "read line; echo got $line; exit 3", open_stdin=True)
    assert started.state is ExecState.RUNNING
    with pytest.raises(Timeout):
        await world.service.wait_exec(box, started.id, 0.01)
    assert (await world.service.stats(box)).execs_running == 1
    running = await world.service.list_execs(box, states=[ExecState.RUNNING])
    assert [one.id for one in running] == [started.id]
    await world.service.write_stdin(box, started.id, b"word\n")
    done = await world.wait(box, started.id)
    assert (done.state, done.exit_code, done.stdout_bytes, done.stdin_bytes) == ("failed", 3, 9, 5)
    assert await world.text(box, started.id) == b"got word\n"
    assert (await world.service.get_exec(box, started.id)).exit_code == 3


@scenario
async def test_execs_are_listed_newest_first(world: World) -> None:
    made = await world.create()
    ids = [(await world.sh(made.id, f"exit {n}")).id for n in range(5)]
    found = await world.service.list_execs(made.id)
    assert [one.id for one in found] == ids[::-1]
    assert [one.exit_code for one in found] == [4, 3, 2, 1, 0]
    assert [one.id for one in await world.service.list_execs(made.id, limit=2)] == ids[:2:-1]
    completed = await world.service.list_execs(made.id, states=[ExecState.COMPLETED])
    assert [one.id for one in completed] == ids[:1]
    assert found[0].usage is not None


@scenario
async def test_children_that_hold_the_output_do_not_hold_the_end(world: World) -> None:
    box = await world.shared()
    done = await world.sh(box, "sleep 1000 & echo first; echo $!")
    first, pid = done.stdout.split()
    assert (done.exit_code, first) == (0, "first")
    # It lives on, and can write without dying of it.
    assert (await world.sh(box, f"kill -0 {pid} && kill {pid}")).exit_code == 0


@scenario
async def test_one_id_starts_one_process(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    request = ExecRequest(
        id=f"once-{folder}", command=["sh", "-c", f"echo x >> {folder}/count; sleep 0.2; exit 4"]
    )
    results = await asyncio.gather(*(world.service.run_exec(box, request) for _ in range(10)))
    assert {result.id for result in results} == {request.id}
    assert {result.exit_code for result in results} == {4}
    assert (await world.service.run_exec(box, request)).exit_code == 4
    assert (await world.sh(box, f"cat {folder}/count")).stdout == "x\n"
    other = await world.create()
    with pytest.raises(Conflict) as caught:
        await world.service.run_exec(other.id, request)
    assert caught.value.reason == "exec_id_taken"


@scenario
async def test_many_at_once(world: World) -> None:
    box = await world.shared()
    results = await asyncio.gather(*(world.sh(box, f"echo {n}; exit {n}") for n in range(50)))
    assert [(result.stdout, result.exit_code) for result in results] == [(f"{n}\n", n) for n in range(50)]


@scenario
async def test_a_caller_who_gives_up_takes_the_process_along(world: World) -> None:
    made = await world.create()
    request = ExecRequest(command=["sh", "-c", "trap '' TERM; sleep 1000"])
    task = asyncio.create_task(world.service.run_exec(made.id, request))
    [running] = await world.found(lambda: world.service.list_execs(made.id))
    await world.until(lambda: running.pid)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    done = await world.wait(made.id, running.id)
    assert done.state is ExecState.CANCELED


@scenario
async def test_a_long_command_is_kept_whole(world: World) -> None:
    box = await world.shared()
    words = ["y" * 9000] * 12
    done = await world.run(box, "sh", "-c", 'echo "$#"', "sh", *words)
    assert done.stdout == "12\n"
    kept = await world.service.get_exec(box, done.id)
    assert kept.command == ["sh", "-c", 'echo "$#"', "sh", *words]
