"""Measures folders that a sandbox writes to, while it writes to them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

INODE_COST = 512
"""Charged for each file besides its blocks, so that a million empty files are not free."""
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    bytes: int
    inodes: int
    complete: bool
    """False: there was more than could be walked in time, so it is at least this much."""


def measure(folders: Iterable[Path], seconds: float = SECONDS) -> DiskUsage:
    """What the folders hold. Blocks: call it in a thread. Follows no link, and skips what vanishes."""
    deadline = time.monotonic() + seconds
    linked: set[tuple[int, int]] = set()
    used = inodes = 0
    pending = [str(folder) for folder in folders]
    while pending:
        if time.monotonic() > deadline:
            return DiskUsage(used, inodes, complete=False)
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    elif status.st_nlink > 1:
                        key = (status.st_dev, status.st_ino)
                        if key in linked:
                            continue
                        linked.add(key)
                    used += status.st_blocks * 512 + INODE_COST
                    inodes += 1
        except OSError:
            # Gone, hidden from us, or too deep to name: each level that was seen has been charged for.
            continue
    return DiskUsage(used, inodes, complete=True)
