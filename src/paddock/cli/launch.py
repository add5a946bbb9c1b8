"""Starting a server that outlives the command which needed it, and ending one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paddock.cli.connect import Local, find_local, is_alive
from paddock.errors import PaddockError, Timeout, Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 60.0
# Of two that are started at once one has to give way: the other needs a moment to answer.
GIVEN_WAY_SECONDS = 5.0
LOG_LINES = 5


def start_detached(folder: Path, flags: Sequence[str] = ()) -> Local:
    """Start a server on `folder` and come back when it answers."""
    log = _log_file(folder)
    begin = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-m", "paddock.cli", "up", "--data-dir", str(folder), *flags]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        server = find_local(folder)
        if server is not None:
            return server
        if process.poll() is not None:
            deadline = min(deadline, time.monotonic() + GIVEN_WAY_SECONDS)
        time.sleep(0.02)
    if process.poll() is None:
        process.terminate()
        raise Timeout(f"the server did not answer within {START_SECONDS:.0f} s", hint=f"its log is {log}")
    raise Unavailable(
        f"the server did not start: {_tail(log, begin) or f'exit code {process.returncode}'}",
        reason="server_start",
        hint=f"its log is {log}; paddock doctor tells what this host lacks",
    )


def stop(server: Local) -> None:
    """End a server in good order. Its sandboxes live on."""
    if not _is_paddock(server.pid):
        raise PaddockError(
            f"process {server.pid} is not a Paddock server", reason="not_paddock", hint="end it by hand"
        )
    os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_alive(server.pid) and not _is_zombie(server.pid):
        if time.monotonic() > deadline:
            raise Timeout(
                f"the server (process {server.pid}) has not ended within {STOP_SECONDS:.0f} s",
                hint=f"kill -9 {server.pid} ends it at once; its sandboxes survive that too",
            )
        time.sleep(0.02)


def _is_paddock(pid: int) -> bool:
    try:
        return b"paddock" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def _log_file(folder: Path) -> Path:
    """Made by hand with the server's modes: the server itself makes the folders only once it runs."""
    try:
        folder.mkdir(parents=True, mode=0o711, exist_ok=True)
        logs = folder / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        log = logs / "server.log"
        log.open("ab").close()
    except OSError as error:
        raise Unavailable(
            f"cannot use the data folder {folder}: {error.strerror}",
            reason="data_dir",
            hint="choose another with --data-dir or PADDOCK_DATA_DIR",
        ) from error
    return log


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").split("\n")
    return " | ".join([line.strip() for line in lines if line.strip()][-LOG_LINES:])
