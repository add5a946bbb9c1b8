from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.report import HEADINGS, Report, Row, at_least, at_most, markdown, show, table
from bench.samples import Samples

OURS = Samples("ours", "ms", (2.0, 3.0, 4.0))
THEIRS = Samples("theirs", "ms", (30.0, 60.0, 90.0))


def test_a_ratio_says_how_many_times_slower_or_faster() -> None:
    assert Row("it", THEIRS, OURS).ratio == pytest.approx(20.0)
    assert Row("it", OURS, THEIRS, inverse=True).ratio == pytest.approx(20.0)
    assert Row("it", OURS).ratio is None


def test_a_goal_with_a_baseline_is_about_the_ratio() -> None:
    assert Row("it", OURS, THEIRS, at_least(20, "20x"), inverse=True).met() is True
    assert Row("it", OURS, THEIRS, at_least(21, "21x"), inverse=True).met() is False
    assert Row("it", THEIRS, OURS, at_most(19, "19x")).met() is False


def test_a_goal_without_a_baseline_is_about_the_median() -> None:
    assert Row("it", OURS, goal=at_most(3, "3 ms")).verdict == "met"
    assert Row("it", OURS, goal=at_most(2.9, "2.9 ms")).verdict == "MISSED"
    assert Row("it", OURS).verdict == ""


def test_slack_forgives_a_near_miss_in_either_direction() -> None:
    slow = Row("slow", OURS, goal=at_most(2.5, "2.5 ms"))
    few = Row("few", OURS, goal=at_least(3.5, "3.5 ms"))
    report = Report([slow, few, Row("plain", OURS)])
    assert report.missed() == [slow, few]
    assert report.missed(0.25) == []
    assert report.missed(0.1) == [slow, few]


def test_the_table_has_a_line_for_each_row_in_columns() -> None:
    rows = [
        Row("create", OURS, THEIRS, at_least(10, "10x"), inverse=True),
        Row("idle", Samples("idle", "MiB", (0.25,))),
    ]
    lines = table(rows).splitlines()
    assert len(lines) == 4
    assert lines[0].split() == [word for word in HEADINGS if word]
    assert "3 ms" in lines[2]
    assert "theirs 60 ms" in lines[2]
    assert lines[2].endswith("met")
    assert lines[2].index("theirs") == lines[0].index("baseline")
    assert "0.25 MiB" in lines[3]


def test_a_document_gets_the_same_rows() -> None:
    row = Row("create", OURS, THEIRS, at_least(10, "10x"), inverse=True)
    lines = markdown([row]).splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "create", "3 ms", "3.80 ms", "3.98 ms", "theirs 60 ms", "20x", "10x", "met",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1234 ms"), (12.34, "12.3 ms"), (1.234, "1.23 ms"), (5.0, "5 ms")]
)
def test_numbers_are_shown_as_exactly_as_they_matter(value: float, text: str) -> None:
    assert show(value, "ms") == text


def test_json_keeps_every_sample_of_both_sides(tmp_path: Path) -> None:
    report = Report([Row("it", OURS, THEIRS, at_least(10, "10x"), inverse=True)], ["no podman"])
    path = tmp_path / "deep" / "result.json"
    report.write(path)
    written = json.loads(path.read_text())
    assert written["samples"]["ours"] == {"unit": "ms", "values": [2.0, 3.0, 4.0]}
    assert written["samples"]["theirs"]["values"] == [30.0, 60.0, 90.0]
    assert written["rows"][0]["met"] is True
    assert written["rows"][0]["baseline"] == {"name": "theirs", "median": 60.0}
    assert written["skipped"] == ["no podman"]
    assert written["machine"]["cores"] >= 1
