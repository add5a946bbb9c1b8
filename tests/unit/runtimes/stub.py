"""A guest that runs shell lines: enough to look at a sandbox from inside without the real one's protocol."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from paddock.runtimes.base import Instance

_SOURCE = Path(__file__).with_name("stub_guest.c")


@functools.cache
def stub_guest() -> Path:
    """Compiled once per test process, in a place that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-stub-", dir="/tmp"))
    folder.chmod(0o755)
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "stub-guest"
    subprocess.run(
        ["cc", "-O1", "-static", "-o", str(target), str(_SOURCE)], check=True, stdin=subprocess.DEVNULL
    )
    target.chmod(0o755)
    return target


@dataclass(frozen=True)
class Outcome:
    output: str
    status: int


async def inside(instance: Instance, line: str, seconds: float = 30) -> Outcome:
    """Run one shell line in the sandbox."""
    assert instance.link is not None
    loop = asyncio.get_running_loop()
    instance.link.setblocking(False)
    async with asyncio.timeout(seconds):
        await loop.sock_sendall(instance.link, line.encode() + b"\n")
        received = b""
        while b"\0" not in received or not received.endswith(b"\n"):
            chunk = await loop.sock_recv(instance.link, 65536)
            if not chunk:
                raise ConnectionError(f"the stub guest ended: {received!r}")
            received += chunk
    output, _, status = received.partition(b"\0")
    return Outcome(output.decode(errors="replace"), int(status))


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
