from __future__ import annotations

import os
from pathlib import Path

from paddock.runtimes.disk.usage import INODE_COST, measure


def test_blocks_and_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(b"x" * 100_000)
    usage = measure([tmp_path])
    assert usage.inodes == 2
    assert usage.bytes >= 100_000 + 2 * INODE_COST
    assert usage.complete


def test_a_sparse_file_costs_what_it_holds(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert measure([tmp_path]).bytes < 1 << 20


def test_a_file_with_many_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 50_000)
    alone = measure([tmp_path])
    for number in range(5):
        os.link(tmp_path / "one", tmp_path / f"link{number}")
    assert measure([tmp_path]) == alone


def test_links_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 200_000)
    (inside / "link").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    assert measure([inside]).bytes < 50_000


def test_many_empty_files_are_not_free(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert measure([tmp_path]).bytes >= 100 * INODE_COST


def test_a_walk_that_takes_too_long_says_so(tmp_path: Path) -> None:
    assert not measure([tmp_path], seconds=-1).complete


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    usage = measure([tmp_path / "none"])
    assert (usage.bytes, usage.inodes, usage.complete) == (0, 0, True)
