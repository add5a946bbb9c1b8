from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config import DataDir
from paddock.runtimes.fake import FakeRuntime
from paddock.sandboxes.box import Box
from paddock.sandboxes.model import State
from paddock.sandboxes.planning import spec_of
from paddock.sandboxes.reaper import due
from tests.unit.sandboxes.makings import sandbox

NOW = 2000.0


@pytest.mark.parametrize(
    ("fields", "busy", "expected"),
    [
        ({}, False, None),
        ({"expires_at": NOW + 1}, False, None),
        ({"expires_at": NOW}, False, "expired"),
        ({"expires_at": NOW}, True, "expired"),
        ({"expires_at": NOW, "state": "paused"}, False, "expired"),
        ({"idle_timeout": 1001.0}, False, None),
        ({"idle_timeout": 1000.0}, False, "idle"),
        ({"idle_timeout": 1000.0}, True, None),
        ({"idle_timeout": 1000.0, "state": "paused"}, False, None),
        ({"idle_timeout": 1000.0, "last_active_at": NOW}, False, None),
        ({"expires_at": 1.0, "idle_timeout": 1.0, "state": "creating"}, False, None),
        ({"expires_at": 1.0, "idle_timeout": 1.0, "state": "stopping"}, False, None),
        ({"expires_at": 1.0, "idle_timeout": 1.0, "state": "stopped"}, False, None),
        ({"state": "stopped", "ended_at": 1500.0}, False, None),
        ({"state": "stopped", "ended_at": 1500.0, "auto_delete": 501.0}, False, None),
        ({"state": "stopped", "ended_at": 1500.0, "auto_delete": 500.0}, False, "delete"),
        ({"state": "failed", "ended_at": NOW, "auto_delete": 0.0}, False, "delete"),
        ({"state": "failed", "updated_at": 1000.0, "auto_delete": 1000.0}, False, "delete"),
        ({"state": "running", "auto_delete": 0.0}, False, None),
        ({"state": "deleted"}, False, "delete"),
    ],
)
async def test_what_is_due(
    tmp_path: Path, fields: dict[str, object], busy: bool, expected: str | None
) -> None:
    record = sandbox(**fields)
    box = Box(record, spec_of(record, DataDir(tmp_path), None), FakeRuntime())
    box.calls = int(busy)
    assert box.record.state in State
    assert due(box, NOW) == expected
