"""Reading a range with several peeks in flight: every message that stands throughout once, none missed, in few round trips."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS, Peek, PeekRange
from spark_sb_mgmt.errors import InvalidArgumentError, RemoteProtocolError


class Queue:
    """A model of what answers: the next messages from a number on, as many as it likes but at least one if there is one."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = sorted(set(numbers))

    def peek(self, start: int, count: int) -> list[int]:
        at = bisect_left(self.numbers, start)
        return self.numbers[at : at + count]


def read(numbers: Iterable[int], start: int, until: int | None, page_size: int, depth: int, cap: int = 2**31) -> tuple[list[int], int, int]:
    """Read in lock-step rounds; what was kept, how many requests, how many rounds."""
    queue, plan = Queue(numbers), PeekRange(start, until, page_size)
    kept: list[int] = []
    requests = rounds = 0
    flight: list[Peek] = []
    while not plan.finished:
        while len(flight) < depth and (peek := plan.next_request()) is not None:
            flight.append(peek)
        requests += len(flight)
        rounds += 1
        for peek in flight:
            page = queue.peek(peek.from_sequence_number, min(peek.message_count, cap))
            for part in plan.answer(peek, page):
                kept += page[part]
        flight = []
    return kept, requests, rounds


# Clusters of near numbers, far apart, all over the 63 bits; and small dense sets, where every off-by-one shows.
sparse = st.lists(
    st.tuples(st.integers(0, END_OF_NUMBERS - 1), st.integers(1, 40), st.integers(1, 50)),
    max_size=6,
).map(lambda runs: {base + step * i for base, count, step in runs for i in range(count) if base + step * i < END_OF_NUMBERS})
dense = st.sets(st.integers(0, 60), max_size=60)
number_sets = st.one_of(dense, sparse)


@st.composite
def ranges(draw: st.DrawFn, numbers: set[int]) -> tuple[int, int | None]:
    near = [0, END_OF_NUMBERS - 1, *(n + d for n in list(numbers)[:20] for d in (-1, 0, 1) if 0 <= n + d < END_OF_NUMBERS)]
    start = draw(st.sampled_from(near))
    until = draw(st.one_of(st.none(), st.sampled_from([*near, END_OF_NUMBERS])))
    return start, until


@given(st.data(), number_sets, st.integers(1, 20), st.integers(1, 9), st.integers(0, 5))
def test_every_message_once_in_any_order_of_answers_whatever_the_page_sizes(
    data: st.DataObject, numbers: set[int], page_size: int, depth: int, failures: int
) -> None:
    start, until = data.draw(ranges(numbers))
    # Pages never larger than this, and perhaps smaller: one is what partitioned entities give.
    cap = data.draw(st.sampled_from([1, 2, page_size]))
    queue, plan = Queue(numbers), PeekRange(start, until, page_size)
    inside = [n for n in queue.numbers if start <= n and (until is None or n < until)]
    kept: list[int] = []
    flight: list[Peek] = []
    answers = failed = 0
    while not plan.finished:
        while len(flight) < depth and (peek := plan.next_request()) is not None:
            assert 1 <= peek.message_count <= page_size
            assert start <= peek.from_sequence_number < peek.until_sequence_number
            assert until is None or peek.until_sequence_number <= until
            flight.append(peek)
        assert plan.in_flight == len(flight)
        peek = flight.pop(data.draw(st.integers(0, len(flight) - 1)))
        if failed < failures and data.draw(st.booleans()):
            plan.failed(peek)
            failed += 1
            continue
        page = queue.peek(peek.from_sequence_number, data.draw(st.integers(1, max(1, min(cap, peek.message_count)))))
        for part in plan.answer(peek, page):
            kept += page[part]
        answers += 1
        # Each answer keeps a message, or shows the rest of a gap: a gap has no more requests than were in flight. What a failed one was
        # sent for is sent for again, perhaps in pieces, since pages turned out smaller meanwhile: again no more than can be in flight.
        assert answers <= len(inside) + (len(inside) + 1 + failed) * depth
    assert sorted(kept) == inside


@given(st.data(), dense, dense, st.integers(1, 10), st.integers(1, 6), st.sampled_from([None, 61, 30]))
def test_what_stands_throughout_appears_once_while_others_come_and_go(
    data: st.DataObject, standing: set[int], passing: set[int], page_size: int, depth: int, until: int | None
) -> None:
    plan = PeekRange(0, until, page_size)
    kept: list[int] = []
    # A page is made when the request reaches the service, and seen by us later: both orders are free.
    sent: list[Peek] = []
    made: list[tuple[Peek, list[int]]] = []
    while not plan.finished:
        while len(sent) + len(made) < depth and (peek := plan.next_request()) is not None:
            sent.append(peek)
        if sent and (not made or data.draw(st.booleans())):
            peek = sent.pop(data.draw(st.integers(0, len(sent) - 1)))
            here = data.draw(st.sets(st.sampled_from(sorted(passing)), max_size=5)) if passing else set()
            made.append((peek, Queue(standing | here).peek(peek.from_sequence_number, data.draw(st.integers(1, peek.message_count)))))
        else:
            peek, page = made.pop(data.draw(st.integers(0, len(made) - 1)))
            for part in plan.answer(peek, page):
                kept += page[part]
    assert len(kept) == len(set(kept)), "a message twice"
    assert {n for n in standing if until is None or n < until} <= set(kept), "a message missed"
    assert all(until is None or n < until for n in kept), "a message beyond the end"


def test_dense_numbers_are_read_at_full_depth_with_no_message_read_twice() -> None:
    kept, requests, rounds = read(range(1, 10_001), 0, None, page_size=250, depth=8)
    assert kept == list(range(1, 10_001))
    # 40 pages, 5 rounds of 8, and a round of empty pages at the end.
    assert rounds <= 7
    assert requests <= 56


