"""The time that the emulated service goes by: the machine's, or one that a test moves by hand.

The one rule: locks, schedules, expiry, sessions' waits and tokens go by it, and by nothing else. Sockets, heartbeats and scripted delays
go by the machine's clock always.
"""

from __future__ import annotations

import time


class Clock:
    """The machine's time, in milliseconds since the Unix epoch."""

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000

    @property
    def moves_by_itself(self) -> bool:
        return True


class ManualClock(Clock):
    """Stands still until it is moved; move it by `Emulator.advance`, which waits until what was due has happened."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now

    def __call__(self) -> int:
        return self._now

    @property
    def moves_by_itself(self) -> bool:
        return False

    def move(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError(f"time does not go back by {-milliseconds} ms")
        self._now += milliseconds
