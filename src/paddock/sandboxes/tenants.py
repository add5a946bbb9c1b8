"""Tenants' storage: folders that outlive sandboxes."""

from __future__ import annotations

import os
from pathlib import Path

from paddock.runtimes.base import UID_BASE

PARTS = ("workspace", "outputs")


def prepare(root: Path, tenant: str, slot: int) -> Path:
    """The tenant's folder, made where it is missing. The name has been validated at the edge."""
    folder = root / tenant
    folder.mkdir(mode=0o711, exist_ok=True)
    for part in PARTS:
        path = folder / part
        path.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, UID_BASE + slot, UID_BASE + slot, follow_symlinks=False)
    return folder
