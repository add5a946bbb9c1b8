"""Things put on the host for probes to look for: where one of them is found, the sandbox is not closed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, IPC_RMID = 0o1000, 0


@contextlib.contextmanager
def canaries() -> Iterator[dict[str, Any]]:
    """What probes have to know to look for them. They are there, and open to everybody, until the end."""
    word = f"paddock-canary-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{word}-")))
        folder.chmod(0o755)
        yield {
            "word": word,
            "files": {"temporary": _file(folder / "file")},
            "pid": _process(stack, word),
            "port": _port(stack),
            "key": _shared_memory(stack),
            **_named(stack, word),
        }


def _file(path: Path) -> str:
    path.write_text("canary")
    path.chmod(0o644)
    return str(path)


def _process(stack: contextlib.ExitStack, word: str) -> int:
    """Its command line and its environment have the word."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", word],
        stdin=subprocess.PIPE,
        env={**os.environ, "PADDOCK_CANARY": word},
    )
    stack.callback(process.communicate)
    return process.pid


def _port(stack: contextlib.ExitStack) -> int:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return int(listener.getsockname()[1])


def _shared_memory(stack: contextlib.ExitStack) -> int:
    key = secrets.randbelow(1 << 30) + 1
    segment = _libc.shmget(key, 4096, IPC_CREAT | 0o666)
    if segment >= 0:
        stack.callback(_libc.shmctl, segment, IPC_RMID, None)
    return key


def _named(stack: contextlib.ExitStack, word: str) -> dict[str, Any]:
    """An abstract socket, a message queue and a shared memory file of that name."""
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(f"\0{word}")
    listener.listen(64)
    queue = _libc.mq_open(f"/{word}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    if queue >= 0:
        stack.callback(_libc.mq_unlink, f"/{word}".encode())
        stack.callback(os.close, queue)
    with contextlib.suppress(OSError):
        shared = Path("/dev/shm", word)
        shared.write_text("canary")
        stack.callback(shared.unlink)
    return {}
