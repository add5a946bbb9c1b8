"""File calls are answered by the guest, from inside: no link, race or path leads them out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.errors import PaddockError
from tests.contract.stage import scenario
from tests.contract.world import World
from tests.security.gather import PYTHON

pytestmark = pytest.mark.needs("system-python")

SWAP = """
import os, shutil, sys
place, target, kind = sys.argv[1:4]
made, real = place + ".made", place + ".real"
def remove():
    try:
        os.unlink(place)
    except IsADirectoryError:
        shutil.rmtree(place, ignore_errors=True)
    except FileNotFoundError:
        pass
print("ready", flush=True)
while True:
    try:
        if kind == "folder":
            remove()
            os.symlink(target, place)
            remove()
            os.mkdir(place)
            continue
        os.symlink(target, made)
        os.replace(made, place)
        with open(real, "w") as file:
            file.write("inside")
        os.replace(real, place)
    except OSError:
        pass
"""
"""Swaps `place` between something of its own and a link to `target`, as fast as it can. File calls may make
something there meanwhile.
"""


@contextlib.contextmanager
def host_folder() -> Iterator[Path]:
    """A folder of the host that everybody may read and write: a file call that comes out would find it."""
    with tempfile.TemporaryDirectory(prefix="paddock-outside-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "file").write_text("of the host")
        (folder / "file").chmod(0o666)
        yield folder
        assert sorted(path.name for path in folder.iterdir()) == ["file"]
        assert (folder / "file").read_text() == "of the host"


async def _reads(world: World, ref: str, path: str) -> bytes | str:
    try:
        return await world.read(ref, path)
    except PaddockError as error:
        return error.reason


WAYS_OUT = ("", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/../..", "/../../..", "/usr/../..")


@scenario
async def test_no_path_leads_out(world: World) -> None:
    shared = await world.shared()
    with host_folder() as folder:
        for way in WAYS_OUT:
            got = await _reads(world, shared, f"{way}{folder}/file")
            assert got in ("path_not_found", "path_denied"), (way, got)
        up = "../" * 40
        assert await _reads(world, shared, f"{up}{folder}/file".replace("//", "/")) == "path_not_found"


@scenario
async def test_no_link_leads_out(world: World) -> None:
    """Absolute, relative, in the middle and at the end; read, write, list, move, make, remove, pack."""
    shared = await world.shared()
    here = await world.path(shared)
    with host_folder() as folder:
        script = f"cd {here}; ln -s {folder} a; ln -s ../../../../../..{folder} r; ln -s {folder}/file f"
        assert (await world.sh(shared, script)).exit_code == 0
        for path in ("a/file", "r/file", "f"):
            assert await _reads(world, shared, f"{here}/{path}") == "path_not_found"
        files = world.service.files
        for call in (
            files.list(shared, f"{here}/a"),
            files.stat(shared, f"{here}/f"),
            files.move(shared, f"{here}/a/file", f"{here}/stolen"),
            files.remove(shared, f"{here}/a/file"),
        ):
            with pytest.raises(PaddockError) as caught:
                await call
            assert caught.value.reason == "path_not_found"
        packed = await files.pack(shared, here)
        assert b"of the host" not in b"".join([data async for data in packed])
        # A write follows the link as any program would: it makes the file in the sandbox's own /tmp.
        with contextlib.suppress(PaddockError):
            await world.write(shared, f"{here}/a/new", b"x")
        with contextlib.suppress(PaddockError):
            await files.mkdir(shared, f"{here}/r/new")
        await world.sh(shared, f"rm -rf {folder}")


@scenario
async def test_a_file_that_turns_into_a_link_is_read_inside(world: World) -> None:
    box = await world.create()
    await world.write(box.id, "swap.py", SWAP.encode())
    inside = await world.read(box.id, "/etc/passwd")
    seen: set[bytes | str] = set()
    with host_folder() as folder:
        for target in ("/etc/passwd", f"{folder}/file", f"../../..{folder}/file", "/proc/1/root/etc/shadow"):
            name = secrets.token_hex(4)
            loop = await world.start_exec(box.id, PYTHON, "swap.py", name, target, "file")
            await world.until_output(box.id, loop.id, b"ready")
            got = {await _reads(world, box.id, name) for _ in range(40)}
            await asyncio.gather(*(_writes(world, box.id, name) for _ in range(10)))
            await world.service.cancel_exec(box.id, loop.id, grace=0)
            await world.wait(box.id, loop.id)
            assert got <= {b"inside", inside, b"written", "path_not_found", "path_denied"}, got
            seen |= got
    assert seen & {b"inside", inside}, "it was never there: that proves nothing"
    assert await world.read(box.id, "/etc/passwd") == inside


@scenario
async def test_a_folder_that_turns_into_a_link_keeps_writes_inside(world: World) -> None:
    box = await world.create()
    await world.write(box.id, "swap.py", SWAP.encode())
    with host_folder() as folder:
        for target in (str(folder), "/etc", "../../../../.."):
            name = secrets.token_hex(4)
            loop = await world.start_exec(box.id, PYTHON, "swap.py", name, target, "folder")
            await world.until_output(box.id, loop.id, b"ready")
            for _ in range(30):
                await _writes(world, box.id, f"{name}/file")
                with contextlib.suppress(PaddockError):
                    await world.service.files.remove(box.id, f"{name}/file")
            await world.service.cancel_exec(box.id, loop.id, grace=0)
            await world.wait(box.id, loop.id)
        assert (await world.sh(box.id, "ls /etc/file")).exit_code != 0


async def _writes(world: World, ref: str, path: str) -> None:
    with contextlib.suppress(PaddockError):
        await world.write(ref, path, b"written")


@scenario
async def test_a_recursive_removal_does_not_follow_links(world: World) -> None:
    box = await world.create()
    await world.sh(
        box.id, "mkdir keep tree; touch keep/file; ln -s ../keep tree/link; ln -s /workspace/keep l"
    )
    await world.service.files.remove(box.id, "tree", recursive=True)
    await world.service.files.remove(box.id, "l", recursive=True)
    assert (await world.sh(box.id, "ls keep")).stdout == "file\n"


@scenario
async def test_file_calls_do_not_show_the_guests_memory(world: World) -> None:
    """They run in a process that was forked from the guest."""
    shared = await world.shared()
    for name in ("mem", "environ", "auxv", "stack", "syscall"):
        got = await _reads(world, shared, f"/proc/self/{name}")
        assert got in ("path_denied", "path_not_found", b""), (name, got)
        assert await _reads(world, shared, f"/proc/1/{name}") in ("path_denied", "path_not_found")
    with pytest.raises(PaddockError):
        await world.service.files.list(shared, "/proc/1/fd")


@scenario
async def test_special_files_hold_nobody_up(world: World) -> None:
    shared = await world.shared()
    here = await world.path(shared)
    bind = f"import socket; socket.socket(socket.AF_UNIX).bind('{here}/s')"
    assert (await world.sh(shared, f'mkfifo {here}/pipe; {PYTHON} -c "{bind}"')).exit_code == 0
    async with asyncio.timeout(30):
        for name in ("pipe", "s"):
            got = await _reads(world, shared, f"{here}/{name}")
            assert isinstance(got, str), got
            with pytest.raises(PaddockError):
                await world.write(shared, f"{here}/{name}", b"x")
        packed = await world.service.files.pack(shared, here)
        assert b"".join([data async for data in packed])


@scenario
async def test_a_folder_on_the_host_is_its_users_alone(world: World) -> None:
    """Another user finds the way in closed, and with it every file that was made setuid inside."""
    box = await world.create()
    await world.sh(box.id, "cp /bin/true tool; chmod 4755 tool")
    data = world.folder / "sandboxes" / box.id / "data"
    for name in ("workspace", "home", "tmp", "outputs"):
        assert (data / name).stat().st_mode & 0o777 == 0o700
    status = os.lstat(data / "workspace") if os.geteuid() else os.lstat(data / "workspace" / "tool")
    assert status.st_uid != 0
