"""Archives that try to leave the folder they are unpacked in, or to exhaust who unpacks them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Callable

import pytest

from paddock.errors import PaddockError
from tests.contract.stage import scenario
from tests.contract.world import World, chunks
from tests.security.test_files import host_folder

Fill = Callable[[tarfile.TarFile], None]


def archive(fill: Fill, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        fill(tar)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def add(tar: tarfile.TarFile, info: tarfile.TarInfo, content: bytes = b"") -> None:
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


async def unpack(world: World, ref: str, folder: str, content: bytes) -> str:
    """How it was refused, or "unpacked"."""
    try:
        await world.service.files.unpack(ref, folder, chunks(content))
    except PaddockError as error:
        return error.reason
    return "unpacked"


async def _refused(world: World, fill: Fill) -> str:
    """It is refused, and nothing of it is anywhere but below the folder."""
    shared = await world.shared()
    here = await world.path(shared)
    before = (await world.sh(shared, f"ls -A . /tmp {here}/..; cat /etc/passwd")).stdout
    said = await unpack(world, shared, f"{here}/in", archive(fill))
    after = (await world.sh(shared, f"ls -A . /tmp {here}/..; cat /etc/passwd")).stdout
    assert before == after
    return said


@scenario
async def test_absolute_names(world: World) -> None:
    with host_folder() as folder:
        assert await _refused(world, lambda tar: add(tar, member(f"{folder}/file"), b"x")) == "bad_path"
    assert await _refused(world, lambda tar: add(tar, member("/workspace/escaped"), b"x")) == "bad_path"


@scenario
async def test_names_that_go_up(world: World) -> None:
    for name in ("../escaped", "a/../../escaped", "./../escaped", "a/b/../../../escaped", ".."):
        assert await _refused(world, lambda tar, name=name: add(tar, member(name), b"x")) == "bad_path"  # type: ignore[misc]


@scenario
async def test_a_link_and_then_a_file_through_it(world: World) -> None:
    with host_folder() as folder:
        for target in ("..", "/workspace", "/tmp", str(folder), "/etc"):

            def fill(tar: tarfile.TarFile, target: str = target) -> None:
                add(tar, member("way", tarfile.SYMTYPE, target))
                add(tar, member("way/escaped"), b"x")

            assert await _refused(world, fill) in (
                "bad_path",
                "not_a_directory",
                "path_denied",
                "too_many_links",
            )


@scenario
async def test_a_link_and_then_a_file_in_its_place(world: World) -> None:
    """The file takes the place of the link; what the link led to is left alone."""
    box = await world.create()
    await world.write(box.id, "victim", b"mine")

    def fill(tar: tarfile.TarFile) -> None:
        add(tar, member("name", tarfile.SYMTYPE, "../victim"))
        add(tar, member("name"), b"changed")

    assert await unpack(world, box.id, "in", archive(fill)) == "unpacked"
    assert await world.read(box.id, "victim") == b"mine"
    assert await world.read(box.id, "in/name") == b"changed"


@scenario
async def test_hard_links_out(world: World) -> None:
    for target in ("/etc/passwd", "../../etc/passwd", "../stop", "/proc/1/environ"):
        said = await _refused(world, lambda tar, to=target: add(tar, member("link", tarfile.LNKTYPE, to)))  # type: ignore[misc]
        assert said == "bad_path", target

    def through(tar: tarfile.TarFile) -> None:
        add(tar, member("way", tarfile.SYMTYPE, "/etc"))
        add(tar, member("link", tarfile.LNKTYPE, "way/passwd"))

    assert await _refused(world, through) in ("bad_path", "not_a_directory", "path_denied", "too_many_links")


@scenario
async def test_devices(world: World) -> None:
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        said = await _refused(world, lambda tar, kind=kind: add(tar, member("device", kind)))  # type: ignore[misc]
        assert said in ("bad_path", "unpacked")
        left = await world.sh(await world.shared(), "find . -type b -o -type c -o -type p")
        assert left.stdout == ""


@scenario
async def test_setuid_is_dropped_or_means_nothing(world: World) -> None:
    box = await world.create()
    tool = await world.read(box.id, "/usr/bin/id")
    content = archive(lambda tar: add(tar, member("tool", mode=0o6755), tool))
    assert await unpack(world, box.id, "in", content) == "unpacked"
    await world.service.files.write(box.id, "in/written", chunks(tool), mode="6755")
    for name in ("tool", "written"):
        done = await world.run(box.id, f"in/{name}", "-u")
        assert done.stdout == "1000\n", name


@scenario
async def test_a_size_that_never_comes(world: World) -> None:
    """The header says eight exabytes: nothing is set aside for them, and the missing bytes are told."""
    shared = await world.shared()
    for size in (1 << 62, 1 << 40):
        info = member("huge")
        info.size = size
        head = info.tobuf(tarfile.GNU_FORMAT)
        assert await unpack(world, shared, await world.path(shared), head + b"x" * 1000) == "bad_path"
    assert (await world.run(shared, "echo", "fine")).stdout == "fine\n"


@scenario
async def test_names_that_are_no_text(world: World) -> None:
    box = await world.create()
    names = ["new\nline", "\x1b[2Jclear", "tab\there", "\udcff\udcfe", " ", "-rf", "a" * 255, "ünï"]

    def fill(tar: tarfile.TarFile) -> None:
        for name in names:
            add(tar, member(name), b"x")

    content = archive(fill, tarfile.GNU_FORMAT)
    assert await unpack(world, box.id, "in", content) == "unpacked"
    listing = await world.service.files.list(box.id, "in")
    assert len(listing.entries) == len(names)
    listing.model_dump_json()
    packed = await world.service.files.pack(box.id, "in")
    again = b"".join([data async for data in packed])
    with tarfile.open(fileobj=io.BytesIO(again), errors="surrogateescape") as tar:
        inside = {name.split("/", 1)[-1] for name in tar.getnames()}
    assert set(names) <= inside | {"."}, inside


@scenario
async def test_what_is_no_archive(world: World) -> None:
    shared = await world.shared()
    whole = archive(lambda tar: add(tar, member("file"), b"x" * 5000))
    damaged = bytearray(whole)
    damaged[150] ^= 0xFF
    for content in (
        b"\x1f\x8b" + bytes(2000),
        b"PK\x03\x04" * 500,
        bytes(damaged),
        whole[:-7000],
        b"x" * 512,
    ):
        said = await unpack(world, shared, await world.path(shared), content)
        assert said == "bad_path", content[:20]


@scenario
async def test_an_archive_of_zeros_without_end_is_bounded_by_the_disk_alone(world: World) -> None:
    """A client that never stops sending holds one process inside, and nobody else."""
    shared = await world.shared()

    async def endless() -> AsyncIterator[bytes]:
        info = member("endless")
        info.size = 1 << 40
        yield info.tobuf(tarfile.GNU_FORMAT)
        for _ in range(20):
            yield bytes(1 << 20)
            assert (await world.run(other.id, "echo", "fine")).stdout == "fine\n"
        raise ConnectionResetError("the client has gone")

    other = await world.create()
    here = await world.path(shared)
    with pytest.raises((ConnectionResetError, PaddockError)):
        await world.service.files.unpack(shared, here, endless())
    assert (await world.run(shared, "echo", "fine")).stdout == "fine\n"
