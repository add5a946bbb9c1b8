from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.serving import Api, Box, Process, served, settings_for


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(settings_for(tmp_path / "data")) as api:
        yield api


@pytest_asyncio.fixture
async def box(api: Api) -> Box:
    answer = await api.http.post("/api/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    return Box(api, answer.json()["id"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that the users inside real sandboxes can pass through, which pytest's own folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-integration-"))
    folder.chmod(0o711)
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def make(where: Path = folder, **settings: str) -> Process:
        started.append(Process(where, **settings))
        return started[-1]

    yield make
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait()
