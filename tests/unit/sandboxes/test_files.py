"""What a guest answers is untrusted, and what a caller asks may be nonsense."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config import DataDir
from paddock.errors import Conflict, Denied, Exhausted, Invalid, NotFound, PaddockError, Unavailable
from paddock.guest.wire import GuestViolation, Outcome, Stage
from paddock.runtimes.fake import FakeRuntime
from paddock.sandboxes.box import Box
from paddock.sandboxes.files import _check, _parse, _resolve
from paddock.sandboxes.model import Entry, FileEvent, Unpacked
from paddock.sandboxes.planning import spec_of
from tests.unit.sandboxes.makings import ended, sandbox

ENTRY = b'{"name":"a\\udcff","path":"/x","type":"file","size":1,"mode":"0644","uid":0,"gid":0,"mtime":5}'


def box() -> Box:
    record = sandbox()
    return Box(record, spec_of(record, DataDir(Path("/nowhere")), None), FakeRuntime())


def test_a_name_that_is_no_text_can_still_be_said() -> None:
    entry = _parse(Entry, ENTRY)
    assert entry.name == "a?"
    entry.model_dump_json()


@given(
    st.one_of(st.binary(), st.text().map(str.encode), st.just(b"[" * 100_000), st.just(b'{"a":' * 100_000))
)
def test_any_answer_is_understood_or_a_violation(line: bytes) -> None:
    for kind in (Entry, FileEvent, Unpacked):
        with pytest.raises(GuestViolation):
            _parse(kind, line)


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (errno.ENOENT, NotFound, "path_not_found"),
        (errno.EACCES, Denied, "path_denied"),
        (errno.EROFS, Denied, "read_only"),
        (errno.EEXIST, Conflict, "path_exists"),
        (errno.EISDIR, Conflict, "is_a_directory"),
        (errno.ENOTDIR, Conflict, "not_a_directory"),
        (errno.ENOTEMPTY, Conflict, "not_empty"),
        (errno.ENOSPC, Exhausted, "disk_full"),
        (errno.ENAMETOOLONG, Invalid, "bad_path"),
        (12345, Invalid, "bad_path"),
    ],
)
def test_failures(code: int, kind: type[PaddockError], reason: str) -> None:
    for stderr in (
        b"",
        b'{"errno":"E","error":"why","path":"/x"}\n',
        b"\xff\n",
        b'{"error":5}',
        b"[" * 50_000,
    ):
        with pytest.raises(kind) as caught:
            _check(ended(Outcome.EXITED, code), stderr, "/x")
        assert caught.value.reason == reason
        assert caught.value.message.startswith("/x: ")
    with pytest.raises(kind):
        _check(ended(Outcome.NOT_STARTED, code, Stage.SET_UP), b"", "/x")


def test_a_call_that_was_killed() -> None:
    for outcome in (Outcome.SIGNALED, Outcome.TIMED_OUT, Outcome.KILLED):
        with pytest.raises(Unavailable) as caught:
            _check(ended(outcome, 9), b"", "/x")
        assert caught.value.reason == "call_killed"
    _check(ended(), b"", "/x")


async def test_paths() -> None:
    assert _resolve(box(), "a/b") == "/workspace/a/b"
    assert _resolve(box(), ".") == "/workspace"
    assert _resolve(box(), "/etc") == "/etc"
    for bad in ("", "a\0", "x" * 4097, "ü" * 2049, "\ud800"):
        with pytest.raises(Invalid):
            _resolve(box(), bad)
