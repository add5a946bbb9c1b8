"""Limits on memory, CPU and processes, and pausing: cgroups of version 2 or 1, as this host allows.

Nothing is mounted and no cgroup of others is changed: all of ours are below `paddock/<key>`, in the server's
own cgroup (version 1) or in the nearest ancestor that hands controllers down (version 2). The key is the data
folder's, so two servers never meet.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from paddock.runtimes.cgroups.group import Cgroups, Group, Usage, remove_empty_parents, remove_folder
from paddock.runtimes.cgroups.hierarchy import Hierarchies, find_hierarchies
from paddock.runtimes.cgroups.v1 import CgroupsV1
from paddock.runtimes.cgroups.v2 import CgroupsV2

__all__ = [
    "Cgroups",
    "Group",
    "Hierarchies",
    "Usage",
    "find_cgroups",
    "instance_key",
    "remove_empty_parents",
    "remove_folder",
]


def instance_key(data_dir: Path) -> str:
    """A short name for a data folder, the same on every start."""
    return hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]


def find_cgroups(key: str, hierarchies: Hierarchies | None = None) -> Cgroups | None:
    """What this host offers, or None. The version that holds more limits wins, 2 in a draw."""
    found = find_hierarchies() if hierarchies is None else hierarchies
    offers: list[Cgroups] = []
    if found.v2 is not None:
        offers.append(CgroupsV2(found.v2, found.v2_controllers, f"paddock/{key}"))
    if found.v1:
        offers.append(CgroupsV1(found.v1, f"paddock/{key}"))
    return max(offers, key=lambda offer: len(offer.limits), default=None)
