"""What is said on the WebSocket of an exec, decoded."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from paddock.client.shapes import Exec
from paddock.client.transport import error_told
from paddock.client.websocket import Message
from paddock.errors import PaddockError

HEADER = struct.Struct(">BQ")
STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}


@dataclass(frozen=True, slots=True)
class Started:
    exec: Exec


@dataclass(frozen=True, slots=True)
class Output:
    stream: Literal["stdout", "stderr"]
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Output that retention has dropped."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ended:
    state: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Final before the start; later it answers one of our messages, unless the connection ends with it."""

    error: PaddockError


Said: TypeAlias = Started | Output | Gap | Ended | Failed | None
"""None: something that this version does not know, and may ignore."""


def decode(message: Message) -> Said:
    try:
        return _decode_text(message.data) if message.text else _decode_bytes(message.data)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise PaddockError(f"the server said something unreadable: {error}", reason="not_paddock") from error


def _decode_bytes(data: bytes) -> Said:
    number, position = HEADER.unpack_from(data)
    stream = STREAMS.get(number)
    return None if stream is None else Output(stream, position, data[HEADER.size :])


def _decode_text(data: bytes) -> Said:
    said: Any = json.loads(data)
    if not isinstance(said, dict):
        raise ValueError("not an object")
    match said.get("type"):
        case "started":
            return Started(cast(Exec, said["exec"]))
        case "gap":
            return Gap(int(said["start"]), int(said["end"]))
        case "exit":
            return Ended(
                str(said["state"]),
                said.get("exit_code"),
                said.get("signal"),
                said.get("reason"),
                said.get("error"),
            )
        case "error":
            return Failed(error_told(said))
        case _:
            return None


def start(request: dict[str, Any]) -> str:
    return json.dumps({"start": request})


def resize(rows: int, columns: int) -> str:
    return json.dumps({"type": "resize", "rows": rows, "columns": columns})


EOF = json.dumps({"type": "eof"})
