"""File calls: every one, and what they answer when they cannot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from paddock.errors import Conflict, Denied, Invalid, NotFound, PaddockError
from tests.contract.stage import scenario
from tests.contract.world import World, chunks, sha256


@scenario
async def test_write_and_read(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    content = bytes(range(256)) * 5
    entry = await files.write(box, f"{folder}/a/b/data.bin", chunks(content, 100))
    assert (entry.name, entry.type, entry.size) == ("data.bin", "file", len(content))
    assert await world.read(box, f"{folder}/a/b/data.bin") == content
    empty = await files.write(box, f"{folder}/empty", chunks(b""))
    assert empty.size == 0
    assert await world.read(box, f"{folder}/empty") == b""
    assert (await world.sh(box, f"cat {folder}/a/b/data.bin | wc -c")).stdout.strip() == str(len(content))


@scenario
async def test_ranges(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    content = bytes(range(100))
    await world.write(box, f"{folder}/f", content)
    for offset, length in (
        (0, None),
        (0, 0),
        (0, 1),
        (10, 20),
        (99, 5),
        (100, 5),
        (500, 1),
        (50, None),
        (0, 999),
    ):
        end = None if length is None else offset + length
        got = await world.read(box, f"{folder}/f", offset=offset, length=length)
        assert got == content[offset:end], (offset, length)
    stream = await world.service.files.read(box, f"{folder}/f", offset=3, length=1)
    assert stream.entry.size == 100
    await stream.aclose()


@scenario
async def test_stat(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    workspace = world.service.get(box).workspace
    await world.sh(
        box, f"cd {folder}; echo x > f; chmod 640 f; ln -s f l; ln -s nowhere broken; mkfifo p; mkdir d"
    )
    f = await files.stat(box, f"{folder}/f")
    assert (f.type, f.size, f.mode, f.name, f.target) == ("file", 2, "0640", "f", None)
    assert f.path == f"{workspace}/{folder}/f"
    assert f.mtime > 1_600_000_000_000_000_000
    link = await files.stat(box, f"{folder}/l", follow=False)
    assert (link.type, link.target) == ("symlink", "f")
    assert (await files.stat(box, f"{folder}/l")).type == "file"
    assert (await files.stat(box, f"{folder}/broken", follow=False)).target == "nowhere"
    with pytest.raises(NotFound):
        await files.stat(box, f"{folder}/broken")
    assert (await files.stat(box, f"{folder}/p")).type == "fifo"
    assert (await files.stat(box, f"{folder}/d")).type == "directory"
    assert (await files.stat(box, ".")).path == workspace
    assert (await files.stat(box, workspace)).type == "directory"


@scenario
async def test_list(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    await world.sh(box, f"cd {folder}; mkdir -p a/b/c; touch one a/two a/b/three a/b/c/four")

    async def names(**fields: int) -> list[str]:
        return sorted(entry.name for entry in (await files.list(box, folder, **fields)).entries)

    assert await names() == ["a", "one"]
    assert await names(depth=2) == ["a", "a/b", "a/two", "one"]
    assert await names(depth=64) == ["a", "a/b", "a/b/c", "a/b/c/four", "a/b/three", "a/two", "one"]
    cut = await files.list(box, folder, depth=64, limit=3)
    assert (len(cut.entries), cut.truncated) == (3, True)
    assert not (await files.list(box, folder, depth=64, limit=7)).truncated
    with pytest.raises(Conflict) as caught:
        await files.list(box, f"{folder}/one")
    assert caught.value.reason == "not_a_directory"


@scenario
async def test_names_of_every_kind(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    odd = [
        "with space",
        "new\nline",
        'quo"te',
        "back\\slash",
        "tab\t",
        "ünïcode ☃",
        "-dash",
        "\x01\x7f",
        "x" * 255,
    ]
    for name in odd:
        await world.write(box, f"{folder}/{name}", name.encode())
    listing = await files.list(box, folder)
    assert sorted(entry.name for entry in listing.entries) == sorted(odd)
    for name in odd:
        assert await world.read(box, f"{folder}/{name}") == name.encode()
    # One that is no UTF-8 cannot be said exactly, and does not break the rest.
    await world.sh(box, f"cd {folder}; touch \"$(printf 'bad\\377name')\"")
    names = {entry.name for entry in (await files.list(box, folder)).entries}
    assert names == {*odd, "bad?name"}


@scenario
async def test_mode_time_and_exclusive(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    entry = await files.write(box, f"{folder}/f", chunks(b"x"), mode="0751", mtime=1_500_000_000_123_456_789)
    assert (entry.mode, entry.mtime) == ("0751", 1_500_000_000_123_456_789)
    assert (await files.stat(box, f"{folder}/f")).mode == "0751"
    with pytest.raises(Conflict) as caught:
        await files.write(box, f"{folder}/f", chunks(b"y"), exclusive=True)
    assert caught.value.reason == "path_exists"
    assert await world.read(box, f"{folder}/f") == b"x"
    with pytest.raises(NotFound):
        await files.write(box, f"{folder}/no/f", chunks(b"y"), parents=False)
    with pytest.raises(Conflict):
        await files.write(box, folder, chunks(b"y"))
    with pytest.raises(Invalid):
        await files.write(box, f"{folder}/g", chunks(b"y"), mode="rwx")
    assert [entry.name for entry in (await files.list(box, folder)).entries] == ["f"]


@scenario
async def test_a_write_is_all_or_nothing(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    await world.write(box, f"{folder}/f", b"old")
    reached = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"new" * 10_000
            reached.set()
            await asyncio.sleep(0.01)

    async def breaks() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise ConnectionResetError("the sender went away")

    writing = asyncio.create_task(files.write(box, f"{folder}/f", endless()))
    await reached.wait()
    assert await world.read(box, f"{folder}/f") == b"old"
    writing.cancel()
    await asyncio.wait({writing})
    with pytest.raises(ConnectionResetError):
        await files.write(box, f"{folder}/f", breaks())
    assert await world.read(box, f"{folder}/f") == b"old"

    async def alone() -> bool:
        return [e.name for e in (await files.list(box, folder)).entries] == ["f"]

    await world.found(alone)


@scenario
async def test_a_big_file(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    block = os.urandom(1 << 20)
    content = block * 20
    await files.write(box, f"{folder}/big", chunks(content, 1 << 20))
    stream = await files.read(box, f"{folder}/big")
    assert sha256([data async for data in stream]) == sha256([content])
    # A reader that goes away in the middle.
    stream = await files.read(box, f"{folder}/big")
    async for _ in stream:
        break
    await stream.aclose()
    await files.remove(box, f"{folder}/big")


@scenario
async def test_mkdir_move_remove(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    made = await files.mkdir(box, f"{folder}/a/b", mode="0750")
    assert (made.type, made.mode) == ("directory", "0750")
    with pytest.raises(NotFound):
        await files.mkdir(box, f"{folder}/x/y", parents=False)
    await world.write(box, f"{folder}/a/f", b"f")
    moved = await files.move(box, f"{folder}/a/f", f"{folder}/g")
    assert moved.name == "g"
    await world.write(box, f"{folder}/h", b"h")
    with pytest.raises(Conflict) as caught:
        await files.move(box, f"{folder}/h", f"{folder}/g", overwrite=False)
    assert caught.value.reason == "path_exists"
    await files.move(box, f"{folder}/h", f"{folder}/g")
    assert await world.read(box, f"{folder}/g") == b"h"
    with pytest.raises(Conflict) as caught:
        await files.remove(box, f"{folder}/a")
    assert caught.value.reason == "not_empty"
    await files.remove(box, f"{folder}/a", recursive=True)
    await files.remove(box, f"{folder}/g")
    assert (await files.list(box, folder)).entries == []
    with pytest.raises(NotFound):
        await files.remove(box, f"{folder}/g")


@scenario
async def test_remove_does_not_follow_links(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    await world.sh(box, f"cd {folder}; mkdir keep tree; touch keep/f; ln -s ../keep tree/l; ln -s keep link")
    await files.remove(box, f"{folder}/tree", recursive=True)
    await files.remove(box, f"{folder}/link", recursive=True)
    assert [entry.name for entry in (await files.list(box, folder, depth=2)).entries] == ["keep", "keep/f"]


@scenario
async def test_what_is_missing_or_denied(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    await world.sh(box, f"cd {folder}; touch f; mkdir shut; touch shut/in; chmod 0 shut")
    for call in (files.stat, files.list, files.read, files.pack):
        with pytest.raises(NotFound) as missing:
            await call(box, f"{folder}/missing")
        assert missing.value.reason == "path_not_found", call
    with pytest.raises(Conflict) as conflict:
        await files.stat(box, f"{folder}/f/below")
    assert conflict.value.reason == "not_a_directory"
    with pytest.raises(Conflict) as conflict:
        await files.read(box, folder)
    assert conflict.value.reason == "is_a_directory"
    for bad in ("", "a\0b", "x/" * 3000, "\ud800"):
        with pytest.raises(Invalid):
            await files.stat(box, bad)
    with pytest.raises(PaddockError):
        await files.stat(box, "y" * 256)
    if (await world.sh(box, f"ls {folder}/shut")).exit_code != 0:  # root, in the fake runtime, may
        with pytest.raises(Denied) as denied:
            await files.stat(box, f"{folder}/shut/in")
        assert denied.value.reason == "path_denied"
        with pytest.raises(Denied):
            await files.write(box, f"{folder}/shut/new", chunks(b"x"))
        with pytest.raises(Denied):
            await files.write(box, "/usr/bin/new", chunks(b"x"))
    await world.sh(box, f"chmod 700 {folder}/shut")


@scenario
async def test_paths_start_at_the_workspace(world: World) -> None:
    made = await world.create()
    await world.write(made.id, "top", b"here")
    assert await world.read(made.id, f"{made.workspace}/top") == b"here"
    assert await world.read(made.id, "./top") == b"here"
    await world.write(made.id, f"{made.home}/h", b"home")
    assert (await world.sh(made.id, "cat top ~/h")).stdout == "herehome"


@scenario
async def test_many_calls_at_once(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    await asyncio.gather(*(world.write(box, f"{folder}/{n}", b"%d" % n) for n in range(40)))
    contents = await asyncio.gather(*(world.read(box, f"{folder}/{n}") for n in range(40)))
    assert contents == [b"%d" % n for n in range(40)]


@scenario
async def test_a_fifo_holds_up_nobody(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    await world.sh(box, f"mkfifo {folder}/p")
    with pytest.raises((PaddockError, TimeoutError)):
        async with asyncio.timeout(5):
            await files.read(box, f"{folder}/p")
    assert (await files.stat(box, f"{folder}/p")).type == "fifo"
