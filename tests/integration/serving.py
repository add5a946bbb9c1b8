"""A real server on a real port, with the `fake` runtime: sandboxes are plain processes, the rest is real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from paddock.config import Settings
from paddock.server.run import Running, running

PATIENCE = 30.0
RUN = "from paddock.config import load; from paddock.server.run import serve; serve(load())"


@dataclass(frozen=True)
class Api:
    """A server and a client that is its admin."""

    server: Running
    http: httpx2.AsyncClient
    admin: str

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ws_url(self) -> str:
        return self.server.url.replace("http://", "ws://")

    def headers(self, secret: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret or self.admin}"}

    async def token(self, name: str, role: str) -> str:
        answer = await self.http.post("/api/v1/tokens", json={"name": name, "role": role})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["secret"])


@dataclass(frozen=True)
class Box:
    """One sandbox of that server."""

    api: Api
    id: str

    @property
    def path(self) -> str:
        return f"/api/v1/sandboxes/{self.id}"

    async def run(self, *command: str, **more: Any) -> dict[str, Any]:
        answer = await self.api.http.post(f"{self.path}/execs", json={"command": list(command), **more})
        assert answer.status_code in (200, 202), answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def start(self, *command: str, **more: Any) -> str:
        return str((await self.run(*command, background=True, **more))["id"])

    async def ended(self, exec_id: str) -> dict[str, Any]:
        answer = await self.api.http.get(f"{self.path}/execs/{exec_id}/wait", params={"timeout": PATIENCE})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@contextlib.asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[Api]:
    async with running(settings) as server:
        admin = (settings.data_dir / "admin-token").read_text().strip()
        async with httpx2.AsyncClient(
            base_url=server.url,
            headers={"Authorization": f"Bearer {admin}"},
            timeout=PATIENCE,
            trust_env=False,
        ) as http:
            try:
                yield Api(server, http, admin)
            finally:
                for sandbox in server.services.sandboxes.list():
                    await server.services.sandboxes.delete(sandbox.id)


def settings_for(folder: Path, **more: Any) -> Settings:
    return Settings(**{"port": 0, "data_dir": folder, "default_runtime": "fake", "log_level": "error"} | more)


async def eventually(check: Any) -> None:
    """Wait until `check()` (or what it awaits) is true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            result = check()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(0.02)


class Process:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder.parent),
            "PADDOCK_DATA_DIR": str(folder),
            "PADDOCK_PORT": "0",
            "PADDOCK_DEFAULT_RUNTIME": "fake",
        }
        environment |= {f"PADDOCK_{name.upper()}": value for name, value in settings.items()}
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", RUN],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def where(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / "server.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found["pid"] == self.popen.pid else None

    async def ready(self) -> None:
        def answers() -> bool:
            if self.popen.poll() is not None:
                pytest.fail(f"the server ended:\n{self.log.read_text()}")
            return self.where is not None

        await eventually(answers)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        await self.ready()
        assert self.where is not None
        secret = (self.folder / "admin-token").read_text().strip()
        async with httpx2.AsyncClient(
            base_url=self.where["url"],
            headers={"Authorization": f"Bearer {secret}"},
            timeout=PATIENCE,
            trust_env=False,
        ) as client:
            yield client

    async def ends(self) -> int:
        await eventually(lambda: self.popen.poll() is not None)
        return self.popen.wait()
