"""The runtimes of this server, by name."""

from __future__ import annotations

from pathlib import Path

from paddock.runtimes.base import Runtime
from paddock.runtimes.bubblewrap import BubblewrapRuntime


def make_runtimes(data_dir: Path, *, allow_fake: bool) -> dict[str, Runtime]:
    runtimes: list[Runtime] = [BubblewrapRuntime(data_dir)]
    if allow_fake:
        from paddock.runtimes.fake import FakeRuntime

        runtimes.append(FakeRuntime())
    return {runtime.name: runtime for runtime in runtimes}
