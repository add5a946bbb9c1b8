from __future__ import annotations

import inspect

import pytest

from paddock.cli import values
from paddock.errors import Invalid


def test_pairs_keep_everything_behind_the_first_equals_sign() -> None:
    assert values.pairs(["a=1", "b=x=y", "c="], "label") == {"a": "1", "b": "x=y", "c": ""}
    assert values.pairs(None, "label") == {}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        values.pairs([text], "label")
    assert caught.value.exit_code == 2


def test_a_variable_without_a_value_is_passed_on_when_it_is_set() -> None:
    assert values.environment(["A", "B", "C=3"], {"A": "1"}) == {"A": "1", "C": "3"}


def test_sizes_and_durations() -> None:
    assert values.size("512MiB") == 512 << 20
    assert values.size(None) is None
    assert values.duration("1h30m") == 5400.0
    with pytest.raises(Invalid):
        values.duration("soon")


def test_a_rule_can_be_taken_away() -> None:
    assert values.limit("none", values.duration) is None
    assert values.limit("Off", values.duration) is None
    assert values.limit("2s", values.duration) == 2.0


@pytest.mark.parametrize("text", ["{", "[1]", "1", "null"])
def test_metadata_is_an_object(text: str) -> None:
    with pytest.raises(Invalid):
        values.json_object(text)


def test_given_keeps_zero_and_false() -> None:
    assert values.given(a=0, b=False, c=None, d={}, e=[], f="") == {"a": 0, "b": False, "f": ""}


def test_a_request_has_only_what_was_asked_for() -> None:
    parameters = inspect.signature(values.creation).parameters
    nothing = dict.fromkeys(name for name in parameters if name != "strict")
    assert values.creation(**nothing, strict=False) == {}  # type: ignore[arg-type]
    some = nothing | {"memory": "1g", "label": ["a=b"], "auto_delete": "0s", "metadata": '{"x": 1}'}
    assert values.creation(**some, strict=True) == {  # type: ignore[arg-type]
        "limits": {"memory": 1 << 30},
        "labels": {"a": "b"},
        "auto_delete": 0.0,
        "metadata": {"x": 1},
        "strict": True,
    }
