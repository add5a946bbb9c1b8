"""The frames of the guest protocol as values. No I/O here.

Guests are untrusted: what comes from one is parsed to its last byte or is a GuestViolation. What goes to one
and cannot be said in the protocol is the caller's mistake: Invalid or TooLarge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from paddock import errors

VERSION = 1
MAX_PAYLOAD = 262_144
STDIN_CREDIT = 262_144
MIN_WINDOW = 4 << 10
MAX_WINDOW = 16 << 20
MAX_METADATA = 64 << 10
MAX_STRINGS = 4096
MAX_CHANNEL = 0xFFFF_FFFF
SECRET_BYTES = 32
BOOT_ID_BYTES = 16
END_OF_INPUT = 1
"""The flag of a STDIN frame."""

HEADER = struct.Struct("<IIBBH")
OUTPUT = struct.Struct("<QB")
"""The fixed part of an OUTPUT frame's payload: position and stream."""
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
SIGNAL = struct.Struct("<IB")
RESIZE = struct.Struct("<HH")
STARTED = struct.Struct("<IQ")

_START = struct.Struct("<IIIHHIIIH")
_LIMIT = struct.Struct("<BQQ")
_EXIT = struct.Struct("<BBHi8Q")
_INVENTORY = struct.Struct("<BBHIQQQQ")
_VERSION_ZERO = struct.Struct("<HH")
_SELF = 0xFFFF_FFFF


class GuestViolation(errors.Unavailable):
    """The guest broke the protocol. The link is closed; what runs inside goes on."""

    default_reason = "guest_protocol"


class Type(IntEnum):
    BOOT = 1
    WELCOME = 2
    ADOPT = 3
    START = 4
    STDIN = 5
    SIGNAL = 6
    RESIZE = 7
    ACK = 8
    RESUME = 9
    RELEASE = 10
    PING = 11
    SHUTDOWN = 12
    KILL = 13
    HELLO = 64
    DIAL = 65
    INVENTORY = 66
    INVENTORY_END = 67
    STARTED = 68
    OUTPUT = 69
    CREDIT = 70
    EXIT = 71
    PONG = 72
    PROBLEM = 73


class Outcome(IntEnum):
    EXITED = 0
    SIGNALED = 1
    NOT_STARTED = 2
    TIMED_OUT = 3
    KILLED = 4


class Stage(IntEnum):
    """Where the start of a process failed."""

    NONE = 0
    SET_UP = 1
    WORKING_DIRECTORY = 2
    USER = 3
    LIMITS = 4
    EXEC = 5


STDOUT = 1
STDERR = 2

GUEST_LENGTHS: dict[int, tuple[int, int]] = {
    Type.HELLO: (20, 20),
    Type.DIAL: (56, 56),
    Type.INVENTORY: (_INVENTORY.size + 4, _INVENTORY.size + 4 + MAX_METADATA),
    Type.INVENTORY_END: (0, 0),
    Type.STARTED: (STARTED.size, STARTED.size),
    Type.OUTPUT: (OUTPUT.size + 1, MAX_PAYLOAD),
    Type.CREDIT: (4, 4),
    Type.EXIT: (_EXIT.size, _EXIT.size),
    Type.PONG: (8, 8),
    Type.PROBLEM: (0, MAX_PAYLOAD),
}
"""The shortest and the longest payload of each frame a guest may send: known before any of it is kept."""


