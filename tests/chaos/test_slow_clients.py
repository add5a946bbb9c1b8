"""Clients that stop reading, and clients that leave in the middle: nobody else notices, and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.chaos.remains import below, parts_of
from tests.chaos.stage import Box, Stage, until
from tests.chaos.test_killed_under_execs import numbers

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.leaks_ok]

FLOOD = 15_000_000
"""`seq` up to here prints 130 MB: more than is kept of an exec, so only waiting for the reader loses none."""
MOST_GROWTH = 64 << 20
ROUNDS = 12
"""How often each kind of call is left."""
SPARE = 8
"""Descriptors that the server may open once and keep: of its database, of a connection that is kept alive."""


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def test_a_reader_that_pauses_loses_nothing(stage: Stage) -> None:
    box, other = await stage.create(), await stage.create()
    await other.answers()
    memory = memory_of(stage.pid)
    exec_id = await box.start("seq", "1", str(FLOOD))
    seen, most = hashlib.sha256(), 0
    path = f"/sandboxes/{box.id}/execs/{exec_id}/output"
    async with stage.stream(path, params={"encoding": "raw"}) as answer:
        parts = answer.aiter_raw()
        for _ in range(20):
            seen.update(await anext(parts))
        pause = time.monotonic() + 3
        while time.monotonic() < pause:
            began = time.monotonic()
            await other.answers()
            assert time.monotonic() - began < 10
            most = max(most, memory_of(stage.pid))
            await asyncio.sleep(0.1)
        assert (await box.exec(exec_id))["state"] == "running"
        async for part in parts:
            seen.update(part)
    most = max(most, memory_of(stage.pid))
    assert seen.digest() == hashlib.sha256(numbers(FLOOD)).digest()
    assert (await box.ended(exec_id))["exit_code"] == 0
    assert most - memory < MOST_GROWTH, f"{(most - memory) >> 20} MiB more"


async def open_raw(stage: Stage, request: str) -> socket.socket:
    """A connection of our own, to be left in the middle."""
    host, _, port = stage.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    head = f"{request} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {stage.token}\r\n"
    connection.sendall(head.encode())
    return connection


async def settles(stage: Stage, before: int) -> None:
    async def same() -> bool:
        return descriptors_of(stage.pid) <= before + SPARE

    await until(same, f"{before} descriptors, and there were {descriptors_of(stage.pid)}")


async def quiet(stage: Stage, box: Box) -> tuple[int, int]:
    """The guest's number, and the server's descriptors when nothing is under way."""
    await box.answers()
    await stage.sandboxes()
    return parts_of(stage.data, box.id)[1], descriptors_of(stage.pid)


async def nothing_runs(guest: int) -> None:
    async def idle() -> bool:
        return not below(guest)

    await until(idle, f"nothing runs in the sandbox: {below(guest)}")


async def test_uploads_and_downloads_that_are_left(stage: Stage, box: Box) -> None:
    await box.run("sh", "-c", "head -c 50000000 /dev/zero >big")
    guest, descriptors = await quiet(stage, box)
    for _ in range(ROUNDS):
        upload = await open_raw(stage, f"PUT /api/v1/sandboxes/{box.id}/files?path=half")
        upload.sendall(b"Content-Length: 90000000\r\n\r\n" + bytes(3_000_000))
        download = await open_raw(stage, f"GET /api/v1/sandboxes/{box.id}/files?path=big")
        download.sendall(b"\r\n")
        assert download.recv(1000).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.05)
        upload.close()
        download.close()
    await nothing_runs(guest)
    await settles(stage, descriptors)
    # A write is whole or not at all.
    assert (await box.run("ls", "-A"))["stdout"] == "big\n"


async def test_streams_that_are_left(stage: Stage, box: Box) -> None:
    guest, descriptors = await quiet(stage, box)
    exec_id = await box.start("sh", "-c", "while [ ! -e go ]; do seq 1 100; done; exit 4")
    for path in (
        f"sandboxes/{box.id}/execs/{exec_id}/output",
        "events",
        f"sandboxes/{box.id}/files/watch?path=.",
    ):
        for _ in range(ROUNDS):
            stream = await open_raw(stage, f"GET /api/v1/{path}")
            stream.sendall(b"\r\n")
            assert stream.recv(1000).startswith(b"HTTP/1.1 200"), path
            stream.close()
    async with contextlib.AsyncExitStack() as sockets:
        for _ in range(ROUNDS):
            address = f"{stage.url.replace('http', 'ws')}/api/v1/sandboxes/{box.id}/execs/{exec_id}/attach"
            headers = {"Authorization": f"Bearer {stage.token}"}
            made = await sockets.enter_async_context(connect(address, additional_headers=headers))
            await made.recv()
            made.transport.abort()
    assert (await box.exec(exec_id))["state"] == "running"
    await box.run("touch", "go")
    assert (await box.ended(exec_id))["exit_code"] == 4
    await nothing_runs(guest)
    await settles(stage, descriptors)


async def test_a_foreground_caller_who_leaves_takes_the_command_along(stage: Stage, box: Box) -> None:
    guest, _ = await quiet(stage, box)
    body = b'{"command":["sh","-c","setsid sleep 600 & sleep 600"],"id":"left-alone"}'
    caller = await open_raw(stage, f"POST /api/v1/sandboxes/{box.id}/execs")
    caller.sendall(b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async def runs() -> bool:
        return list(below(guest).values()).count("sleep") == 2

    await until(runs, "the command and its daemon run")
    caller.close()
    await nothing_runs(guest)
    assert (await box.ended("left-alone"))["state"] == "canceled"
