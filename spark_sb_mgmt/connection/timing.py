"""Time and chance as the connection uses them, and the deadlines made of them.

The one rule: nothing in `connection` asks the system for the time, sleeps or draws a random number but through `Timing`, so that a test
can decide all of it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from spark_sb_mgmt.errors import DeadlineExceededError, InvalidArgumentError

# As long as a server timeout can be: neither the system's waits nor the milliseconds of a heartbeat hold any number.
_LONGEST_S: Final = 2**32 // 1000


def number_of_seconds(name: str, value: Any) -> None:
    """Refuse what is no time to wait for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LONGEST_S:
        raise InvalidArgumentError(name, f"is {value!r:.60}: it must be a number of seconds above 0, at most {_LONGEST_S}")


def _sleep(seconds: float, ended: threading.Event) -> None:
    ended.wait(seconds)


@dataclass(frozen=True)
class Timing:
    """`clock` counts seconds and never goes back; `now` is seconds since the Unix epoch, which is what tokens are dated in; `sleep` takes
    the seconds and what ends it before they are over."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float, threading.Event], None] = _sleep
    random: Callable[[], float] = field(default=random.random)

    def deadline(self, name: str, seconds: float) -> Deadline:
        return Deadline(name, seconds, self.clock)


class Deadline:
    """A time by which something must be done. `name` is what an error calls it (DeadlineExceededError)."""

    __slots__ = ("_at", "_clock", "name", "seconds")

    def __init__(self, name: str, seconds: float, clock: Callable[[], float]) -> None:
        self.name = name
        self.seconds = seconds
        self._clock = clock
        self._at = clock() + seconds

    @property
    def remaining(self) -> float:
        return max(0.0, self._at - self._clock())

    @property
    def passed(self) -> bool:
        return self._clock() >= self._at

    def error(self) -> DeadlineExceededError:
        return DeadlineExceededError(self.name, self.seconds)

    def check(self) -> None:
        if self.passed:
            raise self.error()


class DrivenClock:
    """A clock that stands still while nobody drives the connection. There is no thread of our own: between two calls of the user nobody
    listens, and time in which nobody could have listened must not count against an answer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Seconds in which nobody drove, and since when nobody does. Set as one: any thread may ask for the time.
        self._state: tuple[float, float | None] = (0.0, clock())

    def __call__(self) -> float:
        undriven, left_at = self._state
        return (self._clock() if left_at is None else left_at) - undriven

    def enter(self) -> None:
        undriven, left_at = self._state
        if left_at is not None:
            self._state = (undriven + max(0.0, self._clock() - left_at), None)

    def leave(self) -> None:
        self._state = (self._state[0], self._clock())
