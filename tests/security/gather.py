"""Plays all probes, inside a sandbox or as a control outside, and prints what they got.

A program of its own, so that an ordinary user plays them exactly as root does:
`python -m tests.security.gather inside|control`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.contract.world import World
from tests.security.canaries import canaries

PROGRAMS = ("kernel", "view", "neighbours")
FOLDER = Path(__file__).parent / "inside"
PYTHON = "/usr/bin/python3"

WEAK = (
    "bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--tmpfs", "/var/tmp",
    "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--new-session",
)  # fmt: skip
"""A sandbox that holds nothing back but writing: its root is root in a namespace of its own, and on the host
an ordinary user.
"""
OWN = {
    "kernel": (
        "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--unshare-net", "--unshare-cgroup",
        "--proc", "/proc",
    ),
    "view": (),
}  # fmt: skip

Results = dict[str, dict[str, Any]]


async def inside() -> Results:
    # Left open on purpose, as a careless caller of the server might: it must not be seen inside.
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
    world = await World.open("bubblewrap")
    try:
        with canaries() as facts:
            os.environ["PADDOCK_CANARY"] = facts["word"]
            box = await world.create(environment={})
            other = await world.create(tenant="somebody-else")
            await world.write(other.id, "secret", b"of another sandbox")
            await world.write(other.id, "/tmp/secret", b"of another sandbox")
            facts["files"] |= _data_files(world, other.id)
            results = {}
            for name in ("harness", *PROGRAMS):
                await world.write(box.id, f"probes/{name}.py", (FOLDER / f"{name}.py").read_bytes())
            for name in PROGRAMS:
                done = await world.run(
                    box.id, PYTHON, "-B", f"probes/{name}.py", environment={"FACTS": json.dumps(facts)}
                )
                assert done.exit_code == 0, (name, done.stderr)
                results[name] = json.loads(done.stdout)
            after = await world.run(box.id, "echo", "still here")
            results["after"] = {"guest": after.stdout}
            return results
    finally:
        for sandbox in world.service.list():
            await world.service.delete(sandbox.id)
        await world.close()


def _data_files(world: World, other: str) -> dict[str, str]:
    """The data folder's own files, and those of another sandbox, as paths of the host."""
    folder = world.folder
    tenant = [path for path in (folder / "tenants").rglob("secret") if path.is_file()]
    assert tenant, "the tenant's file is not where this test looks for it"
    return {
        "database": str(folder / "private" / "paddock.db"),
        "guest's program": next(str(path) for path in (folder / "system").glob("guest-*")),
        "another sandbox": str(folder / "sandboxes" / other / "data" / "tmp" / "secret"),
        "another tenant": str(tenant[0]),
    }


def control() -> Results:
    """What probes get where nothing holds them back. Never as the host's root, whom nothing would stop."""
    assert os.geteuid() != 0
    results = {}
    with canaries() as facts:
        for name, own in OWN.items():
            done = subprocess.run(
                [*WEAK, *own, PYTHON, "-B", str(FOLDER / f"{name}.py")],
                env={**os.environ, "FACTS": json.dumps(facts), "OUTSIDE": "1", "TMPDIR": "/var/tmp"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode(errors="replace")
            results[name] = json.loads(done.stdout)
    return results


def main() -> None:
    results = asyncio.run(inside()) if sys.argv[1] == "inside" else control()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
