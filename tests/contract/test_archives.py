"""Whole folders as tar archives, both ways."""

from __future__ import annotations

import contextlib
import io
import tarfile

import pytest

from paddock.errors import NotFound, PaddockError
from tests.contract.stage import scenario
from tests.contract.world import World, chunks


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mtime = 1_500_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info


async def packed(world: World, box: str, path: str) -> tarfile.TarFile:
    stream = await world.service.files.pack(box, path)
    data = b"".join([part async for part in stream])
    return tarfile.open(fileobj=io.BytesIO(data))


@scenario
async def test_there_and_back(world: World) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    long_name = "n" * 200
    archive = tar(
        (member("top", tarfile.DIRTYPE, mode=0o755), b""),
        (member("top/f", mode=0o640), b"content"),
        (member("top/run", mode=0o755), b"#!/bin/sh\necho ran\n"),
        (member(f"top/{long_name}/deep ünï", mode=0o644), b"deep"),
        (member("top/big", mode=0o644), b"z" * 3_000_000),
        (member("top/link", tarfile.SYMTYPE, linkname="f"), b""),
        (member("top/broken", tarfile.SYMTYPE, linkname="/no/where"), b""),
    )
    told = await files.unpack(box, f"{folder}/in", chunks(archive, 10_000))
    assert told.bytes == 7 + 19 + 4 + 3_000_000
    assert (await world.run(box, f"./{folder}/in/top/run")).stdout == "ran\n"
    assert (await files.stat(box, f"{folder}/in/top/f")).mode == "0640"
    assert (await files.stat(box, f"{folder}/in/top/broken", follow=False)).target == "/no/where"
    with await packed(world, box, f"{folder}/in/top") as back:
        names = back.getnames()
        assert sorted(names) == sorted(
            [
                "top",
                "top/f",
                "top/run",
                f"top/{long_name}",
                f"top/{long_name}/deep ünï",
                "top/big",
                "top/link",
                "top/broken",
            ]
        )
        assert (back.getmember("top/f").mode, back.getmember("top/run").mode) == (0o640, 0o755)
        assert back.getmember("top/link").linkname == "f"
        assert int(back.getmember("top/f").mtime) == 1_500_000_000
        content = back.extractfile("top/big")
        assert content is not None
        assert content.read() == b"z" * 3_000_000


@scenario
async def test_one_file(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    await world.write(box, f"{folder}/alone", b"data")
    with await packed(world, box, f"{folder}/alone") as back:
        assert back.getnames() == ["alone"]
    with pytest.raises(NotFound):
        await world.service.files.pack(box, f"{folder}/missing")


@scenario
async def test_names_of_every_kind(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    odd = ["with space", "new\nline", 'quo"te', "ünïcode ☃", "-dash", "x" * 255]
    for name in odd:
        await world.write(box, f"{folder}/{name}", name.encode())
    with await packed(world, box, folder) as back:
        assert sorted(back.getnames()) == sorted([folder, *(f"{folder}/{name}" for name in odd)])


async def refuses(world: World, *evil: tuple[tarfile.TarInfo, bytes]) -> None:
    box, files = await world.shared(), world.service.files
    folder = await world.path(box)
    with contextlib.suppress(PaddockError):
        await files.unpack(box, f"{folder}/in", chunks(tar((member("good"), b"good"), *evil)))
    found = {entry.name for entry in (await files.list(box, folder, depth=9)).entries}
    assert not {name for name in found if "evil" in name and not name.startswith("in/")}
    assert not {name for name in found if name.endswith(("passwd", "null"))}
    with pytest.raises(NotFound):
        await files.stat(box, "/tmp/paddock-evil")


@scenario
async def test_nothing_leaves_by_dots(world: World) -> None:
    await refuses(world, (member("../evil"), b"x"))
    await refuses(world, (member("a/../../evil"), b"x"))


@scenario
async def test_nothing_leaves_by_an_absolute_name(world: World) -> None:
    await refuses(world, (member("/tmp/paddock-evil"), b"x"))


@scenario
async def test_nothing_leaves_through_a_link(world: World) -> None:
    await refuses(world, (member("out", tarfile.SYMTYPE, linkname=".."), b""), (member("out/evil"), b"x"))
    await refuses(
        world, (member("out", tarfile.SYMTYPE, linkname="../evil"), b""), (member("out", mode=0o644), b"x")
    )
    await refuses(world, (member("passwd", tarfile.LNKTYPE, linkname="/etc/passwd"), b""))


@scenario
async def test_no_devices(world: World) -> None:
    await refuses(world, (member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), b""))


@scenario
async def test_what_is_no_archive(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    whole = tar((member("f"), b"x" * 100_000))
    for broken in (b"this is not a tar archive" * 100, whole[:5000], whole[:100]):
        with pytest.raises(PaddockError):
            await world.service.files.unpack(box, f"{folder}/in", chunks(broken))
    assert (await world.service.files.unpack(box, folder, chunks(tar()))).files == 0
