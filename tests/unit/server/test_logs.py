"""Log lines, in a process of their own: the configuration is the process's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys
from pathlib import Path
import structlog
from paddock.config import Settings
from paddock.server.logs import configure
configure(Settings(data_dir=Path("/nonexistent"), log_level=sys.argv[1], log_format=sys.argv[2]))
log = structlog.get_logger("x")
log.debug("fine", number=1)
log.error("bad", number=2)
logging.getLogger("library").info("chatter")
logging.getLogger("library").warning("odd")
def fail(secret):
    raise ValueError("broken")
try:
    fail("pdk_hidden")
except ValueError:
    log.error("failed", exc_info=True)
"""


def lines(level: str, form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level, form],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json_is_one_object_per_line() -> None:
    events = [json.loads(line) for line in lines("debug", "json")]
    assert [event["event"] for event in events] == ["fine", "bad", "odd", "failed"]
    assert (events[1]["level"], events[1]["number"]) == ("error", 2)
    assert "ValueError: broken" in events[3]["exception"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_variables(form: str) -> None:
    text = "\n".join(lines("info", form))
    assert "broken" in text
    assert "fine" not in text
    assert "pdk_hidden" not in text.replace('fail("pdk_hidden")', "")
