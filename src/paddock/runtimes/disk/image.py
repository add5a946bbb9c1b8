"""An exact disk limit: a sparse file with a file system of that size, mounted at the sandbox's folders."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from pathlib import Path

from paddock import errors

SMALLEST = 2 << 20
_ADMIN_PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin"
_UNMOUNT_SECONDS = 10.0


def can_mount() -> bool:
    """Whether it is worth trying: only a mount itself proves it."""
    return os.geteuid() == 0 and _program("mkfs.ext4") is not None and Path("/dev/loop-control").exists()


def mount_image(image: Path, target: Path, size: int, owner: int) -> None:
    """Make the image and mount it. Blocks: call it in a thread. Leaves nothing when it fails."""
    if size < SMALLEST:
        raise errors.Invalid(
            f"a disk limit of {size} bytes is too small",
            reason="disk_too_small",
            hint=f"at least {SMALLEST} bytes",
        )
    target.mkdir(exist_ok=True)
    try:
        fd = os.open(image, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(fd, size)
        except OSError as problem:
            if problem.errno != errno.EFBIG:
                raise
            raise errors.Invalid(
                f"this host's file system has no room for a disk of {size} bytes",
                reason="disk_limit_too_large",
                hint="ask for a smaller disk",
            ) from problem
        finally:
            os.close(fd)
        # No journal: what a crash of the host leaves is not used again. No reserve for root.
        options = f"lazy_itable_init=1,nodiscard,root_owner={owner}:{owner}"
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", options, str(image))
        _run("mount", "-t", "ext4", "-o", "loop,nodev,nosuid,noatime", str(image), str(target))
        shutil.rmtree(target / "lost+found", ignore_errors=True)
    except BaseException:
        unmount_image(image, target)
        image.unlink(missing_ok=True)
        raise


def unmount_image(image: Path, target: Path) -> None:
    """Unmount and let go of the loop device. Blocks: call it in a thread. May be repeated."""
    deadline = time.monotonic() + _UNMOUNT_SECONDS
    while is_mounted(target):
        try:
            _run("umount", str(target))
        except errors.Unavailable:
            # The kernel lets go of a dead sandbox's mounts a moment after its last process.
            if time.monotonic() > deadline:
                _run("umount", "-l", str(target))
            time.sleep(0.02)
    if image.exists():
        for device in _loop_devices(image):
            _run("losetup", "-d", device)


def is_mounted(target: Path) -> bool:
    """Asks the kernel's list: a folder of a dead sandbox cannot be trusted to look like a mount or not."""
    wanted = _escape(os.path.realpath(target))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.split(" ", 5)[4] == wanted for line in file)


def used_bytes(target: Path) -> int:
    status = os.statvfs(target)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _loop_devices(image: Path) -> list[str]:
    """Loop devices of this very image that nothing has mounted any more."""
    listed = subprocess.run(
        [_program("losetup") or "losetup", "-n", "-O", "NAME", "-j", str(image)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return listed.stdout.split()


def _escape(path: str) -> str:
    for character in "\\ \t\n":
        path = path.replace(character, f"\\{ord(character):03o}")
    return path


def _program(name: str) -> str | None:
    return shutil.which(name, path=_ADMIN_PATH)


def _run(name: str, *args: str) -> None:
    program = _program(name)
    if program is None:
        raise errors.Unavailable(
            f"{name} is not installed",
            reason="disk_image_failed",
            hint="install e2fsprogs and mount (util-linux)",
        )
    done = subprocess.run(
        [program, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise errors.Unavailable(
            f"{name} failed: {done.stderr.strip() or done.returncode}",
            reason="disk_image_failed",
            hint="run `paddock doctor`, or ask for the sandbox without an exact disk limit",
        )
