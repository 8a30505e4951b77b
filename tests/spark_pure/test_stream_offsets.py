"""How far a stream has read: offsets only grow, and between two of them is what came in between."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.connection.planning import Extent
from spark_sb_mgmt.spark.reading.stream_offsets import (
    Position,
    at_number,
    behind,
    furthest,
    next_number,
    no_further,
    ranges_between,
    shared_out,
)

THIRD = 3 << 48
positions = st.dictionaries(st.integers(0, 4), st.integers(0, 100), max_size=4).map(
    lambda given: {str(partition): (partition << 48) + number for partition, number in given.items()}
)


def test_behind_all_that_stands() -> None:
    assert behind([Extent(1, 9), Extent(THIRD + 1, THIRD + 1)]) == {"0": 10, "3": THIRD + 2}
    assert behind([]) == {}


def test_a_partition_that_is_not_named_is_at_its_first_number() -> None:
    assert ranges_between({"0": 10}, {"0": 12, "3": THIRD + 5}) == [(10, 12), (THIRD, THIRD + 5)]
    assert ranges_between({"0": 10, "3": THIRD + 9}, {"0": 10, "3": THIRD + 5}) == []


@pytest.mark.parametrize("number", [0, 7, THIRD, THIRD + 7])
def test_a_number_to_start_at_leaves_out_all_below_it_and_nothing_else(number: int) -> None:
    end = {str(partition): (partition << 48) + 100 for partition in range(6)}
    ranges = ranges_between(at_number(number), end)
    everything = [number for partition in range(6) for number in range(partition << 48, (partition << 48) + 100)]
    assert [one for one in everything if any(low <= one < high for low, high in ranges)] == [one for one in everything if one >= number]


@given(positions, positions)
def test_the_furthest_is_never_behind_either(one: Position, other: Position) -> None:
    together = furthest(one, other)
    assert furthest(together, one) == furthest(together, other) == together
    assert all(next_number(together, partition) in (next_number(one, partition), next_number(other, partition)) for partition in range(5))
    # Spark compares offsets as texts.
    assert json.dumps(together) == json.dumps(furthest(other, one))


@given(positions, positions, positions)
def test_no_further_than_a_target_and_never_back(position: Position, target: Position, start: Position) -> None:
    kept = no_further(furthest(position, start), target, start)
    assert furthest(kept, start) == kept
    assert all(next_number(kept, int(key)) <= max(target.get(key, 0), next_number(start, int(key))) for key in kept)


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 1000), max_size=10), st.integers(1, 2000), st.integers(0, 100))
def test_shares_use_up_what_there_is_and_are_fair(widths: dict[int, int], most: int, turn: int) -> None:
    taken = shared_out(widths, most, turn)
    assert sum(taken.values()) == min(most, sum(widths.values()))
    assert all(0 < count <= widths[key] for key, count in taken.items())
    # Who did not get all has no less than anybody else, give or take what does not divide.
    wanting = [taken.get(key, 0) for key, width in widths.items() if taken.get(key, 0) < width]
    assert not wanting or max(taken.values()) - min(wanting) <= max(1, len(widths))


def test_everybody_has_a_turn_where_there_are_more_than_numbers() -> None:
    widths = dict.fromkeys(range(5), 10)
    assert {key for turn in range(5) for key in shared_out(widths, 2, turn)} == set(range(5))
