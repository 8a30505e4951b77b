"""How far a long command is, on standard error.

The one rule: a terminal gets a line that is drawn over, anything else gets one line at the end; results never mix with it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, TextIO

_REDRAW_S: Final = 0.1
_WIDTH: Final = 30


class Progress:
    """`total` None where nobody knows it."""

    def __init__(
        self, what: str, total: int | None = None, *, to: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._total = total
        self._to = sys.stderr if to is None else to
        self._clock = clock
        self._started = clock()
        self._drawn = 0.0
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        now = self._clock()
        if self._to.isatty() and now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._to.write(f"\r{self._line(now)}")
            self._to.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        end = "\r" if self._to.isatty() else ""
        self._to.write(f"{end}{self._line(self._clock())}\n")
        self._to.flush()

    def _line(self, now: float) -> str:
        seconds = max(now - self._started, 1e-9)
        text = f"{self._done:,} {self._what}, {self._done / seconds:,.0f} a second"
        if not self._total:
            return text
        part = min(1.0, self._done / self._total)
        filled = round(part * _WIDTH)
        return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {part:4.0%}  {text}"
