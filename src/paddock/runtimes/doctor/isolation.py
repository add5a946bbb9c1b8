"""Probes of what keeps a sandbox in: bwrap, namespaces, the filter of system calls, and a whole sandbox."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from paddock import errors
from paddock.runtimes.base import UID_BASE, Ability, Instance, Limits, Spec
from paddock.runtimes.bubblewrap import BubblewrapRuntime
from paddock.runtimes.bwrap_host import find_bwrap, read_features
from paddock.runtimes.disk import remove_tree
from paddock.runtimes.doctor.commands import run
from paddock.runtimes.seccomp import compiled_filters, find_profile

PROBE_SLOT = 0x00FF_FFFF
"""A number that no sandbox gets."""
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_DEBIAN = Path("/proc/sys/kernel/unprivileged_userns_clone")
_MOST = Path("/proc/sys/user/max_user_namespaces")
_PROBE = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
    "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true",
)  # fmt: skip


async def probe_bwrap() -> Ability:
    try:
        path = find_bwrap()
        features = read_features(path)
    except errors.Unavailable as problem:
        return Ability("bwrap", False, problem.message, problem.hint or "")
    shown = await run(path, "--version")
    extra = "" if features.disable_userns else "; nested namespaces are kept out by seccomp alone"
    return Ability("bwrap", shown.code == 0, f"{shown.first_line} ({path}){extra}")


async def probe_namespaces() -> Ability:
    """As the user that a sandbox has: what root may do proves nothing for it."""
    try:
        path = find_bwrap()
    except errors.Unavailable as problem:
        return Ability("namespaces", False, problem.message, problem.hint or "")
    user = UID_BASE + PROBE_SLOT if os.geteuid() == 0 else None
    done = await run(path, *_PROBE, user=user)
    if done.code == 0:
        return Ability("namespaces", True, "user, pid, mount, network, ipc, uts and cgroup namespaces")
    return Ability("namespaces", False, done.complaint, namespace_fix())


def namespace_fix(apparmor: Path = _APPARMOR, debian: Path = _DEBIAN, most: Path = _MOST) -> str:
    """Which of the distribution's switches is in the way."""
    if _read(apparmor) == "1":
        return (
            "AppArmor restricts user namespaces: give bwrap a profile that has `userns,`, "
            "or run `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
        )
    if _read(debian) == "0":
        return "user namespaces are switched off: run `sysctl kernel.unprivileged_userns_clone=1`"
    if _read(most) == "0":
        return "no user namespace is allowed: run `sysctl user.max_user_namespaces=10000`"
    return "inside a container: start it with --privileged, or with a profile that allows user namespaces"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


async def probe_seccomp() -> Ability:
    try:
        filters = compiled_filters()
        path = find_profile()
    except errors.Unavailable as problem:
        return Ability("seccomp", False, problem.message, problem.hint or "")
    instructions = sum(len(program) // 8 for program in filters)
    return Ability("seccomp", True, f"{path}, compiled to {instructions} instructions")


async def probe_sandbox(data_dir: Path) -> Ability:
    """The proof of it all: make a sandbox as they are always made, and end it.

    In a data folder of its own, so that a server that runs beside it does not take it for one of its own.
    """
    name = BubblewrapRuntime.name
    try:
        place = await asyncio.to_thread(_make_place, data_dir)
    except OSError as problem:
        return Ability(name, False, str(problem), f"make {data_dir} writable for the server")
    try:
        return await _try_sandbox(name, place)
    finally:
        await asyncio.to_thread(remove_tree, place)


def _make_place(data_dir: Path) -> Path:
    data_dir.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="doctor-", dir=data_dir))


async def _try_sandbox(name: str, place: Path) -> Ability:
    runtime = BubblewrapRuntime(place)
    folder = place / "sandbox"
    folder.mkdir()
    unlimited = Limits(memory=None, cpus=None, processes=None, disk=None)
    spec = Spec("doctor", folder, PROBE_SLOT, limits=unlimited)
    instance: Instance | None = None
    try:
        instance = await runtime.create(spec)
        return Ability(name, True, "a sandbox was made")
    except errors.PaddockError as problem:
        return Ability(name, False, problem.message, problem.hint or "")
    finally:
        if instance is not None and instance.link is not None:
            instance.link.close()
        await runtime.destroy(spec, instance.handle if instance else None)
