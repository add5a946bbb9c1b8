"""The guest's secret, its socket, and the processes above a command."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from paddock.sandboxes.model import ExecState, State
from tests.contract.stage import scenario
from tests.contract.world import World
from tests.security.gather import FOLDER, PYTHON

pytestmark = pytest.mark.needs("system-python")


def _memory_has(pid: int, wanted: bytes) -> bool:
    """Whether it is anywhere in what a process has mapped."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            first, _, last = line.split()[0].partition("-")
            if not line.split()[1].startswith("r") or "[v" in line:
                continue
            try:
                memory.seek(int(first, 16))
                if wanted in memory.read(int(last, 16) - int(first, 16)):
                    return True
            except OSError:
                continue
    return False


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@scenario
async def test_the_secret_is_in_the_guest_alone(world: World) -> None:
    """Not in the shepherd that was forked from it, nor in the command: looked for from outside, by root."""
    world.need(os.geteuid() == 0, "root")
    box = await world.create()
    held = world.service.boxes[box.id]
    assert held.instance is not None
    secret = bytes.fromhex(held.record.secret)
    guest = held.instance.pid
    await world.start_exec(box.id, "sleep", "1000")
    await world.until(lambda: [_children(pid) for pid in _children(guest)] not in ([], [[]]))
    (shepherd,) = _children(guest)
    (command,) = _children(shepherd)
    assert _memory_has(guest, secret), "the search itself does not work"
    assert not _memory_has(shepherd, secret)
    assert not _memory_has(command, secret)


@scenario
async def test_there_is_no_socket_while_the_server_is_linked(world: World) -> None:
    done = await world.sh(await world.shared(), "ls -A /run/paddock")
    assert done.stdout == "init\n"


@scenario
async def test_nobody_takes_the_guests_place(world: World) -> None:
    """Strangers dial while the server waits for the guest, some of them even with the right secret."""
    box = await world.create()
    await world.write(box.id, "stranger.py", (FOLDER / "stranger.py").read_bytes())
    held = world.service.boxes[box.id]
    assert held.instance is not None
    guest = held.instance.pid
    strangers = [
        await world.start_exec(
            box.id, PYTHON, "-B", "stranger.py", environment={"SECRET": held.record.secret}
        )
        for _ in range(2)
    ]
    for stranger in strangers:
        await world.until_output(box.id, stranger.id, b"ready")
    await world.crash()
    os.kill(guest, signal.SIGSTOP)
    try:
        await world.start()
        other = await world.create()
        for _ in range(5):
            assert (await world.run(other.id, "echo", "fine")).stdout == "fine\n"
        assert world.service.boxes[box.id].guest is None, "somebody was taken for the guest"
    finally:
        os.kill(guest, signal.SIGCONT)
    await world.until(lambda: world.service.boxes[box.id].guest is not None)
    await world.run(box.id, "touch", "stop")
    connected = 0
    for stranger in strangers:
        assert (await world.wait(box.id, stranger.id)).exit_code == 0
        said = (await world.text(box.id, stranger.id)).removeprefix(b"ready\n")
        found = json.loads(said)
        assert found["answered"] == 0, found
        connected += found["connected"]
    assert connected > 0, "they never reached the socket: that proves nothing"


@scenario
async def test_a_killed_shepherd_ends_its_exec_and_nothing_else(world: World) -> None:
    box = await world.create()
    other = await world.start_sh(box.id, "echo up; read word; echo $word", open_stdin=True)
    await world.until_output(box.id, other.id, b"up\n")
    done = await world.sh(box.id, "setsid sleep 1000 & echo said; kill -KILL $PPID; sleep 1000")
    assert (done.stdout, done.state) == ("said\n", ExecState.FAILED)

    async def nothing_is_left() -> bool:
        return (await world.sh(box.id, "grep -l ^sleep /proc/[0-9]*/comm; true")).stdout == ""

    await world.found(nothing_is_left)
    for number in ("TERM", "SEGV", "STOP", "HUP"):
        done = await world.sh(box.id, f"kill -{number} $PPID; sleep 0.1; exit 7")
        assert done.exit_code == 7, number
    await world.service.write_stdin(box.id, other.id, b"on\n")
    assert await world.text(box.id, other.id) == b"up\non\n"
    assert world.service.get(box.id).state is State.RUNNING
