"""Reading a range of sequence numbers with several peeks in flight: which to send, and what to keep of each answer (DESIGN section 3).

The one rule: every number of the range is claimed by exactly one answer, and only by an answer that shows it. A peek answers with the next
messages that exist, so an answer to `from-sequence-number` a whose last message is z shows all of [a, z]; an empty one shows that
nothing stands at a or above. Of what an answer shows it claims what it was sent for, and whatever nobody else was sent for; what another
peek in flight was sent for is left to that one. What was sent for but not shown (a short page) is sent for again.
A message that stands in the range throughout is therefore kept exactly once, whatever the page sizes, the gaps and the order of answers.

How wide to cut is only a matter of speed. Two things are learnt from the answers: how many messages the service gives at once, and how many
numbers lie between neighbours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.errors import InvalidArgumentError, RemoteProtocolError
from spark_sb_mgmt.operations.arguments import integer
from spark_sb_mgmt.operations.names import PEEK_MESSAGE, short_name

# Those of a page, in its order.
Numbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]

# Sequence numbers are AMQP longs; the end of a range is exclusive.
END_OF_NUMBERS: Final = 2**63
# message-count is an AMQP int.
MAX_PAGE_SIZE: Final = 2**31 - 1
# A gap is taken into account at once when it is smaller than thought, and step by step when larger: one hole is not a sparse queue.
_GAP_GROWTH: Final = 4.0
# After so many pages as large as asked for, more is asked for again.
_FULL_PAGES_BEFORE_GROWTH: Final = 16


@dataclass(frozen=True)
class Peek:
    """One request. It was sent for the numbers from `from_sequence_number` until `until_sequence_number`, exclusive."""

    from_sequence_number: int
    until_sequence_number: int
    message_count: int


class PeekRange:
    """The state of reading one range. Ask `next_request` while it gives one and there is room in flight; give every answer to `answer`."""

    def __init__(self, from_sequence_number: int, until_sequence_number: int | None, page_size: int) -> None:
        until = END_OF_NUMBERS if until_sequence_number is None else until_sequence_number
        self._start([bounds(from_sequence_number, until)], page_size)

    @classmethod
    def of_ranges(cls, ranges: Iterable[tuple[int, int]], page_size: int) -> PeekRange:
        """Several ranges as if they were one: ascending, disjoint, their ends exclusive."""
        state = cls.__new__(cls)
        try:
            given = [(start, until) for start, until in ranges]
        except (TypeError, ValueError):
            raise InvalidArgumentError("ranges", f"must be a sequence of (from, until), not {ranges!r:.80}") from None
        state._start([bounds(start, until) for start, until in given], page_size)
        return state

    def _start(self, ranges: list[tuple[int, int]], page_size: int) -> None:
        if any(before[1] > after[0] for before, after in pairwise(ranges)):
            raise InvalidArgumentError("ranges", "overlap, or do not ascend: every message is to be read once")
        self._page_size = page_size = _number("page_size", page_size, 1, MAX_PAGE_SIZE, f"{MAX_PAGE_SIZE}")
        # What nobody has shown and nobody was sent for: disjoint, ascending, none empty.
        self._open: list[tuple[int, int]] = [(start, until) for start, until in ranges if start < until]
        self._in_flight: set[Peek] = set()
        # Messages that one answer brings, and numbers from one message to the next: as last seen.
        self._page: int = page_size
        self._gap: float = 1.0
        self._full_pages = 0

    @property
    def finished(self) -> bool:
        return not self._open and not self._in_flight

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def next_request(self) -> Peek | None:
        """The next peek to send; None if all that is left is in flight."""
        if not self._open:
            return None
        start, end = self._open[0]
        stop = min(end, start + self._width())
        if stop == end:
            del self._open[0]
        else:
            self._open[0] = (stop, end)
        peek = Peek(start, stop, min(self._page_size, stop - start))
        self._in_flight.add(peek)
        return peek

    def failed(self, peek: Peek) -> None:
        """A peek that was given up without an answer: its numbers are to be sent for again."""
        self._in_flight.remove(peek)
        self._reopen(peek.from_sequence_number, peek.until_sequence_number)

    def answer(self, peek: Peek, sequence_numbers: Numbers) -> list[slice]:
        """Which messages of an answer to keep, as slices of the page; `sequence_numbers` are those of the page, in its order."""
        start, stop = peek.from_sequence_number, peek.until_sequence_number
        count = len(sequence_numbers)
        check_page(start, sequence_numbers)
        self._in_flight.remove(peek)
        shown_until = int(sequence_numbers[-1]) + 1 if count else END_OF_NUMBERS
        claimed = [(start, min(stop, shown_until)), *self._take(stop, shown_until)]
        if shown_until < stop:
            self._reopen(shown_until, stop)
        if count:
            self._learn(peek, sequence_numbers)
        return _positions(claimed, sequence_numbers) if count else []

    def _take(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Remove [start, stop) from what is open; what was removed. Only what it touches is looked at: there may be ranges by the
        thousand."""
        if start >= stop:
            return []
        first, after = bisect_left(self._open, (start, 0)), bisect_left(self._open, (stop, 0))
        if first and self._open[first - 1][1] > start:
            first -= 1
        touched = self._open[first:after]
        self._open[first:after] = [(a, b) for low, high in touched for a, b in ((low, max(low, start)), (min(high, stop), high)) if a < b]
        return [(max(low, start), min(high, stop)) for low, high in touched]

    def _reopen(self, start: int, stop: int) -> None:
        self._open.insert(bisect_left(self._open, (start, stop)), (start, stop))

    def _width(self) -> int:
        # Where messages are not dense, how far a page reaches varies about as the root of its size; a little less than the mean
        # costs a few messages read twice and dropped, a little more costs a whole request for the few that were left out.
        return max(1, int(self._page * (1 + (self._gap - 1) * (1 - 1 / sqrt(self._page + 1)))))

    def _learn(self, peek: Peek, sequence_numbers: Numbers) -> None:
        count = len(sequence_numbers)
        first, last = int(sequence_numbers[0]), int(sequence_numbers[-1])
        seen = (last - first) / (count - 1) if count > 1 else float(last - peek.from_sequence_number + 1)
        self._gap = max(1.0, min((self._gap + seen) / 2, self._gap * _GAP_GROWTH))
        if count < peek.message_count:
            self._page, self._full_pages = count, 0
            return
        self._full_pages += 1
        self._page = max(self._page, min(count, self._page_size))
        if self._full_pages >= _FULL_PAGES_BEFORE_GROWTH:
            self._page, self._full_pages = min(self._page_size, self._page * 2), 0


