"""A server of the benchmark's own, on a data folder of its own, gone with everything it held afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.accounts import descendants
from bench.wire import Place, Wire
from paddock.runtimes.bwrap_remains import titled_processes
from paddock.runtimes.cgroups import instance_key

START_SECONDS = 60.0
STOP_SECONDS = 60.0
SANDBOXES = "/api/v1/sandboxes"


@dataclass(frozen=True, slots=True)
class Serving:
    place: Place
    pid: int
    data_dir: Path

    def connect(self) -> Wire:
        return Wire(self.place)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that other users may pass through: as root, sandboxes are other users."""
    base = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="paddock-bench-", dir=base))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def serving(folder: Path, flags: Sequence[str] = ()) -> Iterator[Serving]:
    data_dir = folder / "data"
    log = (folder / "server.log").open("wb")
    command = [sys.executable, "-m", "paddock.cli", "up", "--port", "0", "--data-dir", str(data_dir), *flags]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment()
    )
    try:
        server = _wait_for(process, data_dir, folder / "server.log")
        try:
            yield server
        finally:
            with contextlib.suppress(OSError):
                delete_all(server)
    finally:
        _stop(process)
        log.close()
        _kill_remains(data_dir)


def _environment() -> dict[str, str]:
    """Without settings of whoever runs the benchmark: the numbers are those of the defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}


def _wait_for(process: subprocess.Popen[bytes], data_dir: Path, log: Path) -> Serving:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            told = json.loads((data_dir / "server.json").read_text())
            token = (data_dir / "admin-token").read_text().strip()
            url = urlsplit(told["url"])
            place = Place(url.hostname or "127.0.0.1", url.port or 80, token)
            wire = Wire(place)
            ready = wire.ask(place.request("GET", "/healthz")).status == 200
            wire.close()
            if ready:
                return Serving(place, int(told["pid"]), data_dir)
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")


def delete_all(server: Serving) -> None:
    wire = server.connect()
    try:
        while found := wire.call("GET", f"{SANDBOXES}?limit=1000")["sandboxes"]:
            for sandbox in found:
                wire.ask(server.place.request("DELETE", f"{SANDBOXES}/{sandbox['id']}"))
    finally:
        wire.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kill_remains(data_dir: Path) -> None:
    """Sandboxes outlive their server. After a server that died there may be some, known by their title."""
    for _, process in titled_processes(instance_key(data_dir)):
        for pid in (*descendants(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
