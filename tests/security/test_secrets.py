"""A token's value is given once, to who made it, and is nowhere else; nor is a guest's secret."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.serving import Process
from tests.integration.test_serve import create

pytestmark = pytest.mark.needs("cc")


@contextlib.asynccontextmanager
async def server(folder: Path) -> AsyncIterator[Process]:
    started = Process(folder, log_level="debug")
    try:
        yield started
    finally:
        started.popen.terminate()
        started.popen.wait(30)


def _holds(path: Path, wanted: bytes) -> bool:
    with contextlib.suppress(OSError):
        return wanted in path.read_bytes()
    return False


def _process_list() -> bytes:
    listed = b""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                listed += Path(f"/proc/{name}/cmdline").read_bytes()
                listed += Path(f"/proc/{name}/environ").read_bytes()
    return listed


async def test_tokens_are_nowhere(tmp_path: Path) -> None:
    """Not in the log, even of everything; in the audit log, the database, a file or a command line."""
    folder = tmp_path / "data"
    async with server(folder) as running:
        async with running.client() as client:
            admin = (folder / "admin-token").read_text().strip()
            body = {"name": "spoken-of", "role": "operator"}
            secret = (await client.post("/api/v1/tokens", json=body)).json()["secret"]
            mine = {"Authorization": f"Bearer {secret}"}
            sandbox = await create(client)
            base = f"/api/v1/sandboxes/{sandbox}"
            done = await client.post(f"{base}/execs", json={"command": ["env"]}, headers=mine)
            wrong = {"Authorization": f"Bearer {secret}x"}
            assert (await client.get("/api/v1/info", headers=wrong)).status_code == 401
            await client.get(f"{base}?token={secret}x", headers=mine)
            await client.post("/api/v1/tokens", json={"name": "no", "role": "king"}, headers=mine)
            texts = {
                "environment inside": done.text,
                "tokens": (await client.get("/api/v1/tokens")).text,
                "audit": (await client.get("/api/v1/audit")).text,
                "info": (await client.get("/api/v1/info")).text,
                "doctor": (await client.get("/api/v1/doctor")).text,
                "metrics": (await client.get("/metrics")).text,
                "sandbox": (await client.get(base)).text,
                "log": running.log.read_text(),
                "server.json": (folder / "server.json").read_text(),
            }
            assert "spoken-of" in texts["tokens"]
            assert "spoken-of" in texts["audit"]
            assert base in texts["log"], "the log does not tell of requests: that proves nothing"
            for where, text in texts.items():
                assert admin not in text, where
                assert secret not in text, where
            listed = _process_list()
            assert admin.encode() not in listed
            assert secret.encode() not in listed
            holding = [path.name for path in folder.rglob("*") if _holds(path, admin.encode())]
            assert holding == ["admin-token"]
            assert not [path for path in folder.rglob("*") if _holds(path, secret.encode())]
            assert (await client.delete(base)).status_code == 200


async def test_private_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    old = os.umask(0)
    try:
        async with server(folder) as running:
            await running.ready()
            assert (folder / "admin-token").stat().st_mode & 0o077 == 0
            assert (folder / "private").stat().st_mode & 0o077 == 0
            assert (folder / "logs").stat().st_mode & 0o077 == 0
            assert folder.stat().st_mode & 0o066 == 0, "others may pass through at most"
            assert (folder / "tenants").stat().st_mode & 0o066 == 0
            assert (folder / "sandboxes").stat().st_mode & 0o066 == 0
    finally:
        os.umask(old)
