"""Many requests in flight, each with its own outcome.

The one rule: one that fails takes no other with it, and none that was sent goes without an outcome, unless the caller stops asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from spark_sb_mgmt.connection.channel import Channel, Outcome, TransactionHandle, Window
from spark_sb_mgmt.connection.settings import pipeline_depth
from spark_sb_mgmt.operations.envelope import Request

T = TypeVar("T")


def pipeline(
    channel: Channel, requests: Iterable[Request[T]], depth: int | None = None, transaction: TransactionHandle | None = None
) -> Iterator[tuple[int, Outcome[T]]]:
    """Position and outcome of each request, in the order of their answers. `requests` is asked for the next one when there is room."""
    return _outcomes(channel, iter(requests), pipeline_depth(depth, channel.connection.settings), transaction)


def _outcomes(
    channel: Channel, requests: Iterator[Request[T]], depth: int, transaction: TransactionHandle | None
) -> Iterator[tuple[int, Outcome[T]]]:
    window: Window[T] = Window(channel, depth, transaction)
    failure: Exception | None = None
    position, ended = 0, False
    try:
        while True:
            while not ended and window.has_room:
                try:
                    request = next(requests)
                except StopIteration:
                    ended = True
                except Exception as problem:
                    # Who makes the requests failed; those that are under way still have outcomes.
                    ended, failure = True, problem
                else:
                    window.submit(request, position)
                    position += 1
            if not len(window):
                break
            yield window.next()
    finally:
        window.abandon()
    if failure is not None:
        raise failure
