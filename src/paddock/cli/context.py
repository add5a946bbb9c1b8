"""What every command may be told: how to print, and which server to ask."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Globals:
    json: bool = False
    url: str | None = None
    token: str | None = None
    data_dir: Path | None = None

    def reset(self) -> None:
        self.json, self.url, self.token, self.data_dir = False, None, None, None

    def apply(self, *, json: bool, url: str | None, token: str | None, data_dir: Path | None) -> None:
        """Take over what was given; what was not stays as it was said earlier on the line."""
        self.json = self.json or json
        self.url = url or self.url
        self.token = token or self.token
        self.data_dir = data_dir or self.data_dir

    @property
    def server_url(self) -> str | None:
        return self.url or os.environ.get("PADDOCK_URL") or None

    @property
    def server_token(self) -> str | None:
        return self.token or os.environ.get("PADDOCK_TOKEN") or None


current = Globals()
"""Of this process: one command line, one set of them."""
