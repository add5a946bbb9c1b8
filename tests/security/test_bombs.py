"""What eats processes, memory, disk, descriptors or output: its own limits hold, and the server and another
sandbox answer throughout. What is left when it is over is looked for after each scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.errors import Exhausted, PaddockError
from paddock.runtimes.base import Enforcement
from paddock.runtimes.cgroups.group import OVERHEAD
from paddock.sandboxes.execlog import Gap
from paddock.sandboxes.model import ExecState, Sandbox, State
from tests.contract.stage import scenario
from tests.contract.world import OUTPUT_KEPT, World, chunks
from tests.security.gather import PYTHON

pytestmark = [pytest.mark.needs("system-python"), pytest.mark.slow]

MIB = 1 << 20


async def answers(world: World, ref: str) -> None:
    async with asyncio.timeout(30):
        assert (await world.run(ref, "echo", "fine")).stdout == "fine\n"
        await world.write(ref, "fine", b"fine")
        assert await world.read(ref, "fine") == b"fine"


def held(world: World, made: Sandbox, limit: str) -> None:
    """A bomb is set off only where the host holds it."""
    world.need(made.enforcement[limit] is Enforcement.FULL, f"{limit} limit")


async def _end(world: World, ref: str, exec_id: str) -> None:
    with contextlib.suppress(PaddockError):
        await world.service.cancel_exec(ref, exec_id, grace=0)
    await world.wait(ref, exec_id)


FORKS = """
import os, time
print("ready", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.02)
"""


@scenario
async def test_a_fork_bomb(world: World) -> None:
    """Each process makes more, in sessions of their own. The whole tree ends with its exec."""
    box, other = await world.create(limits={"processes": 48}), await world.create()
    held(world, box, "processes")
    bomb = await world.start_exec(box.id, PYTHON, "-c", FORKS)
    await world.until_output(box.id, bomb.id, b"ready")

    async def is_full() -> bool:
        return ((await world.service.stats(box.id)).processes or 0) >= 40

    await world.found(is_full)
    for _ in range(3):
        await answers(world, other.id)
    assert ((await world.service.stats(box.id)).processes or 0) <= 48 + OVERHEAD
    await _end(world, box.id, bomb.id)
    await answers(world, box.id)


@scenario
async def test_a_bomb_of_zombies(world: World) -> None:
    """Orphans that end at once, by the hundreds: somebody waits for each of them."""
    box = await world.create(limits={"processes": 48})
    script = (
        "import os\n"
        "for _ in range(300):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os._exit(0) if os.fork() else os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    assert (await world.run(box.id, PYTHON, "-c", script)).exit_code == 0
    left = await world.sh(box.id, "grep -l '^State:.*Z' /proc/[0-9]*/status; true")
    assert left.stdout == ""


@scenario
async def test_a_memory_bomb(world: World) -> None:
    box, other = await world.create(limits={"memory": 64 * MIB}), await world.create()
    held(world, box, "memory")
    script = "hoard = []\nwhile True:\n    hoard.append(bytearray(b'x') * (4 << 20))"
    ended = await world.run(box.id, PYTHON, "-c", script)
    assert ended.state is ExecState.FAILED
    assert ended.exit_code != 0
    await answers(world, other.id)
    await answers(world, box.id)
    assert ((await world.service.stats(box.id)).memory_peak or 0) <= 64 * MIB


@scenario
async def test_shared_memory_is_memory(world: World) -> None:
    """/dev/shm has an end of its own, below the limit: who fills it is told, and lives."""
    box, other = await world.create(limits={"memory": 64 * MIB}), await world.create()
    full = await world.sh(box.id, "head -c 200M /dev/zero > /dev/shm/full; stat -c %s /dev/shm/full")
    assert int(full.stdout) <= 32 * MIB, full
    assert "No space left" in full.stderr
    await answers(world, box.id)
    await answers(world, other.id)


@scenario
async def test_a_disk_bomb_where_the_limit_is_exact(world: World) -> None:
    box, other = await world.create(limits={"disk": 16 * MIB}), await world.create()
    held(world, box, "disk")
    for folder in ("/workspace", "/tmp", "/home/paddock"):
        full = await world.sh(box.id, f"head -c 64M /dev/zero > {folder}/full; stat -c %s {folder}/full")
        assert int(full.stdout) <= 16 * MIB
        assert "No space left" in full.stderr
    with pytest.raises(Exhausted) as caught:
        await world.service.files.write(box.id, "more", chunks(bytes(2 * MIB)))
    assert caught.value.reason == "disk_full"
    await answers(world, other.id)
    await world.sh(box.id, "rm -f /workspace/full /tmp/full /home/paddock/full")
    await answers(world, box.id)


@scenario
async def test_an_inode_bomb(world: World) -> None:
    """A file system of a limited size has a limited number of files."""
    box, other = await world.create(limits={"disk": 8 * MIB}), await world.create()
    held(world, box, "disk")
    script = (
        "import errno, os\n"
        "os.mkdir('many')\n"
        "try:\n"
        "    for number in range(200_000):\n"
        "        os.close(os.open(f'many/{number}', os.O_CREAT))\n"
        "except OSError as error:\n"
        "    print(errno.errorcode[error.errno])\n"
    )
    assert (await world.run(box.id, PYTHON, "-c", script)).stdout == "ENOSPC\n"
    await answers(world, other.id)


@scenario
async def test_a_watched_disk_ends_what_writes(world: World) -> None:
    """Storage of a tenant has no exact limit: it is measured, and what runs is ended."""
    box = await world.create(limits={"disk": 4 * MIB}, tenant="bomber")
    other = await world.create()
    world.need(box.enforcement["disk"] is Enforcement.PARTIAL, "watched disk limit")
    bomb = await world.start_sh(box.id, "head -c 24M /dev/zero > full; sleep 1000")
    ended = await world.wait(box.id, bomb.id)
    assert ended.state is not ExecState.COMPLETED
    await answers(world, other.id)


@scenario
async def test_a_descriptor_bomb(world: World) -> None:
    box, other = await world.create(limits={"open_files": 128}), await world.create()
    script = (
        "import os, sys\n"
        "count = 0\n"
        "try:\n"
        "    while True:\n"
        "        os.open('/dev/null', 0); count += 1\n"
        "except OSError as error:\n"
        "    print(count, error.errno, flush=True)\n"
        "sys.stdin.read()\n"
    )
    bombs = [await world.start_exec(box.id, PYTHON, "-c", script, open_stdin=True) for _ in range(4)]
    for bomb in bombs:
        await world.until_output(box.id, bomb.id, b" 24\n")
    await answers(world, box.id)
    await answers(world, other.id)
    for bomb in bombs:
        await world.service.close_stdin(box.id, bomb.id)
        count = int((await world.text(box.id, bomb.id)).split()[0])
        assert 100 < count < 128


@scenario
async def test_an_output_flood_that_nobody_reads(world: World) -> None:
    """On both streams and a terminal. What is kept on disk is bounded, and so is the server's memory."""
    box, other = await world.create(), await world.create()
    flood = "while :; do head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; done"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    floods = [
        await world.start_sh(box.id, flood),
        await world.start_sh(box.id, "yes", terminal={"rows": 24, "columns": 80}),
    ]

    async def has_dropped() -> bool:
        pieces = await world.output(box.id, floods[0].id, follow=False)
        return any(isinstance(piece, Gap) for piece in pieces)

    await world.found(has_dropped)
    for _ in range(3):
        await answers(world, other.id)
        await answers(world, box.id)
    logs = sum(path.stat().st_size for path in (world.folder / "logs" / box.id).rglob("*") if path.is_file())
    assert logs <= len(floods) * 2 * OUTPUT_KEPT
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 256 * 1024, f"the server grew by {grown} KiB"
    for one in floods:
        await _end(world, box.id, one.id)


