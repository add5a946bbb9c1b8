"""The folders of one bubblewrap sandbox on the host.

<folder>/run/init        the guest's program: a link, so that it costs neither a copy nor a mount of its own
<folder>/run/guest.sock  made by the server; the guest dials it after the first link is lost
<folder>/data/           workspace, home, tmp, outputs: its own; an exact disk is mounted here
<folder>/disk.img        that disk
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from paddock.runtimes.base import UID_BASE, Spec
from paddock.runtimes.bwrap_args import GUEST, Places
from paddock.runtimes.disk import measure, remove_tree
from paddock.runtimes.disk.image import is_mounted, unmount_image, used_bytes

_PASSABLE = 0o711
_PRIVATE = 0o700


def host_user(slot: int) -> int | None:
    """The uid and gid that a sandbox has on the host; None: the server's own, which cannot become another."""
    return UID_BASE + slot if os.geteuid() == 0 else None


def data_folder(spec: Spec) -> Path:
    return spec.folder / "data"


def run_folder(spec: Spec) -> Path:
    return spec.folder / "run"


def image_file(spec: Spec) -> Path:
    return spec.folder / "disk.img"


def find_places(spec: Spec) -> Places:
    data = data_folder(spec)
    kept = spec.storage or data
    return Places(kept / "workspace", data / "home", data / "tmp", kept / "outputs", run_folder(spec))


def lay_out(spec: Spec, guest: Path) -> Places:
    """Make what is not there yet. Quick, unless a tenant's storage changes its owner."""
    places = find_places(spec)
    user = host_user(spec.slot)
    _make(spec.folder, _PASSABLE)
    _make(data_folder(spec), _PASSABLE)
    if spec.storage is not None:
        _make(spec.storage, _PASSABLE)
    for folder in (places.workspace, places.home, places.tmp, places.outputs):
        _make(folder, _PRIVATE)
        if user is not None and os.stat(folder).st_uid != user:
            _give(folder, user)
    _make(places.run, 0o755)
    _link(guest, places.run / os.path.basename(GUEST))
    return places


def disk_used(spec: Spec, *, exact: bool) -> int:
    """What the sandbox's folders take, a tenant's too. Blocks: call it in a thread."""
    if exact:
        return used_bytes(data_folder(spec))
    places = find_places(spec)
    return measure((places.workspace, places.home, places.tmp, places.outputs)).bytes


def remove_files(spec: Spec) -> None:
    """The folder and what is mounted in it; a tenant's storage stays. Blocks: call it in a thread."""
    if image_file(spec).exists() or is_mounted(data_folder(spec)):
        unmount_image(image_file(spec), data_folder(spec))
    remove_tree(spec.folder)


def _make(folder: Path, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode)
    # The process's umask may have taken bits away. Looking is cheaper than a change on disk.
    if os.stat(folder).st_mode & 0o7777 != mode:
        os.chmod(folder, mode)


def _give(folder: Path, user: int) -> None:
    """Storage that another slot had before changes hands with everything in it; no link is followed."""
    for _, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=fd, follow_symlinks=False)
    os.chown(folder, user, user)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError as problem:
        if problem.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        shutil.copyfile(source, target)
        os.chmod(target, 0o755)
