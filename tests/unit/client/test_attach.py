from __future__ import annotations

import json

import pytest

from paddock.client.attach import EOF, Ended, Failed, Gap, Output, Started, decode, resize, start
from paddock.client.websocket import Message
from paddock.errors import NotFound, PaddockError


def text(**said: object) -> Message:
    return Message(json.dumps(said).encode(), True)


def test_binary_frames_are_output() -> None:
    frame = b"\x02" + (1 << 40).to_bytes(8, "big") + b"\xff\x00"
    assert decode(Message(frame, False)) == Output("stderr", 1 << 40, b"\xff\x00")


def test_json_frames() -> None:
    assert decode(text(type="started", exec={"id": "e"})) == Started({"id": "e"})  # type: ignore[typeddict-item]
    assert decode(text(type="gap", start=1, end=5)) == Gap(1, 5)
    assert decode(text(type="exit", state="completed", exit_code=0, signal=None)) == Ended(
        "completed", 0, None, None, None
    )


def test_errors_keep_their_class_reason_and_hint() -> None:
    said = decode(text(type="error", error="no", reason="exec_not_found", hint="look"))
    assert isinstance(said, Failed)
    assert isinstance(said.error, NotFound)
    assert (said.error.reason, said.error.hint) == ("exec_not_found", "look")


def test_what_a_later_server_may_say_is_ignored() -> None:
    assert decode(text(type="news", of="tomorrow")) is None
    assert decode(Message(b"\x09" + bytes(8) + b"x", False)) is None


@pytest.mark.parametrize(
    "message",
    [
        Message(b"\x01\x00", False),
        Message(b"", False),
        Message(b"not json", True),
        Message(b"[]", True),
        text(type="gap"),
        text(type="started"),
    ],
)
def test_nonsense_is_an_error_and_no_crash(message: Message) -> None:
    with pytest.raises(PaddockError) as caught:
        decode(message)
    assert caught.value.reason == "not_paddock"


def test_what_we_say() -> None:
    assert json.loads(start({"command": ["true"]})) == {"start": {"command": ["true"]}}
    assert json.loads(resize(24, 80)) == {"type": "resize", "rows": 24, "columns": 80}
    assert json.loads(EOF) == {"type": "eof"}
