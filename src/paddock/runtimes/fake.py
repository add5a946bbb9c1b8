"""The `fake` runtime, for tests only: a real guest as a plain process, with NO ISOLATION at all.

Its sandboxes live the same life as real ones: they are not tied to the server, they dial back, they can be
found again. But what runs in one is an ordinary process of the server's user, so a server takes it only when
told to. It can be told to fail: see Faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.guest.build import guest_binary
from paddock.runtimes.base import LINK_FD, Ability, Enforcement, Instance, Spec, Stats
from paddock.runtimes.processes import Process, boot_id, identify, open_process, reap, wait_readable

MARKER = "fake.json"
"""In a sandbox's folder: says that it is one of ours, and which process is its guest."""
_SCRIPT = 'ulimit -n "$3" && cd "$2" && exec "$1" "$2"'
"""The folder is an argument only to be seen: it tells this guest's processes from those of others."""
_FREEZE_ROUNDS = 1000
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Faults:
    """What goes wrong with the next creates. Each number is how many of them; it counts down."""

    fail_create: int = 0
    """The guest cannot be started: `create` raises Unavailable("fault")."""
    hang_create: int = 0
    """`create` does not return until it is cancelled."""
    die_after_create: int = 0
    """The guest is killed before `create` returns."""


@dataclass(frozen=True, slots=True)
class _Handle:
    id: str
    folder: str
    pid: int
    start: int
    boot: str
    limits: list[str] = field(default_factory=list)

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start)


class FakeRuntime:
    """`folder` holds the folders of its sandboxes; without it there are no orphans to find."""

    name = "fake"

    def __init__(self, folder: Path | None = None, *, faults: Faults | None = None) -> None:
        self.folder = folder
        self.faults = faults or Faults()

    async def probe(self) -> list[Ability]:
        try:
            program = await asyncio.to_thread(guest_binary)
        except Exception as error:
            return [Ability("fake", False, str(error), "Build the guest: make setup.")]
        return [
            Ability("fake", True, f"no isolation; the guest is {program}"),
            Ability("pause", True, "SIGSTOP and SIGCONT to each process"),
        ]

    async def create(self, spec: Spec) -> Instance:
        program = await asyncio.to_thread(guest_binary)
        ours, theirs = socket.socketpair()
        handle: _Handle | None = None
        try:
            _lay_out(spec)
            if _strikes(self.faults, "fail_create"):
                raise errors.Unavailable("the guest was told to fail", reason="fault")
            handle = _launch(str(program), spec, theirs)
            if _strikes(self.faults, "hang_create"):
                await asyncio.get_running_loop().create_future()
            if _strikes(self.faults, "die_after_create"):
                await asyncio.to_thread(_end_tree, handle)
        except BaseException as error:
            ours.close()
            await _undo(spec, handle)
            if isinstance(error, OSError):
                raise errors.Unavailable(f"cannot start a guest: {error}", reason="create_failed") from error
            raise
        finally:
            theirs.close()
        return _instance(spec, handle, ours)

    async def recover(self, spec: Spec, handle: dict[str, Any]) -> Instance | None:
        known = _Handle(**handle)
        if known.boot != boot_id() or identify(known.pid) != known.process:
            return None
        return _instance(spec, known, None)

    def exited(self, instance: Instance) -> bool:
        reap(instance.pid)
        return identify(instance.pid) != _Handle(**instance.handle).process

    async def wait(self, instance: Instance) -> None:
        pidfd = open_process(_Handle(**instance.handle).process)
        if pidfd is not None:
            try:
                await wait_readable(pidfd)
            finally:
                os.close(pidfd)
        reap(instance.pid)

    async def kill(self, instance: Instance) -> None:
        await asyncio.to_thread(_end_tree, _Handle(**instance.handle))

    async def destroy(self, spec: Spec, handle: dict[str, Any] | None) -> None:
        await asyncio.to_thread(_remove, spec, _Handle(**handle) if handle else _read_marker(spec.folder))

    async def stats(self, instance: Instance) -> Stats:
        return await asyncio.to_thread(_measure, _Handle(**instance.handle))

    async def orphans(self, known: set[str]) -> list[str]:
        if self.folder is None:
            return []
        found = [_read_marker(folder) for folder in await asyncio.to_thread(_subfolders, self.folder)]
        return [handle.id for handle in found if handle is not None and handle.id not in known]

    async def pause(self, instance: Instance) -> None:
        await asyncio.to_thread(_freeze, _Handle(**instance.handle))

    async def resume(self, instance: Instance) -> None:
        for process in await asyncio.to_thread(_tree, _Handle(**instance.handle)):
            _signal(process, signal.SIGCONT)


def _strikes(faults: Faults, name: str) -> bool:
    left: int = getattr(faults, name)
    if left:
        setattr(faults, name, left - 1)
    return left > 0


def _storage(spec: Spec, name: str) -> Path:
    return (spec.storage or spec.folder) / name


