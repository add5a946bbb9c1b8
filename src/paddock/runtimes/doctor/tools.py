"""Probes of programs and resources: each is run or used, not merely looked for."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from paddock.runtimes.base import Ability
from paddock.runtimes.doctor.commands import find_program, run

_ROOM = 1 << 30
_YEAR_2024 = 1_704_067_200
_PROGRAMS = {
    "podman": "optional, for the container runtime: install podman",
    "docker": "optional, for the container runtime: install docker",
    "runc": "optional, for the container runtime: install runc",
    "crun": "optional, for the container runtime: install crun",
    "runsc": "optional, for the container runtime with gVisor: install runsc",
}


async def probe_programs() -> list[Ability]:
    return [await probe_program(name, (name,), fix) for name, fix in _PROGRAMS.items()] + [
        await _probe_qemu()
    ]


async def probe_program(name: str, candidates: tuple[str, ...], fix: str) -> Ability:
    for candidate in candidates:
        path = find_program(candidate)
        if path is not None:
            shown = await run(path, "--version")
            if shown.code == 0:
                return Ability(name, True, f"{shown.first_line} ({path})")
            return Ability(name, False, f"{path} does not run: {shown.complaint}", fix)
    return Ability(name, False, "not installed", fix)


async def _probe_qemu() -> Ability:
    machine = os.uname().machine
    fix = "optional, for the vm runtime: install qemu-system"
    return await probe_program("qemu", (f"qemu-system-{machine}", "qemu-kvm"), fix)


async def probe_compiler() -> Ability:
    """Builds what the guest is built like: a static program."""
    fix = (
        "needed only to build Paddock itself: install a C compiler with the static C library (gcc, libc6-dev)"
    )
    path = next((found for name in ("cc", "gcc", "clang") if (found := find_program(name))), None)
    if path is None:
        return Ability("compiler", False, "no C compiler was found", fix)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.c"), Path(folder, "probe")
        await asyncio.to_thread(source.write_text, "int main(void) { return 0; }\n")
        built = await run(path, "-static", "-o", str(program), str(source), seconds=60)
        ran = await run(str(program)) if built.code == 0 else built
    return Ability(
        "compiler", ran.code == 0, path if ran.code == 0 else ran.complaint, "" if ran.code == 0 else fix
    )


def probe_room(data_dir: Path) -> Ability:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=data_dir) as file:
            file.write(b"\0" * 4096)
            file.flush()
        free = shutil.disk_usage(data_dir).free
        nodes = os.statvfs(data_dir)
    except OSError as problem:
        return Ability("disk-room", False, str(problem), f"make {data_dir} writable for the server")
    detail = f"{free / (1 << 30):.1f} GiB free below {data_dir}"
    if nodes.f_files and nodes.f_favail < 10_000:
        return Ability(
            "disk-room", False, f"{detail}, but only {nodes.f_favail} files", "remove files you do not need"
        )
    return Ability("disk-room", free >= _ROOM, detail, "" if free >= _ROOM else "free at least 1 GiB")


def probe_clock() -> Ability:
    """Tokens and time limits need a clock that is set, and one that only goes forward."""
    before = time.monotonic_ns()
    if time.time() < _YEAR_2024:
        return Ability(
            "clock", False, "the clock shows a time long past", "set it, for example with `timedatectl`"
        )
    if time.monotonic_ns() < before:
        return Ability(
            "clock", False, "the monotonic clock went backwards", "check the machine's clock source"
        )
    return Ability("clock", True, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


def probe_python() -> Ability:
    return Ability(
        "python", sys.version_info >= (3, 11), sys.version.split()[0], "install Python 3.11 or later"
    )
