from __future__ import annotations

from bench.clock import Contender, take_turns, timed


def test_contenders_take_turns_and_warm_up_is_not_kept() -> None:
    order: list[str] = []

    def runner(name: str) -> Contender:
        def measure() -> float:
            order.append(name)
            return float(len(order))

        return Contender(name, measure)

    found = take_turns([runner("a"), runner("b")], rounds=2, warm_up=1)
    assert order == ["a", "b"] * 3
    assert found["a"].values == (3.0, 5.0)
    assert found["b"].values == (4.0, 6.0)


def test_a_slow_contender_sits_rounds_out() -> None:
    found = take_turns([Contender("often", lambda: 1.0), Contender("seldom", lambda: 1.0, every=4)], rounds=9)
    assert len(found["often"].values) == 9
    assert len(found["seldom"].values) == 3


def test_timed_calls_once_and_never_goes_backwards() -> None:
    calls: list[int] = []
    assert timed(lambda: calls.append(1)) >= 0
    assert calls == [1]
