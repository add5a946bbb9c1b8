"""The state machines of sandboxes and execs: tables, and functions that look into them. No I/O."""

from __future__ import annotations

from enum import StrEnum

from paddock.errors import Conflict
from paddock.guest.wire import Outcome
from paddock.sandboxes.model import ExecState, State


class Change(StrEnum):
    """What can happen to a sandbox."""

    READY = "ready"
    FAIL = "fail"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    ENDED = "ended"
    DELETE = "delete"


TRANSITIONS: dict[tuple[State, Change], State] = {
    (State.CREATING, Change.READY): State.RUNNING,
    (State.CREATING, Change.FAIL): State.FAILED,
    (State.CREATING, Change.DELETE): State.DELETED,
    (State.RUNNING, Change.PAUSE): State.PAUSED,
    (State.RUNNING, Change.STOP): State.STOPPING,
    (State.RUNNING, Change.FAIL): State.FAILED,
    (State.RUNNING, Change.DELETE): State.DELETED,
    (State.PAUSED, Change.RESUME): State.RUNNING,
    (State.PAUSED, Change.STOP): State.STOPPING,
    (State.PAUSED, Change.FAIL): State.FAILED,
    (State.PAUSED, Change.DELETE): State.DELETED,
    (State.STOPPING, Change.ENDED): State.STOPPED,
    (State.STOPPING, Change.FAIL): State.FAILED,
    (State.STOPPING, Change.DELETE): State.DELETED,
    (State.STOPPED, Change.DELETE): State.DELETED,
    (State.FAILED, Change.DELETE): State.DELETED,
}

LIVE = frozenset({State.RUNNING, State.PAUSED, State.STOPPING})
"""States in which a sandbox has processes."""
OVER = frozenset({State.STOPPED, State.FAILED})

EXEC_ENDS: dict[tuple[ExecState, Outcome], ExecState] = {
    (ExecState.RUNNING, Outcome.EXITED): ExecState.COMPLETED,
    (ExecState.RUNNING, Outcome.SIGNALED): ExecState.FAILED,
    (ExecState.RUNNING, Outcome.NOT_STARTED): ExecState.FAILED,
    (ExecState.RUNNING, Outcome.TIMED_OUT): ExecState.TIMED_OUT,
    (ExecState.RUNNING, Outcome.KILLED): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.EXITED): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.SIGNALED): ExecState.CANCELED,
    (ExecState.CANCELING, Outcome.NOT_STARTED): ExecState.FAILED,
    (ExecState.CANCELING, Outcome.TIMED_OUT): ExecState.TIMED_OUT,
    (ExecState.CANCELING, Outcome.KILLED): ExecState.CANCELED,
}
"""EXITED is COMPLETED only with exit code 0: see `exec_end`."""


def next_state(state: State, change: Change) -> State:
    """The state after a change, or Conflict naming what stands in the way."""
    try:
        return TRANSITIONS[state, change]
    except KeyError:
        raise Conflict(
            f"a sandbox that is {state} cannot {change.value}",
            reason=f"sandbox_{state.value}",
            hint="see its state with: paddock sandbox show",
        ) from None


def exec_end(state: ExecState, outcome: Outcome, code: int) -> ExecState:
    """How an exec ends, given its state and what the guest says of its process."""
    end = EXEC_ENDS[state, outcome]
    if end is ExecState.COMPLETED and code != 0:
        return ExecState.FAILED
    return end
