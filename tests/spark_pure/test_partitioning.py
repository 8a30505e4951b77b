"""Sharing out a read: everything in exactly one partition, and nobody with all the work."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS, PeekRange
from spark_sb_mgmt.connection.planning import Extent, Found, partition_id
from spark_sb_mgmt.spark.reading.gaps import PROBES, occupied
from spark_sb_mgmt.spark.reading.partitioning import (
    DEFAULT_PARTITIONS,
    STRIDES,
    EntitiesPartition,
    NumbersPartition,
    RangesPartition,
    SessionsPartition,
    Span,
    plan_entities,
    plan_numbers,
    plan_ranges,
    plan_sessions,
    request_batches,
    spans_of,
)


def ranges_of(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending disjoint ranges from distinct edges."""
    ordered = sorted(edges)
    return list(zip(ordered[::2], ordered[1::2], strict=False))


edges = st.sets(st.integers(0, 400), max_size=12).map(lambda chosen: ranges_of(list(chosen)))
entities = st.dictionaries(st.sampled_from("abcdef"), edges, max_size=6)


def numbers_of(spans: Sequence[Span]) -> list[tuple[str, int]]:
    return [(span.entity, number) for span in spans for number in range(span.start, span.end)]


@given(entities, st.one_of(st.none(), st.integers(1, 40)), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 50)))
def test_every_number_is_in_exactly_one_partition(
    ranges: dict[str, list[tuple[int, int]]], tasks: int | None, page_size: int, most: int | None
) -> None:
    spans = [span for entity, mine in ranges.items() for span in spans_of(entity, mine, None, None)]
    plan = plan_ranges(spans, num_partitions=tasks, page_size=page_size, max_messages=most)
    planned = Counter(number for partition in plan for number in numbers_of(partition.spans))
    assert planned == Counter(numbers_of(spans))
    assert 1 <= len(plan) <= (tasks or DEFAULT_PARTITIONS)
    assert all(partition.spans for partition in plan) or not spans
    for partition in plan:
        # What of_ranges wants: ascending and disjoint within an entity.
        for entity in {span.entity for span in partition.spans}:
            mine = [(span.start, span.end) for span in partition.spans if span.entity == entity]
            assert mine == sorted(mine)
            PeekRange.of_ranges(mine, page_size)
    if most is not None:
        assert [partition.limit for partition in plan] == [most]


@given(st.integers(1, 2**62), st.integers(1, 200), st.integers(1, 1000))
def test_the_tasks_that_were_asked_for_have_equal_shares(width: int, tasks: int, page_size: int) -> None:
    plan = plan_ranges([Span("q", 5, 5 + width)], num_partitions=tasks, page_size=page_size, max_messages=None)
    widths = [sum(span.end - span.start for span in partition.spans) for partition in plan]
    assert len(plan) == min(tasks, width)
    assert sum(widths) == width
    # Parts are equal to one number, and every task has as many.
    assert max(widths) - min(widths) <= STRIDES


def test_a_small_queue_is_one_task_and_a_large_one_many() -> None:
    def count(width: int) -> int:
        return len(plan_ranges([Span("q", 0, width)], num_partitions=None, page_size=250, max_messages=None))

    assert [count(1), count(999), count(2_000), count(1_000_000)] == [1, 1, 2, DEFAULT_PARTITIONS]


def test_an_empty_plan_is_one_partition_with_nothing_in_it() -> None:
    """An empty list would become read(None) on PySpark up to 4.1."""
    assert plan_ranges([], num_partitions=4, page_size=250, max_messages=None) == [RangesPartition(())]
    assert plan_ranges([], num_partitions=4, page_size=250, max_messages=9) == [RangesPartition((), 9)]
    assert plan_numbers("q", [], num_partitions=None, page_size=250) == [NumbersPartition("q", ())]
    assert plan_sessions({"q": []}) == [SessionsPartition("", ())]
    assert plan_entities([]) == [EntitiesPartition(())]


def test_partitions_travel() -> None:
    for partition in (RangesPartition((Span("q", 1, 2),), 3), NumbersPartition("q", ((1, 2),)), SessionsPartition("q", ("s",))):
        assert isinstance(partition, InputPartition)
        assert pickle.loads(pickle.dumps(partition)) == partition