def bounds(start: int, until: int, arguments: tuple[str, str] = ("from_sequence_number", "until_sequence_number")) -> tuple[int, int]:
    """The ends of a range, if they can be. `arguments`: what the caller calls them."""
    return _number(arguments[0], start, 0, END_OF_NUMBERS - 1, "2^63 - 1"), _number(arguments[1], until, 0, END_OF_NUMBERS, "2^63")


def _number(argument: str, value: int, least: int, most: int, shown: str) -> int:
    number = integer(value)
    if number is None or not least <= number <= most:
        raise InvalidArgumentError(argument, f"is {value!r:.80}: it must be an integer from {least} to {shown}")
    return number


def check_page(start: int, sequence_numbers: Numbers) -> None:
    """What a peek from `start` can be answered with. Who goes on behind the last of anything else goes in circles."""
    if not len(sequence_numbers):
        return
    first, last = int(sequence_numbers[0]), int(sequence_numbers[-1])
    if first < start:
        raise _broken(f"a peek from sequence number {start} was answered with {first}: the service does not advance")
    if last >= END_OF_NUMBERS or not _ascending(sequence_numbers):
        raise _broken(f"a peek from sequence number {start} was answered with numbers that do not ascend")


def _broken(problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(problem, operation=short_name(PEEK_MESSAGE))


def _ascending(sequence_numbers: Numbers) -> bool:
    numbers = np.asarray(sequence_numbers)
    return bool((numbers[1:] > numbers[:-1]).all())


def _positions(claimed: list[tuple[int, int]], sequence_numbers: Numbers) -> list[slice]:
    kept: list[slice] = []
    for low, high in claimed:
        first, after = bisect_left(sequence_numbers, low), bisect_left(sequence_numbers, high)
        if first == after:
            continue
        if kept and kept[-1].stop == first:
            kept[-1] = slice(kept[-1].start, after)
        else:
            kept.append(slice(first, after))
    return kept