def frame(kind: int, channel: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return HEADER.pack(len(payload), channel, kind, flags, 0) + payload


def _strings(what: str, items: list[bytes]) -> bytes:
    if len(items) > MAX_STRINGS:
        raise errors.TooLarge(f"{what}: at most {MAX_STRINGS} entries", reason="start_too_large")
    _refuse_nul(what, b"".join(items))
    pack = U32.pack
    return pack(len(items)) + b"".join([pack(len(item)) + item for item in items])


def _string(what: str, item: bytes) -> bytes:
    _refuse_nul(what, item)
    return U32.pack(len(item)) + item


def _refuse_nul(what: str, data: bytes) -> None:
    if b"\0" in data:
        raise errors.Invalid(f"{what}: a NUL byte cannot be part of it", reason="nul_byte")


class _Cursor:
    """Reads a payload strictly: running over its end, or stopping before it, is a violation."""

    def __init__(self, payload: bytes | memoryview, what: str) -> None:
        self._payload = payload
        self._at = 0
        self._what = what

    def fixed(self, layout: struct.Struct) -> tuple[int, ...]:
        if self._at + layout.size > len(self._payload):
            raise self.violation("too short")
        values = layout.unpack_from(self._payload, self._at)
        self._at += layout.size
        return values

    def raw(self, size: int) -> bytes:
        if self._at + size > len(self._payload):
            raise self.violation("too short")
        data = bytes(self._payload[self._at : self._at + size])
        self._at += size
        return data

    def string(self, limit: int = MAX_PAYLOAD) -> bytes:
        (size,) = self.fixed(U32)
        if size > limit:
            raise self.violation("a string that is too long")
        data = self.raw(size)
        if b"\0" in data:
            raise self.violation("a NUL inside a string")
        return data

    def strings(self, least: int = 0) -> list[bytes]:
        (count,) = self.fixed(U32)
        if not least <= count <= MAX_STRINGS:
            raise self.violation("a bad count of strings")
        return [self.string() for _ in range(count)]

    def end(self) -> None:
        if self._at != len(self._payload):
            raise self.violation("bytes after its end")

    def violation(self, detail: str) -> GuestViolation:
        return GuestViolation(f"{self._what} frame: {detail}")


@dataclass(frozen=True, slots=True)
class Boot:
    secret: bytes
    folder: bytes
    version: int = VERSION

    def pack(self) -> bytes:
        if len(self.secret) != SECRET_BYTES:
            raise errors.Invalid(f"a guest's secret has {SECRET_BYTES} bytes", reason="bad_secret")
        return _VERSION_ZERO.pack(self.version, 0) + self.secret + _string("folder", self.folder)

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Self:
        cursor = _Cursor(payload, "BOOT")
        version = _version(cursor)
        boot = cls(cursor.raw(SECRET_BYTES), cursor.string(), version)
        cursor.end()
        return boot


def _version(cursor: _Cursor) -> int:
    version, zero = cursor.fixed(_VERSION_ZERO)
    if zero:
        raise cursor.violation("a non-zero reserved field")
    return version


@dataclass(frozen=True, slots=True)
class Hello:
    boot_id: bytes
    version: int = VERSION

    def pack(self) -> bytes:
        return _VERSION_ZERO.pack(self.version, 0) + self.boot_id

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Self:
        cursor = _Cursor(payload, "HELLO")
        version = _version(cursor)
        hello = cls(cursor.raw(BOOT_ID_BYTES), version)
        cursor.end()
        return hello


@dataclass(frozen=True, slots=True)
class Greeting:
    """A DIAL frame: a guest that comes back."""

    secret: bytes
    boot_id: bytes
    free_channel: int
    version: int = VERSION

    def pack(self) -> bytes:
        return _VERSION_ZERO.pack(self.version, 0) + self.secret + self.boot_id + U32.pack(self.free_channel)

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Self:
        cursor = _Cursor(payload, "DIAL")
        version = _version(cursor)
        secret, boot_id = cursor.raw(SECRET_BYTES), cursor.raw(BOOT_ID_BYTES)
        (free_channel,) = cursor.fixed(U32)
        cursor.end()
        if free_channel == 0:
            raise cursor.violation("channel 0 is never free")
        return cls(secret, boot_id, free_channel, version)


@dataclass(frozen=True, slots=True)
class Start:
    argv: list[bytes]
    environment: list[bytes]
    cwd: bytes
    metadata: bytes = b""
    terminal: bool = False
    stdin: bool = False
    builtin: bool = False
    transient: bool = False
    uid: int | None = None
    gid: int | None = None
    rows: int = 24
    columns: int = 80
    timeout_ms: int = 0
    grace_ms: int = 2000
    window: int = 4 << 20
    limits: tuple[tuple[int, int, int], ...] = ()

    def pack(self) -> bytes:
        if not self.argv:
            raise errors.Invalid("a command needs at least its name", reason="empty_command")
        if not all([b"=" in entry for entry in self.environment]):  # noqa: C419 (a list is the quicker one)
            raise errors.Invalid("environment entries are NAME=value", reason="bad_environment")
        if not MIN_WINDOW <= self.window <= MAX_WINDOW:
            raise errors.Invalid(f"a window has {MIN_WINDOW} to {MAX_WINDOW} bytes", reason="bad_window")
        if len(self.metadata) > MAX_METADATA:
            raise errors.TooLarge(f"metadata: at most {MAX_METADATA} bytes", reason="start_too_large")
        try:
            payload = self._fixed() + b"".join(
                (
                    _strings("command", self.argv),
                    _strings("environment", self.environment),
                    _string("working directory", self.cwd),
                    _string("metadata", self.metadata),
                )
            )
        except struct.error as error:
            raise errors.Invalid(f"a number is out of range: {error}", reason="out_of_range") from None
        if len(payload) > MAX_PAYLOAD:
            raise errors.TooLarge(
                f"command and environment take {len(payload)} bytes",
                reason="start_too_large",
                hint=f"Together they may have {MAX_PAYLOAD} bytes; pass more through a file or stdin.",
            )
        return payload

    def _fixed(self) -> bytes:
        flags = self.terminal | self.stdin << 1 | self.builtin << 2 | self.transient << 3
        uid = _SELF if self.uid is None else self.uid
        gid = _SELF if self.gid is None else self.gid
        head = _START.pack(
            flags, uid, gid, self.rows, self.columns,
            self.timeout_ms, self.grace_ms, self.window, len(self.limits),
        )  # fmt: skip
        return head + b"".join([_LIMIT.pack(*limit) for limit in self.limits])

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Self:
        cursor = _Cursor(payload, "START")
        flags, uid, gid, rows, columns, timeout, grace, window, count = cursor.fixed(_START)
        if flags >> 4:
            raise cursor.violation("an unknown flag")
        if not MIN_WINDOW <= window <= MAX_WINDOW:
            raise cursor.violation("a window out of range")
        limits = []
        for _ in range(count):
            resource, soft, hard = cursor.fixed(_LIMIT)
            limits.append((resource, soft, hard))
        argv, environment = cursor.strings(least=1), cursor.strings()
        cwd, metadata = cursor.string(), cursor.string(MAX_METADATA)
        cursor.end()
        return cls(
            argv, environment, cwd, metadata,
            bool(flags & 1), bool(flags & 2), bool(flags & 4), bool(flags & 8),
            None if uid == _SELF else uid, None if gid == _SELF else gid,
            rows, columns, timeout, grace, window, tuple(limits),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exit:
    outcome: Outcome
    stage: Stage
    code: int
    """The exit code; the signal; the errno. Timed out or killed: the exit code or minus the signal."""
    end: int
    stdout_bytes: int
    stderr_bytes: int
    started_ns: int
    finished_ns: int
    user_us: int
    system_us: int
    max_rss_kib: int

    def pack(self) -> bytes:
        return _EXIT.pack(
            self.outcome, self.stage, 0, self.code, self.end, self.stdout_bytes, self.stderr_bytes,
            self.started_ns, self.finished_ns, self.user_us, self.system_us, self.max_rss_kib,
        )  # fmt: skip

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Self:
        if len(payload) != _EXIT.size:
            raise GuestViolation("EXIT frame: of a wrong length")
        outcome, stage, zero, *rest = _EXIT.unpack(payload)
        if zero or outcome > Outcome.KILLED or stage > Stage.EXEC:
            raise GuestViolation("EXIT frame: an unknown outcome or stage, or a non-zero reserved field")
        if (outcome == Outcome.NOT_STARTED) != (stage != 0):
            raise GuestViolation("EXIT frame: a stage that does not fit its outcome")
        return cls(Outcome(outcome), Stage(stage), *rest)


@dataclass(frozen=True, slots=True)
class Inventory:
    """An exec that a returning guest has kept."""

    channel: int
    running: bool
    stdin_open: bool
    pid: int
    acknowledged: int
    end: int
    stdin_received: int
    started_ns: int
    metadata: bytes

    def pack(self) -> bytes:
        fixed = _INVENTORY.pack(
            1 if self.running else 2, self.stdin_open, 0, self.pid,
            self.acknowledged, self.end, self.stdin_received, self.started_ns,
        )  # fmt: skip
        return fixed + _string("metadata", self.metadata)

    @classmethod
    def unpack(cls, channel: int, payload: bytes | memoryview) -> Self:
        cursor = _Cursor(payload, "INVENTORY")
        state, stdin_open, zero, pid, acknowledged, end, received, started = cursor.fixed(_INVENTORY)
        metadata = cursor.string(MAX_METADATA)
        cursor.end()
        if state not in (1, 2) or stdin_open not in (0, 1) or zero or channel == 0:
            raise cursor.violation("an unknown state, a non-zero reserved field or channel 0")
        if not 0 <= end - acknowledged <= MAX_WINDOW:
            raise cursor.violation("positions that no window allows")
        return cls(channel, state == 1, stdin_open == 1, pid, acknowledged, end, received, started, metadata)
