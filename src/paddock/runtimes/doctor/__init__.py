"""What this host can do, proved by doing it. `paddock doctor` prints it."""

from __future__ import annotations

from pathlib import Path

from paddock.runtimes.base import Ability
from paddock.runtimes.doctor.isolation import probe_bwrap, probe_namespaces, probe_sandbox, probe_seccomp
from paddock.runtimes.doctor.kvm import probe_kvm
from paddock.runtimes.doctor.limits import probe_exact_disk, probe_limits
from paddock.runtimes.doctor.tools import (
    probe_clock,
    probe_compiler,
    probe_programs,
    probe_python,
    probe_room,
)

__all__ = ["diagnose", "diagnose_bubblewrap"]


async def diagnose(data_dir: Path) -> list[Ability]:
    """Everything. Takes a second or two; changes nothing that stays."""
    return [
        *await diagnose_bubblewrap(data_dir),
        await probe_kvm(),
        *await probe_programs(),
        await probe_compiler(),
        probe_room(data_dir),
        probe_clock(),
        probe_python(),
    ]


async def diagnose_bubblewrap(data_dir: Path) -> list[Ability]:
    """What the bubblewrap runtime builds on. The first says whether it works at all."""
    return [
        await probe_sandbox(data_dir),
        await probe_bwrap(),
        await probe_namespaces(),
        await probe_seccomp(),
        *await probe_limits(),
        await probe_exact_disk(),
    ]
