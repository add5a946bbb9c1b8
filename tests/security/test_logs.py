"""What is logged came from somebody: it must not move the reader's cursor, nor make lines of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n2030-01-01 [info] forged\x9b31m\u202e\x7f"
SCRIPT = """
import logging, sys
import structlog
from paddock.config import Settings
from paddock.server.logs import configure
configure(Settings(data_dir="/nonexistent", log_format=sys.argv[1]))
hostile = sys.argv[2].encode("latin-1", "backslashreplace").decode("unicode_escape")
log = structlog.get_logger("test")
log.warning("guest_violation", detail=hostile, plain=hostile.replace("\\r\\n", "").replace(" ", ""))
log.warning(hostile)
logging.getLogger("library").warning("it said %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    log.error("request.failed", exc_info=True)
"""


@pytest.mark.parametrize("form", ["console", "json"])
def test_control_characters_are_escaped(form: str) -> None:
    given = HOSTILE.encode("unicode_escape").decode("ascii")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, form, given],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    text = done.stderr.decode()
    assert text.count("owned") >= 4, "nothing was logged: that proves nothing"
    for character in "\x1b\x07\r\x9b\u202e\x7f":
        assert character not in text, ascii(character)
    forged = [line for line in text.splitlines() if line.startswith("2030-01-01")]
    assert forged == []
