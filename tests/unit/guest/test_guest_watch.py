"""watch: changes as they happen."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.guest.driver import BUILTIN, KILL, TRANSIENT, Guest

Event = dict[str, str]


class Watch:
    def __init__(self, guest: Guest, path: Path, recursive: bool) -> None:
        self.guest = guest
        self.channel = guest.start("watch", str(path), "1" if recursive else "0", flags=BUILTIN | TRANSIENT)
        self.wait(lambda events: events[:1] == [{"event": "ready"}])

    def events(self) -> list[Event]:
        text = bytes(self.guest.wire.outcomes[self.channel].stdout)
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]

    def wait(self, condition: Callable[[list[Event]], bool]) -> list[Event]:
        self.guest.wire.until(lambda: condition(self.events()))
        return self.events()

    def see(self, **event: str) -> None:
        self.wait(lambda events: event in events)

    def stop(self) -> None:
        self.guest.wire.send(KILL, struct.pack("<I", 0), self.channel)
        self.guest.wait(self.channel)


def test_files_come_change_move_and_go(guest: Guest, tmp_path: Path) -> None:
    watch = Watch(guest, tmp_path, recursive=False)
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("x")
    watch.see(event="created", path=str(file))
    watch.see(event="modified", path=str(file))
    file.rename(other)
    watch.see(event="moved", path=str(file), to=str(other))
    other.unlink()
    watch.see(event="deleted", path=str(other))
    watch.stop()


def test_new_folders_are_watched_too(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    watch = Watch(guest, tmp_path, recursive=True)
    (tmp_path / "old/file").touch()
    watch.see(event="created", path=str(tmp_path / "old/file"))
    (tmp_path / "new/deep").mkdir(parents=True)
    (tmp_path / "new/deep/file").touch()
    watch.see(event="created", path=str(tmp_path / "new/deep/file"))
    (tmp_path / "new").rename(tmp_path / "moved")
    watch.see(event="moved", path=str(tmp_path / "new"), to=str(tmp_path / "moved"))
    (tmp_path / "moved/deep/later").touch()
    watch.see(event="created", path=str(tmp_path / "moved/deep/later"))
    watch.stop()


def test_without_recursion_only_the_folder_itself(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    watch = Watch(guest, tmp_path, recursive=False)
    (tmp_path / "sub/file").touch()
    (tmp_path / "last").touch()
    watch.see(event="created", path=str(tmp_path / "last"))
    assert not any("sub/file" in event.get("path", "") for event in watch.events())
    watch.stop()


def test_moves_over_the_border_are_creations_and_deletions(guest: Guest, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    (outside / "folder").mkdir(parents=True)
    (outside / "folder/file").touch()
    watch = Watch(guest, inside, recursive=True)
    (outside / "folder").rename(inside / "folder")
    watch.see(event="created", path=str(inside / "folder"))
    watch.see(event="created", path=str(inside / "folder/file"))
    (inside / "folder").rename(outside / "back")
    watch.see(event="deleted", path=str(inside / "folder"))
    (outside / "back/unseen").touch()
    (inside / "last").touch()
    watch.see(event="created", path=str(inside / "last"))
    assert not any("unseen" in event.get("path", "") for event in watch.events())
    watch.stop()


def test_a_watch_ends_when_its_folder_does(guest: Guest, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    watch = Watch(guest, folder, recursive=True)
    folder.rmdir()
    done = guest.wait(watch.channel)
    assert done.exit is not None
    assert done.exit.code == 0
    assert watch.events()[-1] == {"event": "deleted", "path": str(folder)}


def test_a_file_can_be_watched(guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    watch = Watch(guest, file, recursive=True)
    file.write_text("more")
    watch.see(event="modified", path=str(file))
    watch.stop()


def test_what_does_not_exist_cannot_be_watched(guest: Guest, tmp_path: Path) -> None:
    done = guest.builtin("watch", str(tmp_path / "none"), "1")
    assert done.exit is not None
    assert done.exit.code != 0
    assert json.loads(done.stderr)["errno"] == "ENOENT"


@pytest.mark.skipif(
    not os.access("/proc/sys/fs/inotify/max_queued_events", os.R_OK), reason="missing ability: inotify"
)
def test_missed_events_are_said(guest: Guest, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 40_000:
        pytest.skip("missing ability: a small inotify queue")
    guest.wire.auto_ack = False
    channel = guest.start("watch", str(tmp_path), "0", flags=BUILTIN | TRANSIENT, window=4096)
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: b"ready" in outcome.stdout)
    one, two = tmp_path / "one", tmp_path / "two"
    one.touch()
    for _ in range(limit):
        one.rename(two)
        two.rename(one)
    guest.wire.auto_ack = True
    guest.wire.send(8, struct.pack("<Q", outcome.position), channel)
    guest.wire.until(lambda: b'"overflow"' in outcome.stdout)
    guest.wire.send(KILL, struct.pack("<I", 0), channel)
    guest.wait(channel)
