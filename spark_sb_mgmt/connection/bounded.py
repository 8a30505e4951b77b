"""Calls that know no deadline: the system's resolver, and whatever gives tokens of Entra ID.

The one rule: who waits, waits no longer than the deadline. The call goes on in a thread of its own, and what it comes to is dropped; it
cannot be stopped from outside.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from spark_sb_mgmt.connection.timing import Deadline

T = TypeVar("T")


class Begun(Generic[T]):
    """A call that goes on by itself."""

    def __init__(self, deadline: Deadline, call: Callable[[], T]) -> None:
        self.deadline = deadline
        self._outcome: tuple[T | None, BaseException | None] | None = None
        self._done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                self._done.put((call(), None))
            except BaseException as problem:
                self._done.put((None, problem))

        threading.Thread(target=run, name=f"sbmgmt-{deadline.name}", daemon=True).start()

    def is_done(self, timeout: float) -> bool:
        """Whether it is, or comes to be within this time. Raises that the deadline passed."""
        if self._outcome is None:
            try:
                self._outcome = self._done.get(timeout=min(timeout, self.deadline.remaining))
            except queue.Empty:
                self.deadline.check()
        return self._outcome is not None

    @property
    def result(self) -> T:
        """What a call that is done gave; raises what it raised."""
        assert self._outcome is not None
        result, problem = self._outcome
        if problem is not None:
            raise problem
        return result  # type: ignore[return-value]

    def wait(self) -> T:
        """What the call gives or raises, if it does so in time."""
        if not self.is_done(self.deadline.remaining):
            raise self.deadline.error()
        return self.result


def within(deadline: Deadline, call: Callable[[], T]) -> T:
    """Begin a call, and wait for it."""
    return Begun(deadline, call).wait()
