"""What a runtime is: it makes and holds sandboxes. Nothing more.

Processes, terminals and files are the guest's business and work the same in every runtime. A runtime is
only: probe, create, recover, kill, destroy, stats; and, for those that declare it, pause and resume.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

USER = "paddock"
"""The user inside. Never root."""
UID = 1000
HOME = "/home/paddock"
WORKSPACE = "/workspace"
OUTPUTS = "/mnt/user-data/outputs"
UID_BASE = 0x7000_0000
"""Run by root, sandbox number n has host uid and gid UID_BASE + n: no two sandboxes share an owner."""
LINK_FD = 3
"""The descriptor on which a guest finds its first link."""


class Enforcement(StrEnum):
    """How well a limit holds on this host."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use. None: not limited."""

    memory: int | None = 4 << 30
    cpus: float | None = 4.0
    processes: int | None = 512
    disk: int | None = 4 << 30
    open_files: int = 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """One sandbox to make."""

    id: str
    folder: Path
    """The sandbox's own folder on the host. It exists, is empty, and goes away with the sandbox; the runtime
    lays it out.
    """
    slot: int
    """A small number that no other live sandbox of this server has (same tenant, same slot)."""
    limits: Limits = Limits()
    storage: Path | None = None
    """A tenant's folder with `workspace` and `outputs`, which outlive the sandbox. None: both are private."""
    hostname: str = "paddock"
    environment: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    disk_exact: bool = False
    """The disk limit was asked for by name: use an exact mechanism where the host has one, though it costs
    more to set up.
    """


@dataclass(slots=True)
class Instance:
    """A sandbox as its runtime knows it."""

    handle: dict[str, Any]
    """What the runtime needs to find it again after a restart: JSON, kept in the store, opaque to everybody
    else.
    """
    pid: int
    """The guest's pid on the host (0 where there is none)."""
    link: socket.socket | None
    """The host's end of the first link; None for a recovered instance, whose guest will dial."""
    dial_folder: str = "/run/paddock"
    """The folder of `guest.sock` as the guest sees it ..."""
    socket_folder: Path = Path()
    """... and as the host does."""
    peer_uid: int = 0
    """The host uid the guest dials with."""
    enforcement: dict[str, Enforcement] = field(default_factory=dict)
    """For each of memory, cpus, processes, disk, open_files that was asked for."""
    workspace: str = WORKSPACE
    home: str = HOME
    outputs: str = OUTPUTS


@dataclass(frozen=True, slots=True)
class Stats:
    """What a sandbox uses now. None: this host cannot tell."""

    memory: int | None = None
    memory_peak: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    disk: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing a runtime or host can do, proved by doing it."""

    name: str
    works: bool
    detail: str = ""
    fix: str = ""
    """What to do about it where it does not work."""


@runtime_checkable
class Runtime(Protocol):
    """A maker of sandboxes. Every method may be called concurrently for different sandboxes, never for the
    same one.
    """

    name: str

    async def probe(self) -> list[Ability]:
        """Prove what this host can do. The first ability, named like the runtime, says whether it works at
        all. Cached by the caller.
        """

    async def create(self, spec: Spec) -> Instance:
        """Make the sandbox and start its guest, which waits for BOOT on the link. On failure, or when
        cancelled, nothing of it is left.
        """

    async def recover(self, spec: Spec, handle: dict[str, Any]) -> Instance | None:
        """Find a sandbox after a restart. None when its guest no longer runs; what is left of it then goes
        with destroy.
        """

    def exited(self, instance: Instance) -> bool:
        """Whether the guest has ended. Cheap: asked often."""

    async def wait(self, instance: Instance) -> None:
        """Return when the guest has ended. May be cancelled."""

    async def kill(self, instance: Instance) -> None:
        """End every process of the sandbox at once. When it returns none is left, paused or not. Its files
        stay. May be repeated.
        """

    async def destroy(self, spec: Spec, handle: dict[str, Any] | None) -> None:
        """Remove everything: processes, mounts, cgroups, the folder. Works on what a half-made or half-
        removed sandbox left. May be repeated.
        """

    async def stats(self, instance: Instance) -> Stats:
        """What it uses now."""

    async def orphans(self, known: set[str]) -> list[str]:
        """Ids of sandboxes of this data folder that exist on the host but are not in `known`: only those
        provably ours.
        """


@runtime_checkable
class Preparable(Protocol):
    """A runtime whose first create has more to do than the others."""

    async def prepare(self) -> None:
        """Do that ahead of time. A failure here is the first create's to tell."""


@runtime_checkable
class Pausable(Protocol):
    """A runtime that can freeze a sandbox's processes."""

    async def pause(self, instance: Instance) -> None: ...

    async def resume(self, instance: Instance) -> None: ...
