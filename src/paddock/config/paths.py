"""Where things lie inside the data folder."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import Exhausted, Unavailable

# Sandboxes run as other users than the server and must pass through, but may list nothing.
_PASS_THROUGH = 0o711
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class DataDir:
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "private" / "paddock.db"

    @property
    def lock(self) -> Path:
        return self.root / "private" / "lock"

    @property
    def server_json(self) -> Path:
        """Address and process id of the running server, for the command line."""
        return self.root / "server.json"

    @property
    def admin_token(self) -> Path:
        return self.root / "admin-token"

    @property
    def sandboxes(self) -> Path:
        return self.root / "sandboxes"

    @property
    def tenants(self) -> Path:
        return self.root / "tenants"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def private(self) -> Path:
        return self.root / "private"

    def ensure(self) -> None:
        """Make the folders, and put right the modes of those that exist."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(_PASS_THROUGH)
            for folder, mode in (
                (self.private, _PRIVATE),
                (self.sandboxes, _PASS_THROUGH),
                (self.tenants, _PASS_THROUGH),
                (self.logs, _PRIVATE),
            ):
                folder.mkdir(mode=mode, exist_ok=True)
                folder.chmod(mode)
        except OSError as error:
            raise _unusable(self.root, error) from error


def _unusable(path: Path, error: OSError) -> Unavailable:
    kind = Exhausted if error.errno == errno.ENOSPC else Unavailable
    return kind(
        f"cannot use {path}: {error.strerror or error}",
        reason="disk_full" if kind is Exhausted else "data_dir",
        hint="choose another folder with --data-dir or PADDOCK_DATA_DIR",
    )
