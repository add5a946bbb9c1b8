from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from paddock.runtimes import bwrap_remains as remains
from paddock.runtimes.waiting import until


async def test_processes_are_found_by_their_title() -> None:
    key = f"test{os.getpid()}"
    process = subprocess.Popen(
        [remains.title(key, "one"), "60"], executable="/bin/sleep", stdin=subprocess.DEVNULL
    )
    other = subprocess.Popen(
        [remains.title(f"{key}x", "two"), "60"], executable="/bin/sleep", stdin=subprocess.DEVNULL
    )
    try:
        await until(
            lambda: [(n, p.pid) for n, p in remains.titled_processes(key)] == [("one", process.pid)], 20
        )
    finally:
        for child in (process, other):
            child.send_signal(signal.SIGKILL)
            child.wait()
    assert list(remains.titled_processes(key)) == []


def test_folders_are_remembered_while_they_exist(tmp_path: Path) -> None:
    here, gone, new = tmp_path / "here", tmp_path / "gone", tmp_path / "new"
    here.mkdir()
    assert remains.recorded_folders(tmp_path) == []
    remains.record_folders(tmp_path, [here, gone])
    assert remains.recorded_folders(tmp_path) == [here, gone]
    remains.record_folders(tmp_path, [here, new])
    assert remains.recorded_folders(tmp_path) == [here, new]


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "paddock/one").mkdir(parents=True)
    (tmp_path / "paddock/two/sandbox").mkdir(parents=True)
    remains.remove_empty([tmp_path / "paddock/one", tmp_path / "paddock/two", tmp_path / "paddock/three"])
    assert not (tmp_path / "paddock/one").exists()
    assert (tmp_path / "paddock/two/sandbox").is_dir()


async def test_a_title_that_is_no_name_is_not_a_sandbox() -> None:
    key = f"test{os.getpid()}"
    process = subprocess.Popen(
        [remains.title(key, "../../etc"), "60"], executable="/bin/sleep", stdin=subprocess.DEVNULL
    )
    try:
        cmdline = Path(f"/proc/{process.pid}/cmdline")
        await until(lambda: key.encode() in cmdline.read_bytes(), 20)
        assert list(remains.titled_processes(key)) == []
    finally:
        process.kill()
        process.wait()


def test_mounted_disks_are_found(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    places = ("/d/sandboxes/one/data", "/d/sandboxes/two/other", "/e/sandboxes/three/data", "/d/data")
    mountinfo.write_text("".join(f"30 20 7:0 / {place} rw - ext4 /dev/loop0 rw\n" for place in places))
    assert remains.mounted_sandboxes(Path("/d"), mountinfo) == {"one"}