def test_spans_are_clipped_to_what_is_asked_for() -> None:
    found = [(10, 20), (30, 40)]
    assert spans_of("q", found, None, None) == [Span("q", 10, 20), Span("q", 30, 40)]
    assert spans_of("q", found, 15, 31) == [Span("q", 15, 20), Span("q", 30, 31)]
    assert spans_of("q", found, 20, 30) == []
    assert spans_of("q", [(0, END_OF_NUMBERS)], 0, None) == [Span("q", 0, END_OF_NUMBERS)]


# --- skew -------------------------------------------------------------------------------------------------------------------


def shares(standing: Sequence[int], plan: Sequence[RangesPartition]) -> list[int]:
    """How many messages each task has."""
    return [sum(bisect_left(standing, span.end) - bisect_left(standing, span.start) for span in partition.spans) for partition in plan]


def narrowed(standing: Sequence[int], extent: Extent) -> tuple[list[tuple[int, int]], int]:
    """What `occupied` finds in a model of a queue, and in how many round trips."""
    search, trips = occupied([extent]), 0
    try:
        wanted = next(search)
        while True:
            trips += 1
            assert all(extent.lowest < probe < extent.highest for probe in wanted)
            assert len(wanted) <= PROBES
            places = [bisect_left(standing, probe) for probe in wanted]
            wanted = search.send([Found(standing[at]) if at < len(standing) else None for at in places])
    except StopIteration as stop:
        return stop.value, trips


QUEUES = {
    "gap in front": [0, *range(900_000, 1_000_000)],
    "gap in the middle": [*range(50_000), *range(950_000, 1_000_000)],
    "gap at the end": [*range(100_000), 999_999],
    "ten gaps": [number for start in range(0, 1_000_000, 100_000) for number in range(start, start + 10_000)],
    "denser and denser": sorted({int(1_000_000 * (at / 100_000) ** 0.5) for at in range(100_000)}),
    "one in ten": list(range(0, 1_000_000, 10)),
}


@pytest.mark.parametrize("tasks", [2, 8, 32])
@pytest.mark.parametrize("kind", QUEUES)
def test_no_task_has_more_than_half_again_its_share(kind: str, tasks: int) -> None:
    standing = QUEUES[kind]
    ranges, trips = narrowed(standing, Extent(standing[0], standing[-1]))
    plan = plan_ranges(spans_of("q", ranges, None, None), num_partitions=tasks, page_size=250, max_messages=None)
    have = shares(standing, plan)
    assert trips == 1
    assert (sum(have), len(have)) == (len(standing), tasks)
    assert max(have) <= 1.5 * len(standing) / tasks


@pytest.mark.parametrize("tasks", [2, 8, 32])
def test_dealing_alone_spreads_what_one_range_for_each_would_not(tasks: int) -> None:
    """A gap of 90 % that nobody probed for: one range for each task would leave the first tenth of them with everything."""
    standing = range(100_000)
    plan = plan_ranges([Span("q", 0, 1_000_000)], num_partitions=tasks, page_size=250, max_messages=None)
    have = shares(standing, plan)
    assert max(have) <= 1.6 * len(standing) / tasks
    assert min(have) > 0


def test_parts_are_not_so_narrow_that_requests_are_wasted() -> None:
    plan = plan_ranges([Span("q", 0, 40_000)], num_partitions=4, page_size=250, max_messages=None)
    assert min(span.end - span.start for partition in plan for span in partition.spans) >= 1_000


