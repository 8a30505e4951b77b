"""Calls without a deadline of their own get one."""

from __future__ import annotations

import threading
import time
from typing import NoReturn

import pytest

from spark_sb_mgmt.connection.bounded import Begun, within
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import DeadlineExceededError


def deadline(seconds: float) -> Deadline:
    return Deadline("connect", seconds, time.monotonic)


def test_what_comes_in_time_is_given() -> None:
    assert within(deadline(10), lambda: 7) == 7
    assert within(deadline(10), lambda: None) is None


def test_what_it_raises_is_raised() -> None:
    def fail() -> NoReturn:
        raise ZeroDivisionError("by itself")

    with pytest.raises(ZeroDivisionError, match="by itself"):
        within(deadline(10), fail)


def test_what_does_not_come_is_not_waited_for() -> None:
    never = threading.Event()
    try:
        with pytest.raises(DeadlineExceededError) as caught:
            within(deadline(0.05), never.wait)
        assert (caught.value.deadline, caught.value.seconds) == ("connect", 0.05)
    finally:
        never.set()


def test_one_may_look_again_later() -> None:
    go = threading.Event()
    begun = Begun(deadline(10), lambda: go.wait(10) and 7)
    assert not begun.is_done(0.0)
    assert not begun.is_done(0.01)
    go.set()
    assert begun.is_done(10)
    assert begun.is_done(0.0)
    assert begun.result == 7


def test_what_came_in_time_is_there_even_if_it_is_looked_at_late() -> None:
    now = [0.0]
    begun = Begun(Deadline("token", 1, lambda: now[0]), lambda: 7)
    while begun._done.empty():
        pass
    now[0] = 2
    assert begun.wait() == 7
