from __future__ import annotations

import os
import select
import signal
import time

import pytest

from paddock.cli.signals import Signals


def wait_for(signals: Signals) -> list[int]:
    assert select.select([signals.fd], [], [], 20)[0]
    return signals.take()


def test_signals_are_noted_and_can_be_waited_for() -> None:
    with Signals([signal.SIGWINCH]) as signals:
        assert signals.take() == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_for(signals) == [signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGWINCH)
        assert wait_for(signals) == [signal.SIGWINCH]
        assert signals.ended_by == signal.SIGTERM


def test_everything_is_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Signals():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.ended_by is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_third_interrupt_is_meant() -> None:
    def interrupt_until_it_is_meant() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 20
            while not signals.take() and time.monotonic() < deadline:
                time.sleep(0.001)

    with Signals() as signals, pytest.raises(KeyboardInterrupt):
        interrupt_until_it_is_meant()
    assert signals.ended_by == signal.SIGINT
