"""Drives the real guest over raw frames, knowing the protocol only from docs/GUEST_PROTOCOL.md.

A `Guest` is one running program, a `Wire` one link to it, an `Outcome` what is known of one exec. Everything
waits with a generous deadline: tests run on loaded machines.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.guest.build import guest_binary

DEADLINE = 30.0
SECRET = bytes(range(32))
SAME = 0xFFFFFFFF
MAX_PAYLOAD = 262144

BOOT, WELCOME, ADOPT, START, STDIN, SIGNAL, RESIZE, ACK, RESUME, RELEASE, PING, SHUTDOWN, KILL = range(1, 14)
HELLO, DIAL, INVENTORY, INVENTORY_END, STARTED, OUTPUT, CREDIT, EXIT, PONG, PROBLEM = range(64, 74)
TERMINAL, STDIN_WANTED, BUILTIN, TRANSIENT = 1, 2, 4, 8
EXITED, SIGNALED, NOT_STARTED, TIMED_OUT, KILLED = range(5)
SET_UP, DIRECTORY, USER, LIMITS, EXEC = range(1, 6)


@dataclass(frozen=True)
class Frame:
    channel: int
    type: int
    payload: bytes
    flags: int = 0

    def pack(self) -> bytes:
        return struct.pack("<IIBBH", len(self.payload), self.channel, self.type, self.flags, 0) + self.payload


@dataclass(frozen=True)
class Exit:
    outcome: int
    stage: int
    code: int
    end: int
    stdout_bytes: int
    stderr_bytes: int
    started: int
    finished: int
    user_us: int
    system_us: int
    max_rss: int

    @classmethod
    def unpack(cls, payload: bytes) -> Exit:
        outcome, stage, zero, code, *rest = struct.unpack("<BBHi8Q", payload)
        assert zero == 0
        return cls(outcome, stage, code, *rest)


@dataclass
class Outcome:
    """What the link has told of one exec."""

    pid: int = 0
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    position: int = 0
    credit: int = 0
    exit: Exit | None = None
    order: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Kept:
    """One INVENTORY frame."""

    channel: int
    state: int
    stdin_open: int
    pid: int
    acked: int
    end: int
    stdin_received: int
    metadata: bytes


def string(value: bytes | str) -> bytes:
    data = os.fsencode(value)
    return struct.pack("<I", len(data)) + data


def start_payload(
    argv: Iterable[bytes | str],
    *,
    flags: int = 0,
    uid: int = SAME,
    gid: int = SAME,
    rows: int = 24,
    columns: int = 80,
    timeout: int = 0,
    grace: int = 0,
    window: int = 1 << 20,
    limits: Iterable[tuple[int, int, int]] = (),
    env: dict[str, str] | None = None,
    cwd: str = "/",
    metadata: bytes = b"",
) -> bytes:
    env = {"PATH": "/usr/bin:/bin"} if env is None else env
    limits, argv = list(limits), list(argv)
    parts = [struct.pack("<IIIHHIII", flags, uid, gid, rows, columns, timeout, grace, window)]
    parts.append(struct.pack("<H", len(limits)))
    parts += [struct.pack("<BQQ", *limit) for limit in limits]
    parts.append(struct.pack("<I", len(argv)))
    parts += [string(word) for word in argv]
    parts.append(struct.pack("<I", len(env)))
    parts += [string(f"{name}={value}") for name, value in env.items()]
    parts += [string(cwd), string(metadata)]
    return b"".join(parts)


class LinkClosed(Exception):
    pass


class Wire:
    """One link. Frames that a caller does not wait for are sorted into `outcomes` by channel."""

    def __init__(self, sock: socket.socket, auto_ack: bool = True) -> None:
        self.sock = sock
        self.auto_ack = auto_ack
        self.outcomes: dict[int, Outcome] = {}
        self.inbox: list[Frame] = []
        self._buffer = bytearray()

    def close(self) -> None:
        self.sock.close()

    def send(self, type_: int, payload: bytes = b"", channel: int = 0, flags: int = 0) -> None:
        self.send_raw(Frame(channel, type_, payload, flags).pack())

    def send_raw(self, data: bytes) -> None:
        """Takes what the guest says meanwhile, so that neither side waits for the other for ever."""
        view, deadline = memoryview(data), time.monotonic() + DEADLINE
        while view:
            readable, writable, _ = select.select([self.sock], [self.sock], [], _left(deadline))
            if readable:
                self._fill()
            if writable:
                with contextlib.suppress(BlockingIOError):
                    view = view[self.sock.send(view, socket.MSG_DONTWAIT) :]

    def pump(self, timeout: float) -> bool:
        """Take what arrives within the time; False when nothing did."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        self._fill()
        return True

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            self.pump(_left(deadline))

    def until_closed(self) -> None:
        deadline = time.monotonic() + DEADLINE
        with contextlib.suppress(LinkClosed, ConnectionError):
            while True:
                self.pump(_left(deadline))

    def expect(self, type_: int) -> Frame:
        """The next frame of the link itself, which must be of this type."""
        self.until(lambda: bool(self.inbox))
        frame = self.inbox.pop(0)
        assert frame.type == type_, frame
        return frame

    def ping(self) -> None:
        """Everything sent before this has been dealt with when it returns."""
        token = os.urandom(8)
        self.send(PING, token)
        self.until(lambda: any(f.type == PONG for f in self.inbox))
        assert self.expect(PONG).payload == token

    def _fill(self) -> None:
        try:
            data = self.sock.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            raise LinkClosed
        self._buffer += data
        at, acks = 0, {}
        while len(self._buffer) - at >= 12:
            size, channel, type_, flags, zero = struct.unpack_from("<IIBBH", self._buffer, at)
            assert size <= MAX_PAYLOAD
            assert zero == 0
            assert flags == 0
            if len(self._buffer) - at - 12 < size:
                break
            self._take(Frame(channel, type_, bytes(self._buffer[at + 12 : at + 12 + size])))
            if type_ == OUTPUT:
                acks[channel] = self.outcomes[channel].position
            at += 12 + size
        del self._buffer[:at]
        if self.auto_ack:
            for channel, position in acks.items():
                with contextlib.suppress(OSError):
                    self.sock.sendall(Frame(channel, ACK, struct.pack("<Q", position)).pack())

    def _take(self, frame: Frame) -> None:
        if frame.channel == 0 or frame.type == INVENTORY:
            self.inbox.append(frame)
            return
        outcome = self.outcomes.setdefault(frame.channel, Outcome())
        outcome.order.append(frame.type)
        if frame.type == STARTED:
            outcome.pid, _ = struct.unpack("<IQ", frame.payload)
        elif frame.type == OUTPUT:
            position, stream = struct.unpack_from("<QB", frame.payload)
            data = frame.payload[9:]
            assert position == outcome.position, (position, outcome.position)
            assert data
            assert outcome.exit is None
            (outcome.stdout if stream == 1 else outcome.stderr).extend(data)
            outcome.position += len(data)
        elif frame.type == CREDIT:
            outcome.credit += struct.unpack("<I", frame.payload)[0]
        elif frame.type == EXIT:
            outcome.exit = Exit.unpack(frame.payload)
        else:
            raise AssertionError(frame)


