"""The one thread that writes, with group commit.

Everything that waits goes into one transaction. When that transaction fails, it is undone and each request is
tried alone, in order, so that a request which cannot succeed fails by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog
from sqlalchemy import Connection, Engine, Executable, Insert

from paddock.errors import PaddockError, Unavailable
from paddock.store.faults import is_disconnect, translate

Op: TypeAlias = Executable | tuple[Executable, Mapping[str, Any] | Sequence[Mapping[str, Any]]]
"""A statement, or one with its parameters: cheaper, since the same statement object is compiled once."""

LATER_SECONDS = 0.008
"""How long writes that are in no hurry gather before they wake the thread."""
_MAX_BATCH = 500
_MAX_WAITING = 200_000

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Request:
    ops: tuple[Op, ...]
    done: asyncio.Future[None] | None
    then: Callable[[], None] | None = None
    error: PaddockError | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    error: PaddockError
    lost: bool
    """The connection broke, ..."""
    committing: bool
    """... perhaps while nobody knows whether the commit took place: then a second try could do it twice."""
    size: int

    @property
    def concerns_all(self) -> bool:
        return self.error.reason in {"store_away", "store_busy"}

    @property
    def try_alone(self) -> bool:
        if self.lost:
            return not self.committing
        return self.size > 1 and not self.concerns_all


class Writer:
    """Used from the event loop that made it; only `_run` and what it calls are the thread's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._gathered: list[_Request] = []
        self._kick_soon = False
        self._kick_later: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._closed = False
        self._inbox: queue.SimpleQueue[list[_Request] | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="paddock-store-writer", daemon=True)
        self._thread.start()

    async def write(self, ops: tuple[Op, ...], *, hurry: bool) -> None:
        if self._closed:
            raise Unavailable("the store is closed", reason="store_closed")
        if self._waiting > _MAX_WAITING:
            raise Unavailable("the database cannot keep up", reason="store_busy", hint="try again")
        done: asyncio.Future[None] = self._loop.create_future()
        self._gather(_Request(ops, done))
        if not hurry:
            self._plan_kick()
        elif not self._kick_soon:
            # Not at once: whatever else this turn of the loop writes shall ride along.
            self._kick_soon = True
            self._loop.call_soon(self._kick)
        await done

    def write_later(self, ops: tuple[Op, ...], then: Callable[[], None] | None) -> None:
        if self._closed or self._waiting > _MAX_WAITING:
            log.error("store.write_dropped", closed=self._closed, waiting=self._waiting)
            return
        self._gather(_Request(ops, None, then))
        self._plan_kick()

    def _plan_kick(self) -> None:
        if not self._kick_soon and self._kick_later is None:
            self._kick_later = self._loop.call_later(LATER_SECONDS, self._kick)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._kick()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _gather(self, request: _Request) -> None:
        self._gathered.append(request)
        self._waiting += 1

    def _kick(self) -> None:
        self._kick_soon = False
        if self._kick_later is not None:
            self._kick_later.cancel()
            self._kick_later = None
        if self._gathered:
            self._inbox.put(self._gathered)
            self._gathered = []

    def _settle(self, requests: list[_Request]) -> None:
        self._waiting -= len(requests)
        for request in requests:
            if request.done is None:
                if request.error is not None:
                    log.error("store.write_failed", reason=request.error.reason, error=request.error.message)
                if request.then is not None:
                    request.then()
            elif not request.done.done():
                if request.error is None:
                    request.done.set_result(None)
                else:
                    request.done.set_exception(request.error)

    def _run(self) -> None:
        open_ = True
        while open_:
            requests: list[_Request] = []
            open_ = self._take(requests)
            for start in range(0, len(requests), _MAX_BATCH):
                batch = requests[start : start + _MAX_BATCH]
                self._commit_all(batch)
                # Nobody is left to tell when the loop has gone.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._settle, batch)
        self._disconnect()

    def _take(self, into: list[_Request]) -> bool:
        """Everything that waits, or the next to come; False: there will be no more."""
        arrived = self._inbox.get()
        while arrived is not None:
            into += arrived
            try:
                arrived = self._inbox.get_nowait()
            except queue.Empty:
                return True
        return False

    def _commit_all(self, batch: list[_Request]) -> None:
        failure = self._transact(batch)
        if failure is not None and failure.try_alone:
            self._commit_each(batch)
        elif failure is not None:
            for request in batch:
                request.error = failure.error

    def _commit_each(self, batch: list[_Request]) -> None:
        failure: _Failure | None = None
        for request in batch:
            # What is wrong with the database itself would cost every further request a timeout of its own.
            if failure is None or not failure.concerns_all:
                failure = self._transact([request])
            request.error = failure.error if failure else None

    def _transact(self, batch: list[_Request]) -> _Failure | None:
        committing = False
        try:
            transaction = self._connect().begin()
            try:
                self._execute(batch)
                committing = True
                transaction.commit()
            except BaseException:
                transaction.close()
                raise
        except Exception as error:
            self._disconnect()
            return _Failure(translate(error), is_disconnect(error), committing, len(batch))
        return None

    def _execute(self, batch: list[_Request]) -> None:
        """In order; but inserts that follow each other go together by statement: several times cheaper."""
        inserts: dict[Executable, list[Mapping[str, Any]]] = {}
        for request in batch:
            for op in request.ops:
                if isinstance(op, tuple) and isinstance(op[0], Insert) and isinstance(op[1], dict):
                    inserts.setdefault(op[0], []).append(op[1])
                    continue
                self._insert(inserts)
                if isinstance(op, tuple):
                    self._connect().execute(*op)
                else:
                    self._connect().execute(op)
        self._insert(inserts)

    def _insert(self, inserts: dict[Executable, list[Mapping[str, Any]]]) -> None:
        for statement, rows in inserts.items():
            self._connect().execute(statement, rows)
        inserts.clear()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()
