"""Removes folders whose content somebody hostile made. Nobody may still be writing to them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from paddock import errors


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything below it, following no link. Blocks: call it in a thread."""
    try:
        shutil.rmtree(folder)
        return
    except FileNotFoundError:
        if not folder.exists():
            return
    except (OSError, RecursionError):
        pass
    # Trees deeper than Python recurses, and folders that their owner has no right to enter.
    if os.geteuid() != 0:
        _run("chmod", "-R", "u+rwX", "--", str(folder))
    _run("rm", "-rf", "--one-file-system", "--", str(folder))
    if os.path.lexists(folder):
        raise errors.Unavailable(
            f"the folder {folder} cannot be removed",
            reason="folder_not_removed",
            hint="look for mounts below it and for files marked immutable",
        )


def _run(*command: str) -> None:
    subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
