"""Planning a read against a model of an entity: nothing is left out, in a few round trips."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection import planning
from spark_sb_mgmt.connection.planning import Found
from spark_sb_mgmt.spark.reading.partitioning import Span
from spark_sb_mgmt.spark.reading.peek_plan import CLOCK_MARGIN_MS, find_spans

T = TypeVar("T")
MILLION = 1_000_000


class Queue:
    """What an `EntityClient` is to a plan: numbers that stand, the times they were enqueued at, and a count of round trips."""

    path = "q"

    def __init__(self, numbers: Sequence[int], time_of: Callable[[int], int | None] = lambda number: number) -> None:
        self.numbers = numbers
        self.time_of = time_of
        self.round_trips = 0

    def extents(self, session_id: str | None = None) -> list[planning.Extent]:
        return self._run(planning.extents())

    def search(self, searches: Sequence[planning.Search[T]], session_id: str | None = None) -> list[T]:
        return self._run(planning.together(searches))

    def _run(self, search: planning.Search[T]) -> T:
        try:
            wanted = next(search)
            while True:
                self.round_trips += 1
                wanted = search.send([self._found(number) for number in wanted])
        except StopIteration as end:
            return cast(T, end.value)

    def _found(self, number: int) -> Found | None:
        at = bisect_left(self.numbers, number)
        return Found(self.numbers[at], self.time_of(self.numbers[at])) if at < len(self.numbers) else None


def spans_of(queue: Queue, **bounds: Any) -> list[Span]:
    return find_spans(cast(EntityClient, queue), **bounds)


def partitioned(partitions: int) -> list[int]:
    return [(partition << 48) + number for partition in range(partitions) for number in range(1, MILLION // partitions + 1)]


LATE = 5_000_000_000_000
MILLIONS = {
    "a new queue": range(1, MILLION + 1),
    "a queue of years": range(LATE, LATE + MILLION),
    "a tenth left, in one piece": [*range(1, 100_001), MILLION],
    "every tenth": range(1, 10 * MILLION, 10),
    "16 partitions": partitioned(16),
}


@pytest.mark.parametrize("kind", MILLIONS)
def test_a_million_messages_are_planned_in_under_twelve_round_trips(kind: str) -> None:
    queue = Queue(MILLIONS[kind])
    spans = spans_of(queue)
    assert queue.round_trips < 12
    assert sum(bisect_left(queue.numbers, span.end) - bisect_left(queue.numbers, span.start) for span in spans) == len(queue.numbers)


@pytest.mark.parametrize("kind", ["a new queue", "16 partitions"])
def test_a_span_of_time_takes_six_more_at_most(kind: str) -> None:
    queue = Queue(MILLIONS[kind], lambda number: number & 0xFFFF_FFFF_FFFF)
    spans_of(queue)
    without, queue.round_trips = queue.round_trips, 0
    spans = spans_of(queue, enqueued_from_ms=20_000, enqueued_until_ms=30_000)
    assert queue.round_trips <= without + 6
    # Read by their times, so not much more than what is in the span is read.
    partitions = len({span.start >> 48 for span in spans})
    assert 10_000 * partitions <= sum(span.end - span.start for span in spans) <= (10_000 + 3 * CLOCK_MARGIN_MS) * partitions


def test_an_empty_entity_takes_one() -> None:
    queue = Queue([])
    assert spans_of(queue) == []
    assert queue.round_trips == 1


numbers = st.sets(st.one_of(st.integers(0, 300), st.integers(3 << 48, (3 << 48) + 300)), max_size=60)
bounds = st.one_of(st.none(), st.integers(0, 320))


@given(numbers, bounds, bounds, bounds, bounds, st.integers(0, 50))
def test_what_is_asked_for_is_planned_whatever_the_bounds(
    chosen: set[int], start: int | None, until: int | None, earliest: int | None, latest: int | None, disorder: int
) -> None:
    """Times ascend with numbers, but for as much as the clocks of a service differ; scheduled messages have none that tells."""
    standing = sorted(chosen)
    times = {number: (number & 0xFFFF) * 1000 + (number * 7919 % (disorder + 1)) * 15 for number in standing}
    queue = Queue(standing, lambda number: None if number % 5 == 0 else times[number])
    spans = spans_of(
        queue,
        from_sequence_number=start,
        until_sequence_number=until,
        enqueued_from_ms=None if earliest is None else earliest * 1000,
        enqueued_until_ms=None if latest is None else latest * 1000,
    )
    wanted = [
        number
        for number in standing
        if (start or 0) <= number < (2**63 if until is None else until)
        and (earliest is None or times[number] >= earliest * 1000)
        and (latest is None or times[number] < latest * 1000)
    ]
    missing = [number for number in wanted if number % 5 and sum(span.start <= number < span.end for span in spans) != 1]
    assert missing == []


@pytest.mark.parametrize("moment", range(2_000, 8_000, 370))
def test_times_out_of_order_by_what_clocks_differ_leave_nothing_out(moment: int) -> None:
    queue = Queue(range(1_000), lambda number: number * 10 + number % 2 * (CLOCK_MARGIN_MS - 100))
    for bound, is_wanted in (("enqueued_from_ms", moment.__le__), ("enqueued_until_ms", moment.__gt__)):
        spans = spans_of(queue, **{bound: moment})
        wanted = [number for number in queue.numbers if is_wanted(queue.time_of(number) or 0)]
        assert [number for number in wanted if not any(span.start <= number < span.end for span in spans)] == []
