from __future__ import annotations

import pytest

from paddock.cli.copy import Place
from paddock.errors import Invalid


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("box:/workspace/a", Place("box", "/workspace/a")),
        ("sb-1_2:a:b", Place("sb-1_2", "a:b")),
        ("box:", Place("box", ".")),
        ("./a:b", Place(None, "./a:b")),
        ("/a:b", Place(None, "/a:b")),
        ("a/b:c", Place(None, "a/b:c")),
        ("-", Place(None, "-")),
        ("file", Place(None, "file")),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert Place.parse(text) == place


def test_nothing_is_no_place() -> None:
    with pytest.raises(Invalid):
        Place.parse("")


@pytest.mark.parametrize(
    ("path", "folder", "contents"),
    [("a", False, False), ("a/", True, False), ("a/.", True, True), (".", True, True), ("..", True, False)],
)
def test_what_a_path_means(path: str, folder: bool, contents: bool) -> None:
    place = Place("box", path)
    assert (place.means_folder, place.means_contents) == (folder, contents)


def test_only_a_local_dash_is_a_stream() -> None:
    assert Place.parse("-").is_stream
    assert not Place.parse("box:-").is_stream
