"""What every bubblewrap sandbox of this server shares, made once: programs, filters, the view of the host."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.guest.build import guest_binary, launch_binary
from paddock.runtimes.bwrap_args import Features, shared_args
from paddock.runtimes.host_view import build_view, install_bytes, install_file
from paddock.runtimes.seccomp import compiled_filters

_SYSTEM_PATH = "/usr/bin:/bin:/usr/local/bin"
_NEEDED = ("--add-seccomp-fd", "--info-fd", "--as-pid-1", "--clearenv", "--perms", "--size")


@dataclass(frozen=True, slots=True)
class Host:
    bwrap: str
    launch: str
    guest: Path
    """In the data folder: a new version of Paddock does not change it under sandboxes that run."""
    filters: tuple[Path, ...]
    args: tuple[str, ...]
    """The command line of bwrap as far as it is the same for all."""


def prepare_host(data_dir: Path) -> Host:
    """Blocks for some tens of milliseconds: call it in a thread, once. Unavailable says what is missing."""
    bwrap = find_bwrap()
    features = read_features(bwrap)
    system = data_dir / "system"
    system.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for folder in (data_dir, system):
            folder.chmod(folder.stat().st_mode | 0o111)
        check_passable(system)
    filters = tuple(install_bytes(program, system, "seccomp", 0o600) for program in compiled_filters())
    view = build_view(system)
    return Host(
        bwrap=bwrap,
        launch=str(launch_binary()),
        guest=install_file(Path(guest_binary()), system, "guest", 0o755),
        filters=filters,
        args=tuple(shared_args(view, features, len(filters))),
    )


def find_bwrap() -> str:
    found = shutil.which("bwrap", path=_SYSTEM_PATH) or shutil.which("bwrap")
    if found is None:
        raise errors.Unavailable(
            "bwrap is not installed",
            reason="bwrap_missing",
            hint="install bubblewrap, for example `apt-get install bubblewrap` or `dnf install bubblewrap`",
        )
    return os.path.abspath(found)


def read_features(bwrap: str) -> Features:
    shown = subprocess.run(
        [bwrap, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    options = set((shown.stdout + shown.stderr).split())
    missing = [option for option in _NEEDED if option not in options]
    if missing:
        raise errors.Unavailable(
            f"{bwrap} is too old: it lacks {', '.join(missing)}",
            reason="bwrap_too_old",
            hint="install bubblewrap 0.6 or later",
        )
    return Features(disable_userns="--disable-userns" in options)


def check_passable(folder: Path) -> None:
    """Run by root, each sandbox has a user of its own, who has to be able to walk to its folder."""
    for parent in (folder, *folder.parents):
        if not parent.stat().st_mode & 0o001:
            raise errors.Unavailable(
                f"sandboxes cannot reach {folder}: other users may not pass through {parent}",
                reason="data_dir_not_passable",
                hint=f"put the data folder elsewhere, as in /var/lib/paddock, or run `chmod o+x {parent}`",
            )
