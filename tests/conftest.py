from __future__ import annotations

pytest_plugins = ("tests.abilities", "tests.leaks", "tests.databases")