def test_a_planned_end_needs_no_empty_page() -> None:
    kept, requests, rounds = read(range(10_000), 0, 10_000, page_size=250, depth=8)
    assert (len(kept), requests, rounds) == (10_000, 40, 5)


def test_pages_smaller_than_asked_for_are_learnt() -> None:
    kept, requests, rounds = read(range(10_000), 0, 10_000, page_size=250, depth=8, cap=100)
    assert len(kept) == 10_000
    assert requests <= 115
    assert rounds <= 18


def test_pages_of_one_are_read_at_full_depth() -> None:
    kept, _, rounds = read(range(1000), 0, 1000, page_size=250, depth=8, cap=1)
    assert len(kept) == 1000
    assert rounds <= 1000 / 8 * 1.2


@pytest.mark.parametrize("step", [3, 1000, 10**9])
def test_evenly_sparse_numbers_are_read_at_nearly_full_depth(step: int) -> None:
    numbers = range(0, step * 20_000, step)
    kept, requests, rounds = read(numbers, 0, step * 20_000, page_size=250, depth=8)
    assert sorted(kept) == list(numbers)
    # 80 pages at best.
    assert requests <= 80 * 1.6
    assert rounds <= 10 * 2.2


def test_the_partitions_of_the_63_bits_cost_one_round_each_to_step_over() -> None:
    numbers = [(partition << 48) + i for partition in range(16) for i in range(2000)]
    kept, _, rounds = read(numbers, 0, None, page_size=250, depth=8)
    assert sorted(kept) == numbers
    assert rounds <= 16 * 3


def test_an_empty_range_asks_for_nothing() -> None:
    plan = PeekRange(5, 5, 10)
    assert plan.finished
    assert plan.next_request() is None
    assert PeekRange(6, 5, 10).finished


def test_a_service_that_does_not_advance_is_an_error() -> None:
    plan = PeekRange(10, None, 5)
    peek = plan.next_request()
    assert peek is not None
    with pytest.raises(RemoteProtocolError, match="a peek from sequence number 10 was answered with 9: the service does not advance"):
        plan.answer(peek, [9, 11])


@pytest.mark.parametrize("page", [[11, 11], [12, 11], [11, 13, 12]])
def test_numbers_that_do_not_ascend_are_an_error(page: list[int]) -> None:
    plan = PeekRange(10, None, 5)
    peek = plan.next_request()
    assert peek is not None
    with pytest.raises(RemoteProtocolError, match="do not ascend"):
        plan.answer(peek, page)


@pytest.mark.parametrize(
    ("start", "until", "page_size", "says"),
    [
        (-1, None, 1, "from_sequence_number is -1"),
        (END_OF_NUMBERS, None, 1, "from_sequence_number is"),
        (0, END_OF_NUMBERS + 1, 1, "until_sequence_number is"),
        (0, -1, 1, "until_sequence_number is -1"),
        (0, None, 0, "page_size is 0"),
        (0, None, 2**31, "page_size is"),
        ("1", None, 1, "from_sequence_number is '1': it must be an integer from 0 to"),
        (0, 1.5, 1, "until_sequence_number is 1.5: it must be an integer"),
        (0, None, 2.5, "page_size is 2.5: it must be an integer"),
        (0, None, True, "page_size is True: it must be an integer"),
    ],
)
def test_what_is_out_of_range_is_refused(start: Any, until: Any, page_size: Any, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        PeekRange(start, until, page_size)


@given(st.data(), dense, st.lists(st.integers(0, 70), max_size=8, unique=True), st.integers(1, 10), st.integers(1, 6))
def test_several_ranges_are_read_as_one_and_nothing_between_them(
    data: st.DataObject, numbers: set[int], ends: list[int], page_size: int, depth: int
) -> None:
    cuts = sorted(ends)
    several = list(zip(cuts[::2], cuts[1::2], strict=False))
    queue, plan = Queue(numbers), PeekRange.of_ranges(several, page_size)
    kept: list[int] = []
    flight: list[Peek] = []
    while not plan.finished:
        while len(flight) < depth and (peek := plan.next_request()) is not None:
            flight.append(peek)
        peek = flight.pop(data.draw(st.integers(0, len(flight) - 1)))
        page = queue.peek(peek.from_sequence_number, data.draw(st.integers(1, peek.message_count)))
        for part in plan.answer(peek, page):
            kept += page[part]
    assert sorted(kept) == [n for n in queue.numbers if any(start <= n < end for start, end in several)]


@pytest.mark.parametrize("ranges", [5, [5], [(1, 2, 3)], [("1", 2)], [(1, None)]])
def test_what_is_no_ranges_is_refused(ranges: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        PeekRange.of_ranges(ranges, 5)


def test_ranges_of_numpy_are_ranges() -> None:
    state = PeekRange.of_ranges(np.array([[0, 3], [5, 9]]), np.int64(5))  # type: ignore[arg-type]
    assert state.next_request() == Peek(0, 3, 3)


def test_ranges_that_overlap_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="overlap"):
        PeekRange.of_ranges([(0, 10), (9, 20)], 5)


def test_many_ranges_cost_each_what_few_do() -> None:
    """Such as deferred messages that stand far from each other. Looking at all ranges for every answer would take minutes."""
    before = time.process_time()
    plan = PeekRange.of_ranges([(start, start + 1) for start in range(0, 400_000, 20)], 250)
    while not plan.finished:
        peek = plan.next_request()
        assert peek is not None
        plan.answer(peek, [peek.from_sequence_number])
    assert time.process_time() - before < 10
