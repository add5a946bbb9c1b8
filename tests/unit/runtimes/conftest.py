from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.runtimes import bwrap_host, host_view
from paddock.runtimes.base import Instance, Spec
from paddock.runtimes.bubblewrap import BubblewrapRuntime
from paddock.runtimes.bwrap_remains import titled_processes
from paddock.runtimes.cgroups import find_cgroups, instance_key
from tests.unit.runtimes.stub import stub_guest


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Where every user may pass: pytest's own temporary folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-test-", dir="/tmp")).resolve()
    folder.chmod(0o711)
    yield folder
    left = [str(process) for process in titled_processes(instance_key(folder))]
    cgroups = find_cgroups(instance_key(folder))
    left += [str(root) for root in (cgroups.roots() if cgroups else []) if root.exists()]
    left += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    if not left:
        shutil.rmtree(folder)
    assert left == []


class Maker:
    """Makes sandboxes with the stub guest, and destroys at the end whatever a test has not."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.runtime = BubblewrapRuntime(data_dir)
        self._made: list[tuple[Spec, Instance]] = []
        (data_dir / "sandboxes").mkdir()
        (data_dir / "sandboxes").chmod(0o711)

    def spec(self, name: str = "one", slot: int = 1, **fields: Any) -> Spec:
        folder = self.data_dir / "sandboxes" / name
        folder.mkdir()
        return Spec(name, folder, slot, **fields)

    async def create(self, spec: Spec) -> Instance:
        instance = await self.runtime.create(spec)
        self._made.append((spec, instance))
        return instance

    async def close(self) -> None:
        for spec, instance in self._made:
            if instance.link is not None:
                instance.link.close()
            await self.runtime.destroy(spec, instance.handle)


@pytest.fixture
async def maker(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Maker]:
    monkeypatch.setattr(bwrap_host, "guest_binary", stub_guest)
    # Hundreds of links to certificates, in each test's data folder, would only take time.
    monkeypatch.setattr(host_view, "_ETC", ("ld.so.*", "localtime", "ssl/openssl.cnf"))
    made = Maker(data_dir)
    yield made
    await made.close()
