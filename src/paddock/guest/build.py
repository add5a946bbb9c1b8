"""Compiles the guest and the launcher with the system's C compiler.

Needs nothing but the standard library: the package's build loads this file by its path, before anything
is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
PROGRAMS = HERE / "bin"
FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O2",
    "-static",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
    "-Werror=format-security",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-fstack-protector-strong",
)
COMPILERS = ("cc", "gcc", "clang")
ADVICE = (
    "install a C compiler and the static C library "
    "(Debian, Ubuntu: gcc libc6-dev; Fedora: gcc glibc-static; Alpine: gcc musl-dev)"
)


class BuildFailed(RuntimeError):
    """The guest could not be compiled."""


def guest_binary() -> Path:
    """The guest, built first where the sources are newer or it does not exist."""
    return _program("paddock-guest", SOURCES)


def launch_binary() -> Path:
    """The launcher of the `bubblewrap` runtime."""
    return _program("paddock-launch", SOURCES / "launch")


def build(force: bool = False) -> Path:
    """Build every program whose sources are here, and return the guest's path."""
    guest = _build("paddock-guest", SOURCES, force)
    if any((SOURCES / "launch").glob("*.c")):
        _build("paddock-launch", SOURCES / "launch", force)
    return guest


_ready: dict[str, Path] = {}


def _program(name: str, folder: Path) -> Path:
    known = _ready.get(name)
    if known is None or not known.is_file():
        if any(folder.glob("*.c")):
            known = _build(name, folder, force=False)
        else:
            known = PROGRAMS / name
            if not known.is_file():
                raise BuildFailed(f"{known} is missing, and so are its sources")
        _ready[name] = known
    return known


def _build(name: str, folder: Path, force: bool) -> Path:
    target = PROGRAMS / name
    stamp = PROGRAMS / f".{name}.key"
    key = _key(folder)
    if not force and _is_current(target, stamp, key):
        return target
    if not os.access(PROGRAMS if PROGRAMS.is_dir() else HERE, os.W_OK) and target.is_file():
        return target  # an installed copy that this user cannot change
    PROGRAMS.mkdir(exist_ok=True)
    with _lock(PROGRAMS / ".lock"):
        if force or not _is_current(target, stamp, key):
            _compile(sorted(folder.glob("*.c")), target)
            _replace(stamp, key)
    return target


def _key(folder: Path) -> str:
    digest = hashlib.sha256(repr(FLAGS).encode())
    for source in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def _is_current(target: Path, stamp: Path, key: str) -> bool:
    try:
        return target.is_file() and stamp.read_text() == key
    except OSError:
        return False


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(sources: list[Path], target: Path) -> None:
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise BuildFailed(f"no C compiler was found (looked for {', '.join(COMPILERS)}): {ADVICE}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        built = Path(folder, target.name)
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(built), *map(str, sources)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            advice = f": {ADVICE}" if "-lc" in done.stderr or "stdio.h" in done.stderr else ""
            raise BuildFailed(f"{compiler} could not build {target.name}{advice}\n{done.stderr}")
        built.chmod(0o755)
        built.replace(target)


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


if __name__ == "__main__":
    print(build(force=True))
