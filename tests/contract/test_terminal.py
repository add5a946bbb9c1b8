"""Execs on a terminal."""

from __future__ import annotations

import pytest

from paddock.errors import Conflict
from tests.contract.stage import scenario
from tests.contract.world import World

SIZE = {"rows": 33, "columns": 99}


@scenario
async def test_it_is_a_terminal(world: World) -> None:
    box = await world.shared()
    done = await world.sh(box, "test -t 0 -a -t 1 -a -t 2 && stty size; tty; echo $TERM", terminal=SIZE)
    lines = done.stdout.split("\r\n")
    assert lines[0] == "33 99"
    assert lines[1].startswith("/dev/pts/")
    assert lines[2] == "xterm-256color"
    assert (done.terminal, done.stderr) == (True, "")
    assert (await world.sh(box, "test -t 0 || test -t 1")).exit_code == 1


@scenario
async def test_both_streams_are_one(world: World) -> None:
    box = await world.shared()
    done = await world.sh(box, "echo one; echo two >&2", terminal=SIZE)
    assert (done.stdout, done.stderr) == ("one\r\ntwo\r\n", "")


@scenario
async def test_resize(world: World) -> None:
    box = await world.shared()
    script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done"
    started = await world.start_sh(box, script, terminal=SIZE)
    await world.until_output(box, started.id, b"up")
    await world.service.resize_exec(box, started.id, 50, 120)
    await world.wait(box, started.id)
    assert b"50 120\r\n" in await world.text(box, started.id)
    plain = await world.start_sh(box, "sleep 1000")
    with pytest.raises(Conflict) as caught:
        await world.service.resize_exec(box, plain.id, 50, 120)
    assert caught.value.reason == "no_terminal"
    await world.service.cancel_exec(box, plain.id, grace=0)
    await world.wait(box, plain.id)


@scenario
async def test_control_c(world: World) -> None:
    box = await world.shared()
    script = "trap 'echo interrupted; exit 8' INT; echo up; while :; do sleep 0.05; done"
    started = await world.start_sh(box, script, terminal=SIZE)
    await world.until_output(box, started.id, b"up")
    await world.service.write_stdin(box, started.id, b"\x03")
    done = await world.wait(box, started.id)
    assert done.exit_code == 8
    assert b"interrupted" in await world.text(box, started.id)


@scenario
async def test_end_of_input(world: World) -> None:
    box = await world.shared()
    started = await world.start_exec(box, "cat", terminal=SIZE)
    await world.service.write_stdin(box, started.id, b"typed\n")
    await world.until_output(box, started.id, b"typed\r\ntyped\r\n")
    await world.service.write_stdin(box, started.id, b"\x04")
    assert (await world.wait(box, started.id)).exit_code == 0
    started = await world.start_exec(box, "cat", terminal=SIZE)
    await world.service.write_stdin(box, started.id, b"again\n")
    await world.until_output(box, started.id, b"again\r\nagain\r\n")
    await world.service.close_stdin(box, started.id)
    assert (await world.wait(box, started.id)).exit_code == 0


@scenario
async def test_an_interactive_shell(world: World) -> None:
    box = await world.shared()
    started = await world.start_exec(box, "sh", "-i", terminal=SIZE, environment={"PS1": "ready> "})
    await world.until_output(box, started.id, b"ready> ")
    await world.service.write_stdin(box, started.id, b"echo $((6*7)); exit 6\n")
    assert (await world.wait(box, started.id)).exit_code == 6
    assert b"42\r\n" in await world.text(box, started.id)
