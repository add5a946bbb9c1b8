from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from paddock.client.sse import ServerEvent
from paddock.client.watch import Patience, followed
from paddock.errors import NotFound, Unavailable


def event(number: int) -> ServerEvent:
    return ServerEvent(str(number), "k", "{}")


def test_it_goes_on_behind_the_last_event_after_every_loss() -> None:
    asked: list[str | None] = []

    def ask(last: str | None) -> Iterator[ServerEvent]:
        asked.append(last)
        begin = int(last or 0) + 1
        yield event(begin)
        yield event(begin + 1)
        raise Unavailable("lost")

    ids = [item.id for item in itertools.islice(followed(ask, "3"), 6)]
    assert ids == ["4", "5", "6", "7", "8", "9"]
    assert asked == ["3", "5", "7"]


def test_a_stream_that_ends_in_good_order_is_asked_for_again() -> None:
    def ask(last: str | None) -> Iterator[ServerEvent]:
        return iter([event(int(last or 0) + 1)])

    assert [item.id for item in itertools.islice(followed(ask, None), 3)] == ["1", "2", "3"]


def test_the_first_failure_is_told_at_once() -> None:
    def ask(last: str | None) -> Iterator[ServerEvent]:
        raise Unavailable("nobody there")
        yield event(1)

    with pytest.raises(Unavailable, match="nobody there"):
        next(followed(ask, None))


def test_what_will_not_mend_is_told_at_once() -> None:
    def ask(last: str | None) -> Iterator[ServerEvent]:
        if last is not None:
            raise NotFound("gone")
        yield event(1)
        raise Unavailable("lost")

    follower = followed(ask, None)
    next(follower)
    with pytest.raises(NotFound):
        next(follower)


def test_patience_ends() -> None:
    patience = Patience(0.0)
    assert not patience.wait()
