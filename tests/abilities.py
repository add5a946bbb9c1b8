"""`@pytest.mark.needs("bwrap", "cgroup-memory")`: skips a test by the name of what this machine cannot do.

An ability is proven by using it, once per process and only when a test asks. The end of the run lists what
was missing and how many tests that cost.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

PROBES: dict[str, Callable[[], bool]] = {}
MISSING_PREFIX = "missing ability: "


def probe(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    def register(function: Callable[[], bool]) -> Callable[[], bool]:
        PROBES[name] = function
        return function

    return register


@functools.cache
def has(ability: str) -> bool:
    try:
        return PROBES[ability]()
    except (OSError, subprocess.SubprocessError):
        return False


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


def _succeeds(*command: str) -> bool:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
    )
    return done.returncode == 0


@probe("root")
def _root() -> bool:
    return os.geteuid() == 0


@probe("bwrap")
def _bwrap() -> bool:
    return _succeeds("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true")


@probe("cc")
def _cc() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("int main(void) { return 0; }\n")
        program = str(Path(folder, "probe"))
        return _succeeds("cc", "-static", "-o", program, str(source)) and _succeeds(program)


@probe("podman")
def _podman() -> bool:
    return find_program("podman") is not None and find_program("runc") is not None


@probe("busybox")
def _busybox() -> bool:
    program = find_program("busybox")
    return program is not None and _succeeds(program, "true")


@probe("tmux")
def _tmux() -> bool:
    return _succeeds("tmux", "-V")


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's server programs, which distributions keep out of PATH."""
    on_path = find_program("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    return found[-1].parent if found else None


@probe("postgres")
def _postgres() -> bool:
    folder = postgres_bin()
    return folder is not None and _succeeds(str(folder / "initdb"), "--version")


def _cgroup_bases(controller: str) -> list[tuple[Path, bool]]:
    """Mounted hierarchies that could hold `controller`, as (folder, is it version 2)."""
    bases = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.partition(" ")
        folder = Path(left.split()[4])
        if kind == "cgroup2":
            bases.append((folder, True))
        elif kind == "cgroup" and controller in options.split()[-1].split(","):
            bases.append((folder, False))
    return bases


def _cgroup_works(controller: str, v1_knob: str, v1_value: str, v2_knob: str, v2_value: str) -> bool:
    return any(
        _cgroup_base_works(base, controller, *((v2_knob, v2_value) if is_v2 else (v1_knob, v1_value)), is_v2)
        for base, is_v2 in _cgroup_bases(controller)
    )


def _cgroup_base_works(base: Path, controller: str, knob: str, value: str, is_v2: bool) -> bool:
    child = base / f"paddock-test-probe-{os.getpid()}"
    try:
        if is_v2 and controller != "freezer":
            if controller not in (base / "cgroup.controllers").read_text().split():
                return False
            if controller not in (base / "cgroup.subtree_control").read_text().split():
                (base / "cgroup.subtree_control").write_text(f"+{controller}")
        child.mkdir()
    except OSError:
        return False
    try:
        (child / knob).write_text(value)
        return True
    except OSError:
        return False
    finally:
        child.rmdir()


@probe("cgroup-memory")
def _cgroup_memory() -> bool:
    return _cgroup_works("memory", "memory.limit_in_bytes", "67108864", "memory.max", "67108864")


@probe("cgroup-pids")
def _cgroup_pids() -> bool:
    return _cgroup_works("pids", "pids.max", "64", "pids.max", "64")


@probe("cgroup-cpu")
def _cgroup_cpu() -> bool:
    return _cgroup_works("cpu", "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000")


@probe("cgroup-freezer")
def _cgroup_freezer() -> bool:
    return _cgroup_works("freezer", "freezer.state", "THAWED", "cgroup.freeze", "0")


@probe("loop-mount")
def _loop_mount() -> bool:
    mkfs = find_program("mkfs.ext4")
    if mkfs is None or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        image, target = Path(folder, "image"), Path(folder, "target")
        target.mkdir()
        with image.open("wb") as file:
            file.truncate(8 << 20)
        if not _succeeds(mkfs, "-q", str(image)) or not _succeeds(
            "mount", "-o", "loop", str(image), str(target)
        ):
            return False
        return _succeeds("umount", str(target))


ORDINARY_UID = 65533


@functools.cache
def ordinary_python() -> tuple[str, dict[str, str]] | None:
    """A Python, and an environment, with which uid 65533 can run this checkout; None where it cannot.

    The virtual environment's own interpreter may lie in a folder that is closed to others: then the
    system's, where it is of the same version, can use the environment's packages.
    """
    root = Path(__file__).resolve().parents[1]
    same_version = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    packages = sysconfig.get_path("purelib")
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "PYTHONPATH": f"{root}:{root / 'src'}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
    }
    for python in (sys.executable, same_version):
        if os.access(python, os.X_OK) and _imports(python, environment):
            return python, environment
    return None


def _imports(python: str, environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import paddock.sandboxes.service, uvloop, tests"],
            user=ORDINARY_UID,
            group=ORDINARY_UID,
            extra_groups=[],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
        )
    except OSError:
        return False
    return done.returncode == 0


@probe("ordinary-user")
def _ordinary_user() -> bool:
    """Root can become uid 65533, and that user can enter this checkout and run its Python."""
    return os.geteuid() == 0 and ordinary_python() is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for ability in mark.args:
            if ability not in PROBES:
                pytest.fail(
                    f"no such ability: {ability!r} (known: {', '.join(sorted(PROBES))})", pytrace=False
                )
            if not has(ability):
                pytest.skip(f"{MISSING_PREFIX}{ability}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if MISSING_PREFIX in reason:
            missing[reason.split(MISSING_PREFIX, 1)[1].strip()] += 1
    if missing:
        terminalreporter.section("abilities missing on this machine")
        for ability, count in sorted(missing.items()):
            terminalreporter.write_line(f"{ability}: {count} test{'s' if count != 1 else ''} skipped")