class Process:
    """A child with one descriptor, its link, as number 3. What `subprocess` cannot do without a shell."""

    def __init__(self, argv: list[str], link: int) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            actions = [(os.POSIX_SPAWN_DUP2, link, 3), (os.POSIX_SPAWN_DUP2, null, 0)]
            self.pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions)
        finally:
            os.close(null)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = DEADLINE) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} did not end in time")
            time.sleep(0.005)
        return code

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Guest:
    """The program, on one end of a socket pair, with the folder in which it will look for `guest.sock`."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = (), dial_folder: str | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.folder = folder
        self.dial_folder = str(folder) if dial_folder is None else dial_folder
        self.process = Process([*prefix, str(guest_binary())], theirs.fileno())
        theirs.close()
        self.wire = Wire(ours)
        self.channel = 0
        self.listener: socket.socket | None = None

    def boot(self, adopt: bool = True) -> Guest:
        self.wire.send(BOOT, struct.pack("<HH", 1, 0) + SECRET + string(self.dial_folder))
        version, _ = struct.unpack_from("<HH", self.wire.expect(HELLO).payload)
        assert version == 1
        if adopt:
            self.wire.send(ADOPT)
        return self

    def start(self, *argv: bytes | str, **options: Any) -> int:
        self.channel += 1
        payload = start_payload(argv, **options)
        self.wire.outcomes[self.channel] = Outcome()
        self.wire.send(START, payload, self.channel)
        return self.channel

    def wait(self, channel: int, release: bool = True) -> Outcome:
        outcome = self.wire.outcomes[channel]
        self.wire.until(lambda: outcome.exit is not None)
        if release:
            self.wire.send(RELEASE, channel=channel)
        return outcome

    def run(self, *argv: bytes | str, stdin: bytes | None = None, **options: Any) -> Outcome:
        flags = options.pop("flags", 0)
        channel = self.start(*argv, flags=flags | (STDIN_WANTED if stdin is not None else 0), **options)
        if stdin is not None:
            self.feed(channel, stdin)
        return self.wait(channel)

    def builtin(self, *argv: bytes | str, stdin: bytes | None = None, **options: Any) -> Outcome:
        return self.run(*argv, stdin=stdin, flags=BUILTIN | TRANSIENT, **options)

    def feed(self, channel: int, data: bytes, end: bool = True) -> None:
        """Send stdin within its credit."""
        outcome = self.wire.outcomes[channel]
        outcome.credit += 262144 if CREDIT not in outcome.order else 0
        view = memoryview(data)
        while view and outcome.exit is None:
            self.wire.until(lambda: outcome.credit > 0 or outcome.exit is not None)
            size = min(len(view), outcome.credit, 65536)
            outcome.credit -= size
            self.wire.send(STDIN, bytes(view[:size]), channel)
            view = view[size:]
        if end:
            self.wire.send(STDIN, b"", channel, flags=1)

    def listen(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "guest.sock"))
        self.listener.listen()
        self.listener.settimeout(DEADLINE)

    def drop_link(self) -> None:
        self.wire.close()

    def accept(self) -> list[Kept]:
        """Answer a dial, and return the inventory."""
        if self.listener is None:
            self.listen()
        assert self.listener is not None
        sock, _ = self.listener.accept()
        outcomes, auto_ack = self.wire.outcomes, self.wire.auto_ack
        self.wire = Wire(sock, auto_ack)
        dial = self.wire.expect(DIAL).payload
        version, zero, secret, _, free = struct.unpack("<HH32s16sI", dial)
        assert (version, zero, secret) == (1, 0, SECRET)
        assert free == self.channel + 1
        self.wire.send(WELCOME, struct.pack("<H", 1))
        self.wire.outcomes = outcomes
        kept: list[Kept] = []
        while True:
            self.wire.until(lambda: bool(self.wire.inbox))
            frame = self.wire.inbox.pop(0)
            if frame.type == INVENTORY_END:
                return kept
            assert frame.type == INVENTORY
            kept.append(_kept(frame))

    def resume(self, channel: int, position: int | None = None) -> Outcome:
        outcome = self.wire.outcomes[channel]
        outcome.exit, outcome.credit = None, 0
        outcome.order.clear()
        if position is not None:
            outcome.position = position
        self.wire.send(RESUME, struct.pack("<Q", outcome.position), channel)
        return outcome

    def stop(self, grace: int = 0) -> int:
        self.wire.send(SHUTDOWN, struct.pack("<I", grace))
        return self.process.wait()

    def close(self) -> None:
        """Whatever state it is in: nothing is left of it."""
        if self.listener is not None:
            self.listener.close()
        if self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, LinkClosed, AssertionError):
                self.wire.send(SHUTDOWN, struct.pack("<I", 0))
                self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill(signal.SIGTERM)
            try:
                self.process.wait()
            except TimeoutError:
                self.process.kill()
                self.process.wait()
        self.wire.close()


@contextlib.contextmanager
def running(folder: Path, **options: Any) -> Iterator[Guest]:
    """A booted and adopted guest."""
    guest = Guest(folder, **options)
    try:
        yield guest.boot()
    finally:
        guest.close()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def _kept(frame: Frame) -> Kept:
    state, stdin_open, zero, pid, acked, end, received, _, size = struct.unpack_from(
        "<BBHIQQQQI", frame.payload
    )
    assert zero == 0
    assert len(frame.payload) == 44 + size
    return Kept(frame.channel, state, stdin_open, pid, acked, end, received, frame.payload[44:])


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(errno.ETIMEDOUT, "the guest did not answer in time")
    return left
