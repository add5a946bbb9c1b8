"""A data folder and its database belong together: with a foreign one, every sandbox would be an orphan."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

from sqlalchemy import select

from paddock.config import DataDir
from paddock.errors import Conflict
from paddock.store import Store, write_private
from paddock.store.schema import meta

KEY = "data_dir"


async def belong_together(data: DataDir, store: Store) -> None:
    """Join the two at their first meeting; refuse to go on with a stranger."""
    path = data.private / "instance"
    row = await store.fetch_one(select(meta.c.value).where(meta.c.key == KEY))
    known = row["value"] if row else None
    here = path.read_text().strip() if path.exists() else None
    if known is not None and known == here:
        return
    if known is not None or (here is not None and _used(data.sandboxes)):
        raise Conflict(
            f"the data folder {data.root} and this database do not belong together",
            reason="foreign_database",
            hint="start with the database_url that this folder was used with, or with an empty folder",
        )
    fresh = here or token_hex(16)
    if here is None:
        write_private(path, fresh)
    await store.write((meta.insert(), {"key": KEY, "value": fresh}))


def _used(folder: Path) -> bool:
    return any(folder.iterdir())
