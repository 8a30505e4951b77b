"""Numbers as runs: what is remembered of them, and what is left between them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS
from spark_sb_mgmt.spark.writing.number_runs import KnownNumbers, Runs, above, joined, numbers_in, runs_of, without

NUMBERS = st.lists(st.integers(0, 60))
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)))


def members(runs: Runs) -> set[int]:
    return {number for start, end in runs for number in range(start, end)}


def is_normal(runs: Runs) -> bool:
    return all(start < end for start, end in runs) and all(first[1] < second[0] for first, second in itertools.pairwise(runs))


@given(NUMBERS)
def test_runs_have_the_numbers_and_no_others(numbers: list[int]) -> None:
    runs = runs_of(numbers)
    assert members(runs) == set(numbers)
    assert is_normal(runs)


@given(RANGES)
def test_joined_ranges_have_what_any_of_them_has(ranges: Runs) -> None:
    assert members(joined(ranges)) == members(ranges)
    assert is_normal(joined(ranges))


@given(RANGES, RANGES)
def test_without_leaves_what_is_not_taken(ranges: Runs, taken: Runs) -> None:
    left = without(joined(ranges), joined(taken))
    assert members(left) == members(ranges) - members(taken)
    assert is_normal(left)


def test_above_the_highest_of_each_partition() -> None:
    assert above({}) == [(0, END_OF_NUMBERS)]
    assert above({0: 9, 3: (3 << 48) + 4}) == [(10, 3 << 48), ((3 << 48) + 5, END_OF_NUMBERS)]


@given(NUMBERS, st.integers(1, 7))
def test_numbers_in_runs_come_in_parts(numbers: list[int], at_once: int) -> None:
    parts = [part.tolist() for part in numbers_in(runs_of(numbers), at_once)]
    assert [number for part in parts for number in part] == sorted(set(numbers))
    assert all(0 < len(part) <= at_once for part in parts)


@given(st.lists(st.lists(st.integers(0, 500), min_size=1)), st.integers(2, 20))
def test_known_numbers_are_bounded_and_miss_none(added: list[list[int]], most: int) -> None:
    known = KnownNumbers(most)
    for numbers in added:
        known.add(numbers)
    given_numbers = {number for numbers in added for number in numbers}
    runs = known.runs
    assert len(runs) <= most
    assert is_normal(runs)
    assert members(runs) >= given_numbers
    if known.is_exact:
        assert members(runs) == given_numbers
    if len(runs_of(given_numbers)) > most:
        assert not known.is_exact