def _lay_out(spec: Spec) -> None:
    for folder in (spec.folder / "run", spec.folder / "home"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("workspace", "outputs"):
        _storage(spec, name).mkdir(mode=0o700, parents=True, exist_ok=True)


def _dial_folder(spec: Spec) -> str:
    """A guest takes a folder's name of 90 bytes. A longer one is said from its own working directory."""
    folder = str(spec.folder / "run")
    return folder if len(os.fsencode(folder)) <= 90 else "run"


def _launch(program: str, spec: Spec, link: socket.socket) -> _Handle:
    # Duplicated first: where the link's own number is LINK_FD, a copy onto itself would stay close-on-exec.
    copy = os.dup(link.fileno())
    try:
        log = os.open(spec.folder / "guest.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT, "sh", program, str(spec.folder), str(_files(spec))],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, copy, LINK_FD),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                # Python ignores these, and what is ignored stays so in every program inside.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        finally:
            os.close(log)
    finally:
        os.close(copy)
    process = identify(pid)
    if process is None:
        reap(pid)
        raise errors.Unavailable("the guest ended at once", reason="create_failed")
    handle = _Handle(spec.id, str(spec.folder), pid, process.start, boot_id(), _asked_for(spec))
    (spec.folder / MARKER).write_text(json.dumps(asdict(handle)))
    return handle


def _files(spec: Spec) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return spec.limits.open_files if hard == resource.RLIM_INFINITY else min(spec.limits.open_files, hard)


def _asked_for(spec: Spec) -> list[str]:
    names = ("memory", "cpus", "processes", "disk", "open_files")
    return [name for name in names if getattr(spec.limits, name) is not None]


def _instance(spec: Spec, handle: _Handle, link: socket.socket | None) -> Instance:
    return Instance(
        handle=asdict(handle),
        pid=handle.pid,
        link=link,
        dial_folder=_dial_folder(spec),
        socket_folder=spec.folder / "run",
        peer_uid=os.getuid(),
        enforcement={
            name: Enforcement.FULL if name == "open_files" else Enforcement.NONE for name in handle.limits
        },
        workspace=str(_storage(spec, "workspace")),
        home=str(spec.folder / "home"),
        outputs=str(_storage(spec, "outputs")),
    )


async def _undo(spec: Spec, handle: _Handle | None) -> None:
    # Shielded: a create that is cancelled twice still leaves nothing.
    await asyncio.shield(asyncio.to_thread(_clear, spec, handle))


def _clear(spec: Spec, handle: _Handle | None) -> None:
    """Back to the empty folder that `create` was given."""
    if handle is not None:
        _end_tree(handle)
    for entry in spec.folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _remove(spec: Spec, handle: _Handle | None) -> None:
    if handle is not None and handle.boot == boot_id():
        _end_tree(handle)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(spec.folder)


def _read_marker(folder: Path) -> _Handle | None:
    try:
        return _Handle(**json.loads((folder / MARKER).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _subfolders(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except FileNotFoundError:
        return []


def _stat(pid: int) -> list[bytes] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def _is_guest(pid: int, folder: str) -> bool:
    """The guest, or one of the shepherds it forked: these stay when somebody kills the guest alone."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return argv[1:2] == [os.fsencode(folder)] and argv[0].endswith(b"/paddock-guest")


def _tree(handle: _Handle) -> list[Process]:
    """Every process of the sandbox, parents first. Guest and shepherds adopt what daemonises itself."""
    children: dict[int, list[Process]] = {}
    roots = [handle.process] if identify(handle.pid) == handle.process else []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = _stat(pid)
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        process = Process(pid, int(fields[19]))
        children.setdefault(int(fields[1]), []).append(process)
        if _is_guest(pid, handle.folder):
            roots.append(process)
    tree = dict.fromkeys(roots)
    queue = list(tree)
    for process in queue:
        new = [child for child in children.get(process.pid, ()) if child not in tree]
        tree.update(dict.fromkeys(new))
        queue.extend(new)
    return queue


def _signal(process: Process, number: signal.Signals) -> None:
    pidfd = open_process(process)
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
        os.close(pidfd)


def _freeze(handle: _Handle) -> list[Process]:
    """Stop the tree. What forks meanwhile is found in the next round; what has stopped forks no more."""
    for _ in range(_FREEZE_ROUNDS):
        tree = _tree(handle)
        moving = [process for process in tree if _moves(process)]
        if not moving:
            return tree
        for process in moving:
            _signal(process, signal.SIGSTOP)
        time.sleep(0.001)
    return _tree(handle)


def _moves(process: Process) -> bool:
    fields = _stat(process.pid)
    return fields is not None and fields[0] not in (b"T", b"t", b"Z", b"X")


def _end_tree(handle: _Handle) -> None:
    """Kill the tree. When this returns none of it is left."""
    tree = _freeze(handle)
    for process in tree:
        _signal(process, signal.SIGKILL)
    for process in tree:
        while identify(process.pid) == process:
            time.sleep(0.001)
    reap(handle.pid)


def _measure(handle: _Handle) -> Stats:
    memory = ticks = count = 0
    for process in _tree(handle):
        if fields := _stat(process.pid):
            count += 1
            memory += int(fields[21]) * _PAGE
            ticks += sum(int(value) for value in fields[11:15])
    return Stats(memory=memory, cpu_seconds=ticks / _TICKS, processes=count)
