"""What is said to people beside the result: on stderr, in one voice."""

from __future__ import annotations

import json
import re
import sys

from paddock.cli.context import current
from paddock.errors import PaddockError

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """Text from elsewhere without what moves a terminal's cursor, colours it, or turns its writing."""
    return _CONTROLS.sub("", str(text)).replace("\n", " ").replace("\t", " ")


def note(text: str, *, end: str = "\n") -> None:
    print(f"paddock: {plain(text)}", file=sys.stderr, end=end, flush=True)


def report(error: PaddockError) -> None:
    if current.json:
        print(json.dumps(error.as_dict()), file=sys.stderr, flush=True)
        return
    note(error.message)
    if error.hint:
        print(f"         {plain(error.hint)}", file=sys.stderr, flush=True)
