"""How much disk a sandbox uses, and an exact limit on it where the host can mount one."""

from __future__ import annotations

from paddock.runtimes.disk.removal import remove_tree
from paddock.runtimes.disk.usage import DiskUsage, measure

__all__ = ["DiskUsage", "measure", "remove_tree"]
