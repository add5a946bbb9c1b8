"""The tables, cell by cell: what is written here is what is allowed."""

from __future__ import annotations

import pytest

from paddock.errors import Conflict
from paddock.guest.wire import Outcome
from paddock.sandboxes.lifecycle import LIVE, OVER, Change, exec_end, next_state
from paddock.sandboxes.model import ExecState, State

ALLOWED = """
            ready    fail    pause   resume   stop      ended    delete
creating    running  failed  -       -        -         -        deleted
running     -        failed  paused  -        stopping  -        deleted
paused      -        failed  -       running  stopping  -        deleted
stopping    -        failed  -       -        -         stopped  deleted
stopped     -        -       -       -        -         -        deleted
failed      -        -       -       -        -         -        deleted
deleted     -        -       -       -        -         -        -
"""


def cells() -> list[tuple[State, Change, str]]:
    head, *rows = (line.split() for line in ALLOWED.strip().splitlines())
    return [
        (State(row[0]), Change(change), cell)
        for row in rows
        for change, cell in zip(head, row[1:], strict=True)
    ]


def test_the_table_is_whole() -> None:
    assert {(state, change) for state, change, _ in cells()} == {(s, c) for s in State for c in Change}


@pytest.mark.parametrize(("state", "change", "after"), cells())
def test_every_change_in_every_state(state: State, change: Change, after: str) -> None:
    if after != "-":
        assert next_state(state, change) is State(after)
        return
    with pytest.raises(Conflict) as caught:
        next_state(state, change)
    assert caught.value.reason == f"sandbox_{state.value}"
    assert change.value in caught.value.message


def test_what_has_processes_has_not_ended() -> None:
    assert not LIVE & OVER
    assert {State.CREATING, State.DELETED} == set(State) - LIVE - OVER


ENDS = {
    (ExecState.RUNNING, Outcome.EXITED, 0): ExecState.COMPLETED,
    (ExecState.RUNNING, Outcome.EXITED, 1): ExecState.FAILED,
    (ExecState.RUNNING, Outcome.SIGNALED, 9): ExecState.FAILED,
    (ExecState.RUNNING, Outcome.NOT_STARTED, 2): ExecState.FAILED,
    (ExecState.RUNNING, Outcome.TIMED_OUT, -9): ExecState.TIMED_OUT,
    (ExecState.RUNNING, Outcome.KILLED, -9): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.EXITED, 0): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.EXITED, 1): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.SIGNALED, 15): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.NOT_STARTED, 2): ExecState.FAILED,
    (ExecState.CANCELING, Outcome.TIMED_OUT, -9): ExecState.TIMED_OUT,
    (ExecState.CANCELING, Outcome.KILLED, -15): ExecState.CANCELED,
}


@pytest.mark.parametrize(("state", "outcome", "code"), list(ENDS))
def test_how_execs_end(state: ExecState, outcome: Outcome, code: int) -> None:
    end = exec_end(state, outcome, code)
    assert end is ENDS[state, outcome, code]
    assert end.ended


def test_every_outcome_ends_every_exec() -> None:
    assert {(s, o) for s, o, _ in ENDS} == {(s, o) for s in ExecState if not s.ended for o in Outcome}
