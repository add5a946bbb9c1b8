from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.guest import dial as dial_module
from paddock.guest import wire
from paddock.guest.dial import NAME, Dial
from paddock.guest.link import Guest
from paddock.guest.wire import Greeting, Type
from tests.unit.guest_link.peer import BOOT_ID, PATIENCE, SECRET, Peer, descriptors, entry, until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Longer than a socket's address may be.
    deep = tmp_path / ("long" * 20) / ("name" * 20)
    deep.mkdir(parents=True)
    return deep


@pytest.fixture
async def accepting(folder: Path) -> AsyncIterator[asyncio.Task[Guest]]:
    before = descriptors()
    task = asyncio.create_task(_dial(folder).accept(PATIENCE))
    await until((folder / NAME).exists)
    yield task
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        task.result().close()
    assert os.listdir(folder) == []
    assert descriptors() == before


def _dial(folder: Path, *, uid: int | None = None, pid: int | None = None) -> Dial:
    return Dial(
        folder,
        SECRET,
        peer_uid=os.getuid() if uid is None else uid,
        peer_pid=os.getpid() if pid is None else pid,
        uid_owner=None,
    )


def _connect(folder: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    fd = os.open(folder, os.O_RDONLY)
    try:
        sock.connect(f"/proc/self/fd/{fd}/{NAME}")
    finally:
        os.close(fd)
    return sock


def _greeting(secret: bytes = SECRET, version: int = wire.VERSION) -> bytes:
    return wire.frame(Type.DIAL, 0, Greeting(secret, BOOT_ID, 9, version).pack())


async def _return(folder: Path, *entries: wire.Inventory) -> Peer:
    peer = Peer(_connect(folder))
    await peer.send(_greeting())
    assert (await peer.expect(Type.WELCOME)).payload == wire.U16.pack(wire.VERSION)
    frames = [wire.frame(Type.INVENTORY, e.channel, e.pack()) for e in entries]
    await peer.send(*frames, wire.frame(Type.INVENTORY_END))
    return peer


async def test_a_guest_comes_back_with_its_inventory(folder: Path, accepting: asyncio.Task[Guest]) -> None:
    peer = await _return(folder, entry(3), entry(5))
    guest = await accepting
    assert [kept.channel for kept in guest.inventory] == [3, 5]
    assert guest.boot_id == BOOT_ID
    assert not (folder / NAME).exists()
    peer.close()


async def test_the_socket_is_for_its_guest_alone(folder: Path, accepting: asyncio.Task[Guest]) -> None:
    found = (folder / NAME).stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert os.listdir(folder) == [NAME]


@pytest.mark.parametrize(
    "words",
    [
        _greeting(secret=bytes(32)),
        _greeting(version=2),
        wire.frame(Type.DIAL, 1, Greeting(SECRET, BOOT_ID, 9).pack()),
        wire.frame(Type.DIAL, 0, Greeting(SECRET, BOOT_ID, 0).pack()),
        wire.frame(Type.HELLO, 0, bytes(56)),
        wire.frame(Type.OUTPUT, 0, bytes(56)),
        wire.HEADER.pack(wire.MAX_PAYLOAD, 0, Type.DIAL, 0, 0) + bytes(56),
    ],
    ids=["secret", "version", "channel", "no-free-channel", "hello", "output", "too-long"],
)
async def test_a_stranger_is_sent_away_and_the_guest_still_served(
    folder: Path, accepting: asyncio.Task[Guest], words: bytes
) -> None:
    stranger = Peer(_connect(folder))
    await stranger.send(words)
    assert await stranger.has_ended()
    stranger.close()
    peer = await _return(folder)
    assert (await accepting).inventory == []
    peer.close()


async def test_a_stranger_who_hangs_up_does_no_harm(folder: Path, accepting: asyncio.Task[Guest]) -> None:
    for words in (b"", _greeting()[:20], _greeting()):
        sock = _connect(folder)
        sock.sendall(words)
        sock.close()
    peer = await _return(folder)
    await accepting
    peer.close()


async def test_those_who_wait_are_few_and_do_not_wait_long(
    folder: Path, accepting: asyncio.Task[Guest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial_module, "HANDSHAKE_SECONDS", 0.3)
    silent = [Peer(_connect(folder)) for _ in range(dial_module.MOST_WAITING)]
    for peer in silent:
        assert await peer.has_ended()
        peer.close()
    peer = await _return(folder)
    await accepting
    peer.close()


@pytest.mark.parametrize("which", ["uid", "pid"])
async def test_the_kernels_word_counts(folder: Path, which: str) -> None:
    known = {"uid": os.getuid() + 1} if which == "uid" else {"pid": os.getpid() + 1}
    accepting = asyncio.create_task(_dial(folder, **known).accept(PATIENCE))
    await until((folder / NAME).exists)
    peer = Peer(_connect(folder))
    assert await peer.has_ended()
    peer.close()
    accepting.cancel()
    await asyncio.wait({accepting})
    assert not (folder / NAME).exists()


async def test_without_a_known_pid_the_secret_decides(folder: Path) -> None:
    dial = Dial(folder, SECRET, peer_uid=os.getuid(), peer_pid=None, uid_owner=None)
    accepting = asyncio.create_task(dial.accept(PATIENCE))
    await until((folder / NAME).exists)
    peer = await _return(folder)
    (await accepting).close()
    peer.close()


async def test_a_guest_that_stays_away(folder: Path) -> None:
    before = descriptors()
    with pytest.raises(errors.Timeout) as caught:
        await _dial(folder).accept(0.05)
    assert caught.value.reason == "guest_absent"
    assert os.listdir(folder) == []
    assert descriptors() == before


async def test_a_stale_socket_is_replaced(folder: Path) -> None:
    (folder / NAME).write_text("left by a server that died")
    accepting = asyncio.create_task(_dial(folder).accept(PATIENCE))
    await until((folder / NAME).is_socket)
    peer = await _return(folder)
    (await accepting).close()
    peer.close()
    assert os.listdir(folder) == []


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        await _dial(tmp_path / "nowhere").accept(PATIENCE)
    assert caught.value.reason == "guest_socket"


@pytest.mark.needs("root")
async def test_the_socket_can_belong_to_another_user(folder: Path) -> None:
    dial = Dial(folder, SECRET, peer_uid=65533, peer_pid=None, uid_owner=65533)
    accepting = asyncio.create_task(dial.accept(PATIENCE))
    await until((folder / NAME).exists)
    assert (folder / NAME).stat().st_uid == 65533
    accepting.cancel()
    await asyncio.wait({accepting})


async def test_another_process_with_the_secret_is_still_a_stranger(
    folder: Path, accepting: asyncio.Task[Guest]
) -> None:
    script = (
        "import os, socket, sys\n"
        "os.chdir(sys.argv[1])\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('guest.sock'); s.settimeout(30)\n"
        "try:\n    s.sendall(bytes.fromhex(sys.argv[2])); print(len(s.recv(100)))\n"
        "except ConnectionError:\n    print(0)\n"
    )
    command = [sys.executable, "-c", script, str(folder), _greeting().hex()]
    done = await asyncio.to_thread(
        subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
    )
    assert done.stdout == b"0\n", done.stderr
    peer = await _return(folder)
    await accepting
    peer.close()
