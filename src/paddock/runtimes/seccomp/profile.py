"""Reads a container seccomp profile (the JSON of Podman and Docker) for a process without capabilities."""

from __future__ import annotations

import errno
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import errors

PROFILES = (
    Path("/etc/containers/seccomp.json"),
    Path("/usr/share/containers/seccomp.json"),
    Path("/usr/local/share/containers/seccomp.json"),
    Path("/etc/docker/seccomp.json"),
    Path("/usr/share/docker/seccomp.json"),
    Path("/usr/share/docker.io/seccomp.json"),
)
"""Where distributions put their maintained default profile; the administrator's own comes first."""

ALLOW = "SCMP_ACT_ALLOW"
ERRNO = "SCMP_ACT_ERRNO"

# The kernel's name of a machine, and what profiles call it: in `archMap`; in `includes` and `excludes`.
_MACHINES = {
    "x86_64": ("SCMP_ARCH_X86_64", {"amd64", "x86_64"}),
    "aarch64": ("SCMP_ARCH_AARCH64", {"arm64", "aarch64"}),
    "ppc64le": ("SCMP_ARCH_PPC64LE", {"ppc64le"}),
    "s390x": ("SCMP_ARCH_S390X", {"s390x"}),
    "riscv64": ("SCMP_ARCH_RISCV64", {"riscv64"}),
}


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on one argument of a system call."""

    index: int
    op: str
    value: int
    value_two: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    action: str
    errno: int = errno.EPERM
    args: tuple[Compare, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What a filter has to do, before it is compiled. `architectures` are those besides the machine's own."""

    default_action: str
    default_errno: int
    architectures: tuple[str, ...]
    rules: tuple[Rule, ...]


def find_profile(candidates: tuple[Path, ...] = PROFILES) -> Path:
    for path in candidates:
        if path.is_file():
            return path
    raise errors.Unavailable(
        "no default seccomp profile was found on this host",
        reason="seccomp_profile_missing",
        hint="install the package that carries it: golang-github-containers-common (Debian, Ubuntu) or "
        f"containers-common (Fedora, Arch, openSUSE); looked for {', '.join(map(str, candidates))}",
    )


def read_program(path: Path, *, machine: str | None = None, kernel: str | None = None) -> Program:
    try:
        document = json.loads(path.read_bytes())
        return evaluate(document, machine or platform.machine(), kernel or os.uname().release)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise errors.Unavailable(
            f"the seccomp profile {path} cannot be read: {problem}",
            reason="seccomp_profile_invalid",
            hint="reinstall the package that owns it",
        ) from problem


def evaluate(document: dict[str, Any], machine: str, kernel: str) -> Program:
    """The profile's rules that hold on this machine and kernel for a process without capabilities."""
    if machine not in _MACHINES:
        raise ValueError(f"no seccomp architecture is known for {machine}")
    token, names = _MACHINES[machine]
    extra: tuple[str, ...] = ()
    for entry in document.get("archMap") or ():
        if entry["architecture"] == token:
            extra = tuple(entry.get("subArchitectures") or ())
    rules: list[Rule] = []
    for entry in document["syscalls"]:
        if _applies(entry, names, kernel):
            rules.extend(_rules(entry))
    return Program(
        default_action=document["defaultAction"],
        default_errno=int(document.get("defaultErrnoRet") or errno.EPERM),
        architectures=extra,
        rules=tuple(rules),
    )


def _applies(entry: dict[str, Any], architectures: set[str], kernel: str) -> bool:
    includes, excludes = entry.get("includes") or {}, entry.get("excludes") or {}
    if includes.get("caps"):
        return False
    if includes.get("arches") and not architectures & set(includes["arches"]):
        return False
    if excludes.get("arches") and architectures & set(excludes["arches"]):
        return False
    if includes.get("minKernel") and _version(kernel) < _version(includes["minKernel"]):
        return False
    return not (excludes.get("minKernel") and _version(kernel) >= _version(excludes["minKernel"]))


def _rules(entry: dict[str, Any]) -> list[Rule]:
    args = tuple(
        Compare(int(arg["index"]), arg["op"], int(arg["value"]), int(arg.get("valueTwo") or 0))
        for arg in entry.get("args") or ()
    )
    number = entry.get("errnoRet")
    names = entry.get("names") or [entry["name"]]
    return [
        Rule(name, entry["action"], errno.EPERM if number is None else int(number), args) for name in names
    ]


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    minor = rest.split(".")[0].split("-")[0]
    return int(major), int(minor or 0)