@scenario
async def test_an_input_flood_to_who_does_not_read(world: World) -> None:
    box, other = await world.create(), await world.create()
    deaf = await world.start_exec(box.id, "sleep", "1000", open_stdin=True)
    writes = [
        asyncio.ensure_future(world.service.write_stdin(box.id, deaf.id, bytes(4 * MIB))) for _ in range(4)
    ]
    await asyncio.wait(writes, timeout=0.5)
    await answers(world, other.id)
    await answers(world, box.id)
    await _end(world, box.id, deaf.id)
    done, pending = await asyncio.wait(writes, timeout=30)
    assert not pending, "a writer waits for a process that is gone"
    for write in done:
        assert write.exception() is None or isinstance(write.exception(), PaddockError)


@scenario
async def test_a_file_call_that_is_not_finished_holds_nobody_up(world: World) -> None:
    """A body that never ends, and a reader that takes one byte."""
    box, other = await world.create(), await world.create()
    await world.sh(box.id, "head -c 30M /dev/zero > big")

    async def stuck() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.get_running_loop().create_future()

    writing = asyncio.ensure_future(world.service.files.write(box.id, "never", stuck()))
    reading = await world.service.files.read(box.id, "big")
    async for _ in reading:
        break
    await answers(world, other.id)
    await answers(world, box.id)
    await reading.aclose()
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing

    async def gone() -> bool:
        return "never" not in (await world.sh(box.id, "ls -A")).stdout

    await world.found(gone)


DEEP = """
import os
for _ in range(1500):
    os.mkdir("d" * 10)
    os.chdir("d" * 10)
os.mkdir("closed")
os.chmod("closed", 0)
"""


@scenario
async def test_a_tree_deeper_than_any_path(world: World) -> None:
    """It can be measured, listed, packed up to a point, removed; and deleted with its sandbox."""
    box = await world.create()
    assert (await world.run(box.id, PYTHON, "-c", DEEP)).exit_code == 0
    async with asyncio.timeout(60):
        assert (await world.service.stats(box.id)).disk is not None
        with contextlib.suppress(PaddockError):
            await world.service.files.list(box.id, ".", depth=64)
        with contextlib.suppress(PaddockError):
            packed = await world.service.files.pack(box.id, ".")
            async for _ in packed:
                pass
        await answers(world, box.id)
        await world.service.delete(box.id)
    assert not (world.folder / "sandboxes" / box.id).exists()


@scenario
async def test_a_sandbox_over_its_limits_still_ends(world: World) -> None:
    """Stopped in the middle of a bomb, it leaves no process."""
    box = await world.create(limits={"processes": 32, "memory": 64 * MIB})
    held(world, box, "processes")
    bomb = await world.start_exec(box.id, PYTHON, "-c", FORKS)
    await world.until_output(box.id, bomb.id, b"ready")
    held_box = world.service.boxes[box.id]
    assert held_box.instance is not None
    guest = held_box.instance.pid
    assert (await world.service.stop(box.id)).state is State.STOPPED
    await world.until(lambda: not Path(f"/proc/{guest}").exists())
