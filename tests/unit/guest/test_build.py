"""The build of the guest itself."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddock.guest import build


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources and programs of its own, with a guest that compiles in no time."""
    here = tmp_path / "guest"
    (here / "csrc/launch").mkdir(parents=True)
    (here / "csrc/main.c").write_text('#include <stdio.h>\nint main(void) { puts("guest"); return 0; }\n')
    monkeypatch.setattr(build, "HERE", here)
    monkeypatch.setattr(build, "SOURCES", here / "csrc")
    monkeypatch.setattr(build, "PROGRAMS", here / "bin")
    monkeypatch.setattr(build, "_ready", {})
    return here


def output(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_it_builds_once_and_again_when_a_source_changes(checkout: Path) -> None:
    program = build.build()
    assert output(program) == "guest\n"
    first = program.stat()
    assert build.build().stat().st_ino == first.st_ino
    assert build.build(force=True).stat().st_ino != first.st_ino
    (checkout / "csrc/main.c").write_text('#include <stdio.h>\nint main(void) { puts("new"); return 0; }\n')
    assert output(build.guest_binary()) == "new\n"
    assert sorted(path.name for path in (checkout / "bin").iterdir()) == [
        ".lock",
        ".paddock-guest.key",
        "paddock-guest",
    ]


def test_the_launcher_is_built_where_it_has_sources(checkout: Path) -> None:
    with pytest.raises(build.BuildFailed, match="missing"):
        build.launch_binary()
    (checkout / "csrc/launch/launch.c").write_text("int main(void) { return 0; }\n")
    build.build()
    assert build.launch_binary().name == "paddock-launch"


def test_many_may_build_at_the_same_time(checkout: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        programs = list(pool.map(lambda _: build.build(), range(4)))
    assert {output(program) for program in programs} == {"guest\n"}


def test_an_installed_copy_without_sources_is_used_as_it_is(checkout: Path) -> None:
    program = build.build()
    shutil.rmtree(checkout / "csrc")
    assert build.guest_binary() == program


def test_without_a_compiler_it_says_what_to_install(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(build.BuildFailed, match="install a C compiler"):
        build.build()


def test_an_error_in_the_source_is_shown(checkout: Path) -> None:
    (checkout / "csrc/main.c").write_text("int main(void) { return nonsense; }\n")
    with pytest.raises(build.BuildFailed, match="nonsense"):
        build.build()
    assert not (checkout / "bin/paddock-guest").exists()


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(build.HERE / "build.py")],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")


def program_header_types(elf: bytes) -> set[int]:
    assert elf[:5] == b"\x7fELF\x02"
    offset, size, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54)
    return {struct.unpack_from("<I", elf, offset + n * size)[0] for n in range(count)}


def test_the_guest_is_static_and_warns_of_nothing(tmp_path: Path) -> None:
    program = build.guest_binary()
    assert program_header_types(program.read_bytes()).isdisjoint({2, 3}), "it asks for a dynamic linker"
    sources = sorted(build.SOURCES.glob("*.c"))
    compiler = next(found for name in build.COMPILERS if (found := shutil.which(name)))
    command = [
        compiler,
        *build.FLAGS,
        "-O0",
        "-U_FORTIFY_SOURCE",
        "-Werror",
        "-fsyntax-only",
        *map(str, sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
