"""Where messages are, found by asking for few of them: lowest and highest sequence number, partition ids, the number at a time (DESIGN 3).

The one rule: pure. Each search is a generator that yields the sequence numbers it wants probed, all at once, and is sent what each probe
found: the first message at or above that number, or None. One yield is one round trip. A probe is a peek of one message.

Each search holds for messages that stand throughout; what comes and goes meanwhile may or may not be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS

T = TypeVar("T")

# Probes of one round. A probe brings one message, so many of them are less than one page; 32 find a place among 2^63 in few rounds.
PROBES: Final = 32
# Partitioned entities: the top 16 bits of a sequence number are the partition's id (wire-facts.md, section 4).
PARTITION_SHIFT: Final = 48
PARTITION_IDS: Final = 2 ** (63 - PARTITION_SHIFT)


@dataclass(frozen=True)
class Found:
    """The message that a probe found. `enqueued_time`: milliseconds since the Unix epoch, None where it tells nothing: the message has
    none, or is scheduled and not enqueued yet."""

    sequence_number: int
    enqueued_time: int | None = None


@dataclass(frozen=True)
class Extent:
    """The lowest and the highest sequence number that were found somewhere."""

    lowest: int
    highest: int


Answers = Sequence[Found | None]
Search = Generator[list[int], Answers, T]


def partition_id(sequence_number: int) -> int:
    return sequence_number >> PARTITION_SHIFT


def partition_range(partition: int) -> tuple[int, int]:
    """The sequence numbers of a partition: first, and end (exclusive)."""
    return partition << PARTITION_SHIFT, (partition + 1) << PARTITION_SHIFT


def lowest_sequence_number(start: int = 0, end: int = END_OF_NUMBERS) -> Search[int | None]:
    """The lowest sequence number in [start, end): one round trip."""
    if start >= end:
        return None
    answers = yield [start]
    found = answers[0]
    return found.sequence_number if found is not None and found.sequence_number < end else None


def highest_sequence_number(start: int = 0, end: int = END_OF_NUMBERS, probes: int = PROBES) -> Search[int | None]:
    """The highest sequence number in [start, end)."""
    extent = yield from extent_of_range(start, end, probes)
    return None if extent is None else extent.highest


def extent_of_range(start: int = 0, end: int = END_OF_NUMBERS, probes: int = PROBES) -> Search[Extent | None]:
    """The lowest and highest sequence number in [start, end). First galloping, since how far a queue reaches is known only by its order of
    magnitude, then cutting what is left into equal parts. The lowest is asked for in the first round, with the galloping."""
    origin, lowest, highest = start, None, start - 1
    while end - highest > 1:
        wanted = _cuts(origin, highest + 1, end, probes, first=lowest is None)
        answers = yield wanted
        for probe, found in zip(wanted, answers, strict=True):
            if found is None or found.sequence_number >= end:
                end = min(end, probe)
            else:
                highest = max(highest, found.sequence_number)
                lowest = found.sequence_number if lowest is None else lowest
        if lowest is None:
            return None
        origin = lowest
    return None if lowest is None else Extent(lowest, highest)


def sequence_number_at(
    enqueued_time: int, start: int = 0, end: int = END_OF_NUMBERS, probes: int = PROBES, *, unknown_is_later: bool = True
) -> Search[int | None]:
    """The lowest sequence number in [start, end) of a message enqueued at that time (milliseconds since the Unix epoch) or later.
    Holds as far as enqueued times ascend with sequence numbers, as they do within one partition except for scheduled messages. Those
    count as later, or as earlier if `unknown_is_later` is false: who looks for the start of a span then gets one that is not too late, who
    looks for its end one that is not too early."""
    answer: int | None = None
    # All below `low` are earlier; the first at or above `end` is `answer`, and it is late enough, or there is none.
    origin, low, first = start, start, True
    while low < end:
        wanted = _cuts(origin, low, end, probes, first=first)
        answers = yield wanted
        for probe, found in zip(wanted, answers, strict=True):
            if found is None or found.sequence_number >= end:
                end = min(end, probe)
            elif not unknown_is_later if found.enqueued_time is None else found.enqueued_time < enqueued_time:
                low = max(low, found.sequence_number + 1)
            elif probe < end:
                end, answer = probe, found.sequence_number
        if first and answers[0] is not None:
            # Where the queue starts: galloping, if there is any left to do, starts there too.
            origin, first = answers[0].sequence_number, False
    return answer


def partition_ids(probes: int = PROBES) -> Search[list[int]]:
    """The ids of the partitions that have messages, ascending. An entity that is not partitioned has one, 0."""
    used: set[int] = set()
    unknown = [(0, PARTITION_IDS)]
    while unknown:
        share = max(1, probes // len(unknown))
        wanted = [low for start, end in unknown for low in _cuts(start, start, end, share, first=True)]
        answers = yield [partition << PARTITION_SHIFT for partition in wanted]
        # A probe at p that finds partition q shows that p to q - 1 are empty and q is not.
        known: list[tuple[int, int]] = []
        for probe, found in zip(wanted, answers, strict=True):
            reached = PARTITION_IDS if found is None else partition_id(found.sequence_number)
            known.append((probe, reached + 1))
            if found is not None:
                used.add(reached)
        unknown = _without(unknown, known)
    return sorted(used)


def extents(probes: int = PROBES) -> Search[list[Extent]]:
    """Where the messages of an entity are, one extent for each partition that has any, ascending: all that planning a read needs."""
    used = yield from partition_ids(probes)
    found = yield from together([extent_of_range(*partition_range(partition), probes) for partition in used])
    # A partition that was emptied in between has none.
    return [extent for extent in found if extent is not None]


def together(searches: Sequence[Search[T]]) -> Search[list[T]]:
    """Several searches in step: the round trips of the longest, not of all."""
    results: dict[int, T] = {}
    wanted: dict[int, list[int]] = {}

    def advance(index: int, step: Callable[[], list[int]]) -> None:
        try:
            wanted[index] = step()
        except StopIteration as stop:
            wanted.pop(index, None)
            results[index] = stop.value

    for index, search in enumerate(searches):
        advance(index, search.__next__)
    while wanted:
        asked = dict(wanted)
        answers = yield [probe for probes in asked.values() for probe in probes]
        at = 0
        for index, probes in asked.items():
            mine = answers[at : at + len(probes)]
            at += len(probes)
            advance(index, lambda index=index, mine=mine: searches[index].send(mine))  # type: ignore[misc]
    return [results[index] for index in range(len(searches))]


def _cuts(origin: int, low: int, end: int, probes: int, *, first: bool = False) -> list[int]:
    """Where to probe in [low, end): ascending, distinct, at most `probes`. With `first`, `low` itself is one of them.

    Where all of [low, end) is in doubt, a probe at `low` tells least, so it is left out unless `first` asks for it.
    While `end` is many times further from the origin than `low` is, the cuts stand at equal ratios; then at equal distances."""
    width = end - low
    if width <= probes:
        return list(range(low, end))
    steps = range(0 if first else 1, probes if first else probes + 1)
    near, far = low - origin + 1, end - origin + 1
    if far > 4 * near:
        ratio = (far / near) ** (1 / steps.stop)
        cuts = [origin - 1 + int(near * ratio**step) for step in steps]
    else:
        cuts = [low + width * step // steps.stop for step in steps]
    if first:
        cuts[0] = low
    # Near the origin several cuts fall on one number; spread them to the next free ones.
    spread: list[int] = []
    for cut in cuts:
        spread.append(max(cut, spread[-1] + 1 if spread else low))
    return [cut for cut in spread if cut < end]


def _without(intervals: list[tuple[int, int]], removed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals less what was removed, which is ascending by start."""
    left: list[tuple[int, int]] = []
    for start, end in intervals:
        at = start
        for low, high in removed:
            if high <= at or low >= end:
                continue
            if low > at:
                left.append((at, low))
            at = max(at, high)
        if at < end:
            left.append((at, end))
    return left
