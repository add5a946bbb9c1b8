"""The real `paddock` command, run as a user would, on a data folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")

PROGRAM = str(Path(sys.executable).with_name("paddock"))
PATIENCE = 60.0
Done = subprocess.CompletedProcess[bytes]


def eventually(look: Callable[[], Value], what: str, seconds: float = PATIENCE) -> Value:
    """What `look` gives, once it gives something true."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"this did not come about: {what}"
        time.sleep(0.05)


class Paddock:
    def __init__(self) -> None:
        # Users inside real sandboxes have to pass through, which pytest's own folders do not let them.
        self.folder = Path(tempfile.mkdtemp(prefix="paddock-e2e-"))
        self.folder.chmod(0o711)
        self.data = self.folder / "data"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.env = {
            "PATH": f"{Path(PROGRAM).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "CI": "true",
            "PADDOCK_DATA_DIR": str(self.data),
            "PADDOCK_PORT": "0",
        }

    def run(
        self,
        *arguments: str,
        input: bytes | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 90,
    ) -> Done:
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            env=self.env | (env or {}),
            cwd=self.work,
            timeout=timeout,
            **stdin,  # type: ignore[call-overload]
        )

    def text(self, *arguments: str, input: bytes | None = None) -> str:
        """stdout of a command that has to succeed."""
        done = self.run(*arguments, input=input)
        assert done.returncode == 0, (arguments, done)
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen([PROGRAM, *arguments], env=self.env, cwd=self.work, **(pipes | settings))

    def shell(self, script: str, timeout: float = 90) -> Done:
        return subprocess.run(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.env,
            cwd=self.work,
            timeout=timeout,
        )

    @property
    def server_pid(self) -> int:
        return int(json.loads((self.data / "server.json").read_text())["pid"])

    def kill_server(self) -> None:
        pid = self.server_pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not _runs(pid), "the server is gone")

    def close(self) -> None:
        try:
            if self.data.exists():
                deleted = self.run("sandbox", "delete", "--all", "--yes")
                assert deleted.returncode == 0, deleted
                down = self.run("down")
                assert down.returncode == 0, down
            eventually(lambda: not self._processes(), f"no process is left: {self._processes()}")
            assert not self._mounts()
        finally:
            for pid in self._processes():
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.folder)

    def _processes(self) -> dict[int, str]:
        """Those that name our folder, but for ourselves."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                named = (
                    str(self.folder).encode() in command
                    or str(self.data).encode() in (entry / "environ").read_bytes()
                )
            except OSError:
                continue
            if named and _runs(int(entry.name)):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def _mounts(self) -> list[str]:
        return [
            line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.folder) in line
        ]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
