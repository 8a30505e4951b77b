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
    """The message that a probe found. `enqueued_time`: milliseconds since the Unix epoch, None if it has none."""

    sequence_number: int
    enqueued_time: int | None = None


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
    """The highest sequence number in [start, end). First galloping, since how far a queue reaches is known only by its order of
    magnitude, then cutting what is left into equal parts."""
    lowest = yield from lowest_sequence_number(start, end)
    if lowest is None:
        return None
    highest = lowest
    while end - highest > 1:
        wanted = _cuts(lowest, highest + 1, end, probes)
        answers = yield wanted
        for probe, found in zip(wanted, answers, strict=True):
            if found is None or found.sequence_number >= end:
                end = min(end, probe)
            else:
                highest = max(highest, found.sequence_number)
    return highest


def sequence_number_at(enqueued_time: int, start: int = 0, end: int = END_OF_NUMBERS, probes: int = PROBES) -> Search[int | None]:
    """The lowest sequence number in [start, end) of a message enqueued at that time (milliseconds since the Unix epoch) or later.
    Holds as far as enqueued times ascend with sequence numbers, as they do within one partition except for scheduled messages."""
    lowest = yield from lowest_sequence_number(start, end)
    if lowest is None:
        return None
    answer: int | None = None
    # All below `low` are earlier; the first at or above `end` is `answer`, and it is late enough, or there is none.
    low = lowest
    while low < end:
        wanted = _cuts(lowest, low, end, probes)
        answers = yield wanted
        for probe, found in zip(wanted, answers, strict=True):
            if found is None or found.sequence_number >= end:
                end = min(end, probe)
            elif found.enqueued_time is not None and found.enqueued_time < enqueued_time:
                low = max(low, found.sequence_number + 1)
            elif probe < end:
                end, answer = probe, found.sequence_number
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

    While `end` is many times further from the origin than `low` is, the cuts stand at equal ratios; then at equal distances."""
    width = end - low
    if width <= probes:
        return list(range(low, end))
    near, far = low - origin + 1, end - origin + 1
    if far > 4 * near:
        ratio = (far / near) ** (1 / (probes + (0 if first else 1)))
        cuts = [origin - 1 + int(near * ratio**step) for step in range(0 if first else 1, probes + (0 if first else 1))]
    else:
        cuts = [low + width * step // probes for step in range(probes)]
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
