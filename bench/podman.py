"""Podman beside Paddock: the same `true`, in a container made of nothing but busybox."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_APPLETS = ("sh", "true", "sleep")
# Rootless or nested engines may not raise limits: name ones that they may set.
_OPTIONS = (
    "--runtime=runc", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Podman:
    program: str
    rootfs: Path

    def run(self) -> None:
        """A container around one `true`."""
        self._podman("run", "--rm", *_OPTIONS, "--rootfs", str(self.rootfs), "/bin/true")

    @contextlib.contextmanager
    def container(self) -> Iterator[str]:
        name = f"paddock-bench-{os.getpid()}"
        self._podman(
            "run",
            "--rm",
            "--detach",
            "--name",
            name,
            *_OPTIONS,
            "--rootfs",
            str(self.rootfs),
            "/bin/sleep",
            "100000",
        )
        try:
            yield name
        finally:
            self._podman("rm", "--force", "--time", "0", name)

    def exec(self, container: str) -> None:
        self._podman("exec", container, "/bin/true")

    def _podman(self, *arguments: str) -> None:
        done = subprocess.run(
            [self.program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"podman {arguments[0]}: {done.stderr.strip()[-500:]}")


def find_podman(folder: Path) -> Podman | str:
    """Podman, proved by a run; or why it cannot be measured."""
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None or busybox is None:
        return "podman or busybox is not installed"
    rootfs = folder / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    rootfs.chmod(0o755)
    shutil.copy(busybox, rootfs / "bin" / "busybox")
    for applet in _APPLETS:
        (rootfs / "bin" / applet).symlink_to("busybox")
    podman = Podman(program, rootfs)
    try:
        podman.run()
    except RuntimeError as problem:
        return f"podman does not work here: {problem}"
    return podman
