"""Finding where messages are: the right answer, in a handful of round trips."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS
from spark_sb_mgmt.connection.planning import (
    PROBES,
    Extent,
    Found,
    Search,
    extents,
    highest_sequence_number,
    lowest_sequence_number,
    partition_id,
    partition_ids,
    partition_range,
    sequence_number_at,
    together,
)

T = TypeVar("T")


def run(search: Search[T], numbers: Mapping[int, int | None] | range | list[int], most: int = 10_000) -> tuple[T, int]:
    """Answer a search from a model of a queue; its result, and how many round trips it took."""
    times: Callable[[int], int | None] = numbers.__getitem__ if isinstance(numbers, Mapping) else lambda number: None
    standing = numbers if isinstance(numbers, range) else sorted(numbers)
    trips = 0
    try:
        wanted = next(search)
        while True:
            assert len(wanted) <= most
            assert wanted, "a round trip that asks for nothing"
            assert all(0 <= probe < END_OF_NUMBERS for probe in wanted)
            trips += 1
            assert trips < 500
            answers: list[Found | None] = []
            for probe in wanted:
                at = bisect_left(standing, probe)
                answers.append(Found(standing[at], times(standing[at])) if at < len(standing) else None)
            wanted = search.send(answers)
    except StopIteration as stop:
        return stop.value, trips


anywhere = st.sets(st.integers(0, END_OF_NUMBERS - 1), max_size=30)
near = st.sets(st.integers(0, 200), max_size=50)
number_sets = st.one_of(near, anywhere)


@given(number_sets, st.integers(1, 40))
def test_highest_and_lowest(numbers: set[int], probes: int) -> None:
    assert run(lowest_sequence_number(), sorted(numbers)) == (min(numbers, default=None), 1)
    assert run(highest_sequence_number(probes=probes), sorted(numbers), most=probes)[0] == max(numbers, default=None)


@given(near, st.integers(0, 210), st.integers(0, 210), st.integers(1, 5))
def test_highest_and_lowest_within_bounds(numbers: set[int], start: int, end: int, probes: int) -> None:
    inside = [n for n in numbers if start <= n < end]
    assert run(lowest_sequence_number(start, end), sorted(numbers))[0] == min(inside, default=None)
    assert run(highest_sequence_number(start, end, probes), sorted(numbers))[0] == max(inside, default=None)


@pytest.mark.parametrize(
    ("numbers", "most_trips"),
    [
        (range(0), 1),
        (range(1, 2), 1),
        (range(1, 251), 3),
        (range(1, 1_000_001), 6),
        (range(7_000_000_000, 7_001_000_000), 7),
        (range(5, 10**9), 8),
        (range(3 << 48, (3 << 48) + 100_000), 6),
        (range(END_OF_NUMBERS - 10, END_OF_NUMBERS), 2),
        (range(0, END_OF_NUMBERS, 2**58), 14),
    ],
)
def test_the_highest_takes_a_handful_of_round_trips(numbers: range, most_trips: int) -> None:
    highest, trips = run(highest_sequence_number(), numbers, most=PROBES)
    assert highest == (numbers[-1] if numbers else None)
    assert trips <= most_trips


@given(st.dictionaries(st.integers(0, 300), st.none(), max_size=60), st.data(), st.integers(1, 12))
def test_the_number_at_a_time(numbers: dict[int, None], data: st.DataObject, probes: int) -> None:
    steps = data.draw(st.lists(st.integers(0, 3), min_size=len(numbers), max_size=len(numbers)))
    times = {number: 1000 + sum(steps[: i + 1]) for i, number in enumerate(sorted(numbers))}
    wanted = data.draw(st.integers(995, 1200))
    expected = min((number for number, time in times.items() if time >= wanted), default=None)
    assert run(sequence_number_at(wanted, probes=probes), times, most=probes)[0] == expected


@pytest.mark.parametrize("bounds", [(0, END_OF_NUMBERS), (1, 200_001), (0, 1 << 48)])
@pytest.mark.parametrize(("time", "expected"), [(777_777, 77_778), (0, 1), (2_000_000, 200_000), (2_000_001, None)])
def test_the_number_at_a_time_takes_a_handful_of_round_trips(bounds: tuple[int, int], time: int, expected: int | None) -> None:
    times = {number: 10 * number for number in range(1, 200_001)}
    number, trips = run(sequence_number_at(time, *bounds), times, most=PROBES)
    assert number == expected
    assert trips <= 6


@given(near, st.integers(0, 210), st.integers(0, 210), st.integers(1, 5), st.integers(0, 210))
def test_the_number_at_a_time_within_bounds(numbers: set[int], start: int, end: int, probes: int, time: int) -> None:
    found, _ = run(sequence_number_at(time, start, end, probes), {number: number for number in numbers}, most=probes)
    assert found == min((number for number in numbers if start <= number < end and number >= time), default=None)


def test_a_message_without_a_time_counts_as_late_enough() -> None:
    assert run(sequence_number_at(5), {1: 1, 2: None, 3: 9})[0] == 2


@given(st.sets(st.integers(0, 300), max_size=60), st.sets(st.integers(0, 300)), st.integers(0, 300), st.integers(1, 40))
def test_messages_of_no_known_time_never_narrow_a_span_too_much(numbers: set[int], unknown: set[int], time: int, probes: int) -> None:
    """Scheduled messages stand among the others, and their times tell nothing: whatever is enqueued in the span stays inside."""
    times = {number: None if number in unknown else number for number in numbers}
    known = [number for number in numbers if number not in unknown]
    start, _ = run(sequence_number_at(time, probes=probes), times)
    end, _ = run(sequence_number_at(time, probes=probes, unknown_is_later=False), times)
    assert all(start is not None and start <= number for number in known if number >= time)
    assert all(end is None or number < end for number in known if number < time)


@given(st.sets(st.integers(0, 2**15 - 1), max_size=20), st.integers(1, 40))
def test_the_partitions_in_use(ids: set[int], probes: int) -> None:
    numbers = sorted((partition << 48) + offset for partition in ids for offset in (0, 1, 2**48 - 1))
    assert run(partition_ids(probes), numbers)[0] == sorted(ids)


@pytest.mark.parametrize(
    ("ids", "most_trips"),
    [([], 1), ([0], 2), (range(16), 3), (range(1, 17), 3), ([3], 2), (range(0, 2**15, 2**11), 5), ([0, 2**15 - 1], 2)],
)
def test_the_partitions_in_use_take_a_handful_of_round_trips(ids: list[int] | range, most_trips: int) -> None:
    found, trips = run(partition_ids(), [(partition << 48) + 5 for partition in ids], most=2 * PROBES)
    assert found == list(ids)
    assert trips <= most_trips


@given(st.dictionaries(st.integers(0, 2**15 - 1), near.filter(bool), max_size=6), st.integers(1, 40))
def test_the_extents_of_an_entity(partitions: dict[int, set[int]], probes: int) -> None:
    numbers = [(partition << 48) + number for partition, inside in partitions.items() for number in inside]
    found, _ = run(extents(probes), numbers)
    assert found == [
        Extent((partition << 48) + min(inside), (partition << 48) + max(inside)) for partition, inside in sorted(partitions.items())
    ]


@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_planning_a_million_messages_takes_under_twelve_round_trips_in_all(partitions: int) -> None:
    each = 1_000_000 // partitions
    ids = range(partitions)
    numbers = [(partition << 48) + number for partition in ids for number in range(1, each + 1)]
    found, trips = run(extents(), numbers)
    assert found == [Extent((partition << 48) + 1, (partition << 48) + each) for partition in ids]
    assert trips <= 9
    # Both ends of a window of time besides, all of it in step.
    times = {number: number & 0xFFFFFFFFFFFF for number in numbers}
    windows = [sequence_number_at(time, *partition_range(partition)) for partition in ids for time in (each // 3, each // 2)]
    places, more = run(together(windows), times)
    assert places == [(partition << 48) + time for partition in ids for time in (each // 3, each // 2)]
    assert more <= 6


def test_a_partition_emptied_while_it_is_planned_has_no_extent() -> None:
    search = extents()
    wanted = next(search)
    # The ids of partitions first; then what is asked for is where in the only one.
    while max(wanted) >= 1 << 48:
        wanted = search.send([Found(5) if probe <= 5 else None for probe in wanted])
    with pytest.raises(StopIteration) as end:
        search.send([None] * len(wanted))
    assert end.value.value == []


def test_searches_together_take_the_round_trips_of_the_longest() -> None:
    numbers = [(partition << 48) + i for partition in range(16) for i in range(100 * (partition + 1))]

    def searches() -> list[Search[int | None]]:
        return [highest_sequence_number(*partition_range(partition)) for partition in range(17)]

    alone = [run(search, numbers) for search in searches()]
    results, trips = run(together(searches()), numbers)
    assert results == [result for result, _ in alone]
    assert trips == max(count for _, count in alone)
    assert results[15] == (15 << 48) + 1599
    assert results[16] is None


def test_no_searches_take_no_round_trip() -> None:
    nothing: list[Search[int | None]] = []
    assert run(together(nothing), []) == ([], 0)


def test_a_partitions_numbers() -> None:
    assert partition_range(2) == (2 << 48, 3 << 48)
    assert partition_id((2 << 48) + 17) == 2
