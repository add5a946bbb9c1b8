from __future__ import annotations

from paddock.client.sse import ServerEvent, parse


def events(text: str) -> list[ServerEvent]:
    return list(parse(text.encode().split(b"\n")))


def test_events_have_an_id_a_kind_and_data() -> None:
    assert events("id: 7\nevent: exec.started\ndata: {}\n\n") == [ServerEvent("7", "exec.started", "{}")]


def test_heartbeats_and_unknown_fields_are_nothing() -> None:
    assert events(": still here\n\nretry: 5\nwhat\n\ndata:x\n\n") == [ServerEvent(None, "message", "x")]


def test_data_of_several_lines_is_joined_and_keeps_its_spaces() -> None:
    assert events("data: a\ndata:  b\ndata\n\n")[0].data == "a\n b\n"


def test_the_last_id_stays_until_the_next() -> None:
    assert [event.id for event in events("id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n")] == [
        "1",
        "1",
        "2",
    ]


def test_an_event_that_is_cut_off_does_not_count() -> None:
    assert events("data: a\n\ndata: b") == [ServerEvent(None, "message", "a")]
