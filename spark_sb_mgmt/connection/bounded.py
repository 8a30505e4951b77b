"""Calls that know no deadline: the system's resolver, and whatever gives tokens of Entra ID.

The one rule: who waits, waits no longer than the deadline. The call goes on in a thread of its own, and what it comes to is dropped; it
cannot be stopped from outside.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from spark_sb_mgmt.connection.timing import Deadline

T = TypeVar("T")


def within(deadline: Deadline, call: Callable[[], T]) -> T:
    """What the call gives or raises, if it does so in time."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((call(), None))
        except BaseException as problem:
            done.put((None, problem))

    threading.Thread(target=run, name=f"sbmgmt-{deadline.name}", daemon=True).start()
    try:
        result, problem = done.get(timeout=deadline.remaining)
    except queue.Empty:
        raise deadline.error() from None
    if problem is not None:
        raise problem
    return result  # type: ignore[return-value]
