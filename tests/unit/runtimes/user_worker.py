"""Run by a test as an ordinary user: makes a sandbox, looks at it, recovers it, ends it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from paddock import errors
from paddock.runtimes import bwrap_host
from paddock.runtimes.base import Instance, Limits, Spec
from paddock.runtimes.bubblewrap import BubblewrapRuntime


async def ask(instance: Instance, line: str) -> str:
    assert instance.link is not None
    instance.link.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(instance.link, line.encode() + b"\n")
    received = b""
    while b"\0" not in received:
        received += await loop.sock_recv(instance.link, 65536)
    return received.partition(b"\0")[0].decode()


async def main(data_dir: Path, stub: Path) -> dict[str, object]:
    setattr(bwrap_host, "guest_binary", lambda: stub)  # noqa: B010
    folder = data_dir / "sandboxes" / "one"
    folder.mkdir(parents=True)
    spec = Spec("one", folder, 1, limits=Limits(memory=1 << 30, cpus=None, processes=64, disk=1 << 30))
    runtime = BubblewrapRuntime(data_dir)
    instance = await runtime.create(spec)
    seen: dict[str, object] = {
        "uid": await ask(instance, "id -u"),
        "written": await ask(instance, "echo x > /workspace/file; cat /workspace/file"),
        "nested": await ask(instance, "unshare -U true && echo possible"),
        "links": await ask(instance, "tail -n +3 /proc/net/dev | cut -d: -f1"),
        "seccomp": await ask(instance, "grep Seccomp_filters /proc/self/status"),
        "enforcement": {name: str(value) for name, value in instance.enforcement.items()},
        "peer": instance.peer_uid == os.getuid(),
        "disk": (await runtime.stats(instance)).disk,
    }
    await ask(
        instance,
        "mkdir -p /workspace/locked/inner; touch /workspace/locked/inner/f; chmod 0 /workspace/locked",
    )
    try:
        await runtime.pause(instance)
        await runtime.resume(instance)
        seen["pause"] = "works"
    except errors.Unsupported as problem:
        seen["pause"] = problem.reason
    again = BubblewrapRuntime(data_dir)
    seen["orphans"] = await again.orphans(set())
    found = await again.recover(spec, instance.handle)
    seen["recovered"] = found is not None and found.pid == instance.pid
    await runtime.kill(instance)
    seen["exited"] = runtime.exited(instance)
    await runtime.destroy(spec, instance.handle)
    seen["left"] = [*await runtime.orphans(set()), *os.listdir(data_dir / "sandboxes")]
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))))
