"""The store: SQLite inside the data folder, or PostgreSQL by address, behind one small interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import URL, Engine, Executable, RowMapping

from paddock.errors import Unavailable
from paddock.store.engines import READERS, parse_url, reader_engine, writer_engine
from paddock.store.faults import translate
from paddock.store.migrate import migrate
from paddock.store.writer import Op, Writer


class Store:
    """Belongs to the event loop that opened it.

    Writes happen in the order in which they were asked for. A read sees every write that has returned; one
    from `write_later` it sees after `flush`.
    """

    def __init__(self, writing: Engine, reading: Engine) -> None:
        self._writing = writing
        self._reading = reading
        self._writer = Writer(writing)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="paddock-store-reader")
        self._closed = False

    @classmethod
    async def open(cls, url: str) -> Store:
        """Bring the database to the newest schema and open it."""
        parsed = parse_url(url)
        writing = await asyncio.to_thread(_prepare, parsed)
        return cls(writing, reader_engine(parsed))

    async def write(self, *statements: Op, hurry: bool = True) -> None:
        """All or nothing; returns when committed. Without hurry it waits some milliseconds for company."""
        await self._writer.write(statements, hurry=hurry)

    def write_later(self, *statements: Op, then: Callable[[], None] | None = None) -> None:
        """As `write`, without waiting: committed some milliseconds later; a failure is logged.

        `then` is called on the event loop when the statements are committed or have failed, in order.
        """
        self._writer.write_later(statements, then)

    async def fetch_all(self, statement: Executable) -> list[RowMapping]:
        if self._closed:
            raise Unavailable("the store is closed", reason="store_closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, statement)

    async def fetch_one(self, statement: Executable) -> RowMapping | None:
        rows = await self.fetch_all(statement)
        return rows[0] if rows else None

    async def flush(self) -> None:
        """Returns when everything asked for before is committed, or has failed."""
        await self._writer.write((), hurry=True)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._dispose)

    def _read(self, statement: Executable) -> list[RowMapping]:
        try:
            with self._reading.connect() as connection:
                return list(connection.execute(statement).mappings())
        except Exception as error:
            raise translate(error) from error

    def _dispose(self) -> None:
        self._readers.shutdown()
        self._reading.dispose()
        self._writing.dispose()


def _prepare(url: URL) -> Engine:
    engine = writer_engine(url)
    try:
        migrate(engine)
    except Exception as error:
        engine.dispose()
        raise translate(error) from error
    return engine
