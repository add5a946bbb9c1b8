"""The database beneath: how long a commit takes, and how many fit into a second when many wait at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.report import Row
from bench.run import Run
from bench.samples import Samples

TOGETHER = 64


def measure(run: Run) -> None:
    alone, rates = asyncio.run(_measure(run.folder / "store.db", run.rounds(500, 100)))
    run.report.rows.append(Row("commit of one write", Samples("store alone", "ms", tuple(alone))))
    samples = Samples("store together", "/s", tuple(rates), more_is_better=True)
    run.report.rows.append(Row(f"writes, {TOGETHER} at once", samples))


async def _measure(path: Path, rounds: int) -> tuple[list[float], list[float]]:
    from sqlalchemy import insert

    from paddock.store import Store
    from paddock.store.schema import meta

    statement = insert(meta)
    store = await Store.open(f"sqlite:///{path}")
    number = 0

    async def write() -> None:
        nonlocal number
        number += 1
        await store.write((statement, {"key": f"bench-{number}", "value": "x" * 500}))

    try:
        alone, rates = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            await write()
            alone.append((time.perf_counter() - began) * 1000)
        for _ in range(max(10, rounds // 10)):
            began = time.perf_counter()
            await asyncio.gather(*(write() for _ in range(TOGETHER)))
            rates.append(TOGETHER / (time.perf_counter() - began))
        return alone, rates
    finally:
        await store.close()
