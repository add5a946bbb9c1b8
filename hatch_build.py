"""Build hook: compiles the guest with the system's C compiler and puts its programs into the wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GUEST = Path("src/paddock/guest")
PROGRAMS = ("paddock-guest", "paddock-launch")


class GuestBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        guest = Path(self.root) / GUEST
        builder = guest / "build.py"
        if not builder.is_file() or not any((guest / "csrc").glob("*.c")):
            return
        if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
            raise RuntimeError(
                "Paddock's guest is a small C program and no C compiler was found (cc, gcc or clang). "
                "Install one, for example with scripts/system-packages, and try again."
            )
        self._build(builder)
        build_data["pure_python"] = False
        # The programs are static: they depend on the machine, and on no version of Python.
        build_data["tag"] = f"py3-none-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
        for name in PROGRAMS:
            program = guest / "bin" / name
            if program.is_file():
                build_data["artifacts"].append(str(GUEST / "bin" / name))

    def _build(self, builder: Path) -> None:
        # Loaded by its path: the package itself cannot be imported before it is installed.
        spec = importlib.util.spec_from_file_location("paddock_guest_build", builder)
        if spec is None or spec.loader is None:
            raise RuntimeError(f"cannot load {builder}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.build()
