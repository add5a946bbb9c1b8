"""The command line of `bwrap` for a sandbox. No I/O: what goes in decides what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.runtimes.base import HOME, OUTPUTS, UID, WORKSPACE
from paddock.runtimes.host_view import HostView

DIAL_FOLDER = "/run/paddock"
GUEST = f"{DIAL_FOLDER}/init"
INFO_FD, READY_FD, FIRST_FILTER_FD = 4, 5, 6
"""The guest closes READY_FD as it starts; bwrap itself closes the others."""

_SHM_MOST = 1 << 30
_SHM_LEAST = 16 << 20


@dataclass(frozen=True, slots=True)
class Features:
    """What this host's bwrap can do beyond what every supported version can."""

    disable_userns: bool


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of the host that a sandbox may write to."""

    workspace: Path
    home: Path
    tmp: Path
    outputs: Path
    run: Path
    """Read-only inside: holds the guest's program and, later, the socket it dials."""


def shared_args(view: HostView, features: Features, filters: int) -> list[str]:
    """The part that is the same for every sandbox of this server."""
    args = [
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup",
        "--uid", str(UID), "--gid", str(UID),
        "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv",
        "--info-fd", str(INFO_FD),
    ]  # fmt: skip
    if features.disable_userns:
        args.append("--disable-userns")
    for number in range(filters):
        args += ["--add-seccomp-fd", str(FIRST_FILTER_FD + number)]
    for folder in view.folders:
        args += ["--ro-bind", folder, folder]
    for target, place in view.symlinks:
        args += ["--symlink", target, place]
    args += ["--ro-bind", str(view.etc), "/etc"]
    args += ["--proc", "/proc", "--dev", "/dev"]
    return args


def sandbox_args(places: Places, hostname: str, memory: int | None) -> list[str]:
    """The part that is one sandbox's own. The root and /dev are closed last, when everything is in place."""
    return [
        "--hostname", hostname,
        "--bind", str(places.workspace), WORKSPACE,
        "--bind", str(places.home), HOME,
        "--bind", str(places.tmp), "/tmp",
        "--symlink", "/tmp", "/var/tmp",
        "--bind", str(places.outputs), OUTPUTS,
        "--ro-bind", str(places.run), DIAL_FOLDER,
        "--perms", "1777", "--size", str(shared_memory(memory)), "--tmpfs", "/dev/shm",
        "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", WORKSPACE,
        "--", GUEST,
    ]  # fmt: skip


def shared_memory(memory: int | None) -> int:
    """The size of /dev/shm: half of the memory limit, since what is in it counts as memory."""
    return max(_SHM_LEAST, min(_SHM_MOST, (memory or 2 * _SHM_MOST) // 2))


def launch_args(
    join: list[str],
    user: int | None,
    open_files: int,
    processes: int | None,
    last_fd: int,
    program: str,
    title: str,
) -> list[str]:
    """The command line of `paddock-launch` up to where bwrap's own arguments begin."""
    args = ["paddock-launch"]
    for file in join:
        args += ["-g", file]
    if user is not None:
        args += ["-u", str(user)]
    if processes is not None:
        args += ["-p", str(processes)]
    return [*args, "-f", str(open_files), "-o", "300", "-k", str(last_fd), "--", program, title]