@given(st.sets(st.integers(0, 5_000), min_size=1, max_size=80), st.integers(1, 200))
def test_only_what_is_empty_is_left_out(numbers: set[int], probes: int) -> None:
    standing = sorted(numbers)
    search = occupied([Extent(standing[0], standing[-1])], probes)
    try:
        wanted = next(search)
        places = [bisect_left(standing, probe) for probe in wanted]
        search.send([Found(standing[at]) if at < len(standing) else None for at in places])
    except StopIteration as stop:
        ranges = stop.value
    else:
        raise AssertionError("more than one round trip")
    assert all(start < end for start, end in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    assert all(any(start <= number < end for start, end in ranges) for number in standing)


def test_an_extent_whose_end_went_meanwhile_is_still_read_as_far_as_it_goes() -> None:
    standing = range(100)
    ranges, _ = narrowed(standing, Extent(0, 10_000))
    assert ranges[0][0] == 0
    assert 100 <= ranges[-1][1] < 1_000


def test_several_extents_share_one_round_trip() -> None:
    search = occupied([Extent(0, 1_000_000), Extent(5 << 48, (5 << 48) + 1_000_000), Extent(9 << 48, 9 << 48)])
    wanted = next(search)
    assert {partition_id(probe) for probe in wanted} == {0, 5}
    assert len(wanted) <= PROBES
    with pytest.raises(StopIteration) as done:
        search.send([Found(probe) for probe in wanted])
    assert done.value.value == [(0, 1_000_001), (5 << 48, (5 << 48) + 1_000_001), (9 << 48, (9 << 48) + 1)]


# --- several entities -------------------------------------------------------------------------------------------------------


def test_entities_share_tasks_by_size_and_small_ones_share_a_task() -> None:
    spans = [Span("large", 0, 800_000), Span("half", 0, 160_000), *(Span(f"small{at}", 0, 100) for at in range(10))]
    plan = plan_ranges(spans, num_partitions=12, page_size=250, max_messages=None)
    of = [{span.entity for span in partition.spans} for partition in plan]
    assert sum(names == {"large"} for names in of) == 9
    assert sum(names == {"half"} for names in of) == 2
    assert sum(len(names) == 10 for names in of) == 1


def test_more_entities_than_tasks() -> None:
    plan = plan_ranges([Span(f"q{at}", 0, 100) for at in range(10)], num_partitions=4, page_size=10, max_messages=None)
    assert sorted(len(partition.spans) for partition in plan) == [2, 2, 3, 3]


def test_one_task_reads_all_entities() -> None:
    plan = plan_ranges([Span("a", 0, 100), Span("b", 0, 1)], num_partitions=1, page_size=10, max_messages=None)
    assert plan == [RangesPartition((Span("a", 0, 100), Span("b", 0, 1)))]


@given(st.integers(1, 100))
def test_entities_read_whole(count: int) -> None:
    plan = plan_entities([f"q{at}" for at in range(count)])
    assert sorted(entity for partition in plan for entity in partition.entities) == sorted(f"q{at}" for at in range(count))
    assert len(plan) == min(count, DEFAULT_PARTITIONS)


# --- numbers and sessions ---------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 300), min_size=2, max_size=8), max_size=4),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(1, 40),
)
def test_every_listed_number_is_asked_for_once_with_others_of_its_partition_id(
    by_partition: dict[int, set[int]], tasks: int | None, size: int
) -> None:
    ranges = [
        (partition << 48 | start, partition << 48 | end)
        for partition, chosen in sorted(by_partition.items())
        for start, end in ranges_of([*chosen])
    ]
    plan = plan_numbers("q", ranges, num_partitions=tasks, page_size=size)
    asked = [batch for partition in plan for batch in request_batches(partition.ranges, size)]
    assert [number for batch in asked for number in batch] == [number for start, end in ranges for number in range(start, end)]
    assert all(1 <= len(batch) <= size and len(set(map(partition_id, batch))) == 1 for batch in asked)
    assert len(plan) <= (tasks or DEFAULT_PARTITIONS)


def test_a_range_over_the_end_of_a_partition_id_is_asked_for_apart() -> None:
    end = 1 << 48
    assert list(request_batches([(end - 2, end + 3)], 10)) == [[end - 2, end - 1], [end, end + 1, end + 2]]


def test_requests_are_full_across_ranges() -> None:
    assert list(request_batches([(1, 2), (5, 9), (20, 21)], 3)) == [[1, 5, 6], [7, 8, 20]]


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.text(max_size=3), max_size=500), max_size=3))
def test_every_session_is_in_one_partition(sessions: dict[str, list[str]]) -> None:
    plan = plan_sessions(sessions)
    planned = [(partition.entity, session) for partition in plan for session in partition.session_ids]
    assert planned == [(entity, session) for entity, ids in sessions.items() for session in ids]
    assert len(plan) <= DEFAULT_PARTITIONS + 3


def test_many_sessions_are_spread() -> None:
    assert len(plan_sessions({"q": [str(at) for at in range(1_000_000)]})) == DEFAULT_PARTITIONS
    assert len(plan_sessions({"q": [str(at) for at in range(250)]})) == 3
