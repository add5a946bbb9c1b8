from __future__ import annotations

import os
from pathlib import Path

from paddock.runtimes.disk.removal import remove_tree


def test_a_tree_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(kept)
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").read_text() == "kept"
    remove_tree(tree)


def test_a_tree_deeper_than_python_recurses_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    remove_tree(tree)
    assert not tree.exists()


def test_folders_without_any_right_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "locked/inner").mkdir(parents=True)
    (tree / "locked/inner/file").touch()
    (tree / "locked").chmod(0)
    remove_tree(tree)
    assert not tree.exists()
