from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import pytest

from paddock.cli.terminal import RawTerminal, size_of


@pytest.fixture
def terminal() -> Iterator[int]:
    master, slave = os.openpty()
    yield slave
    os.close(master)
    os.close(slave)


def test_a_raw_terminal_is_restored(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    with RawTerminal(terminal) as raw:
        assert raw.active
        assert not termios.tcgetattr(terminal)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    assert termios.tcgetattr(terminal) == before
    assert not raw.active


def test_it_is_restored_after_a_failure(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    with pytest.raises(ZeroDivisionError), RawTerminal(terminal):
        raise ZeroDivisionError
    assert termios.tcgetattr(terminal) == before


def test_what_is_no_terminal_is_left_alone() -> None:
    read, write = os.pipe()
    with RawTerminal(read) as raw:
        assert not raw.active
    os.close(read)
    os.close(write)


def test_the_size_is_that_of_the_first_terminal(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    read, write = os.pipe()
    assert size_of(read, terminal) == {"rows": 33, "columns": 111}
    assert size_of(read) == {"rows": 24, "columns": 80}
    os.close(read)
    os.close(write)


def test_a_terminal_without_a_size_has_the_usual_one(terminal: int) -> None:
    assert size_of(terminal) == {"rows": 24, "columns": 80}
