from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.cli.pipes import Collector, Descriptors, Input


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


def drain(read: int, sink: Descriptors) -> bytes:
    data = b""
    while sink.pending:
        sink.write_some()
        data += os.read(read, 1 << 20)
    return data


def test_a_full_pipe_is_never_waited_for(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = Descriptors(write, write)
    data = os.urandom(1 << 20)
    sink.put("stdout", data)
    for _ in range(100):
        sink.write_some()
    assert 0 < sink.pending < len(data)
    assert sink.waiting_for() == write
    assert drain(read, sink) == data
    assert sink.waiting_for() is None


def test_both_streams_keep_their_order(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = Descriptors(write, write)
    for i in range(100):
        sink.put("stdout" if i % 2 else "stderr", b"%d " % i)
    assert drain(read, sink) == b"".join(b"%d " % i for i in range(100))


def test_only_one_stream(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = Descriptors(write, write, only="stderr")
    sink.put("stdout", b"no")
    sink.put("stderr", b"yes")
    assert drain(read, sink) == b"yes"


def test_files_take_everything(tmp_path: Path) -> None:
    path = tmp_path / "out"
    data = os.urandom(3 << 20)
    with path.open("wb") as file:
        sink = Descriptors(file.fileno(), file.fileno())
        sink.put("stdout", data)
        sink.write_some()
        assert sink.pending == 0
    assert path.read_bytes() == data


def test_a_pipe_without_a_reader_is_an_error(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    sink = Descriptors(write, write)
    sink.put("stdout", b"x")
    with pytest.raises(BrokenPipeError):
        sink.write_some()


def test_a_collector_keeps_the_streams_apart() -> None:
    sink = Collector()
    sink.put("stdout", b"a")
    sink.put("stderr", b"b")
    sink.put("stdout", b"c")
    assert (sink.collected("stdout"), sink.collected("stderr")) == (b"ac", b"b")
    assert sink.waiting_for() is None


def test_input_ends_with_its_writer(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"abc")
    source = Input(read)
    assert source.read() == b"abc"
    assert not source.ended
    os.close(write)
    assert source.read() == b""
    assert source.ended


def test_a_folder_as_input_is_empty(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    source = Input(fd)
    assert source.read() == b""
    assert source.ended
    os.close(fd)


def test_the_last_of_the_input_can_be_had_again(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Input, "KEPT", 8)
    read, write = pipe
    source = Input(read)
    for part in (b"0123", b"4567", b"89ab", b"cdef"):
        os.write(write, part)
        source.read()
    assert source.since(16) == b""
    assert source.since(10) == b"abcdef"
    assert source.since(8) == b"89abcdef"
    assert source.since(3) is None
