"""Which task reads what (DESIGN section 3).

The one rule: pure, and every number, session and entity that is given is in exactly one partition.

Gaps make equal widths unequal, and where they are is hardly known when a read is planned. So a task does not get one range but STRIDES of
them, spread over the whole width: all ranges are laid end to end, cut into equal parts, and dealt out to the tasks as cards are, to and
fro. However the messages lie, a task then has its share of every stretch that is wider than a few parts; to and fro also evens out a
queue that gets denser towards its end. A part is never so narrow that requests are wasted on it, unless more tasks were asked for.

Several entities share the tasks by width. A small one is read whole by one task, with other small ones, since each entity that a task reads
costs it a link pair.

No plan is empty: a plan with nothing to do is one partition with nothing in it, because of what PySpark makes of an empty list
(`read(None)` up to 4.1, `read(InputPartition(None))` after).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS
from spark_sb_mgmt.connection.planning import PARTITION_SHIFT, partition_id

# Where nobody says how many: a few times the cores of a small cluster. How many there are cannot be asked for where this runs.
DEFAULT_PARTITIONS: Final = 32
STRIDES: Final = 16
# A part holds at least this many pages, if it is dense; at its end a page may be cut short.
PAGES_OF_A_PART: Final = 4
# Sessions of one task: each is one request for its state.
SESSIONS_OF_A_TASK: Final = 100


class Span(NamedTuple):
    """Sequence numbers of one entity; the end is exclusive."""

    entity: str
    start: int
    end: int


@dataclass(frozen=True)
class RangesPartition(InputPartition):
    """A task that reads ranges. With a `limit` it is the only task of its read, and stops after so many rows."""

    spans: tuple[Span, ...]
    limit: int | None = None


@dataclass(frozen=True)
class NumbersPartition(InputPartition):
    """A task that asks for messages by their numbers; `ranges` have exclusive ends."""

    entity: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SessionsPartition(InputPartition):
    """A task that reads sessions."""

    entity: str
    session_ids: tuple[str, ...]


@dataclass(frozen=True)
class EntitiesPartition(InputPartition):
    """A task that reads entities as a whole."""

    entities: tuple[str, ...]


def spans_of(entity: str, ranges: Iterable[tuple[int, int]], start: int | None, end: int | None) -> list[Span]:
    """Ranges of an entity that were found to have messages, clipped to what is asked for."""
    low, high = start or 0, END_OF_NUMBERS if end is None else end
    clipped = (Span(entity, max(first, low), min(after, high)) for first, after in ranges)
    return [span for span in clipped if span.start < span.end]


def plan_ranges(spans: Sequence[Span], *, num_partitions: int | None, page_size: int, max_messages: int | None) -> list[RangesPartition]:
    """Tasks for disjoint spans: as many as asked for, as far as there are numbers; else by size. `max_messages` makes it one task,
    because no task knows how many rows the others have."""
    if max_messages is not None or not spans:
        return [RangesPartition(tuple(spans), max_messages)]
    width = page_size * PAGES_OF_A_PART
    tasks = num_partitions or max(1, min(DEFAULT_PARTITIONS, _width(spans) // width))
    plan = []
    for together, share in _shares(spans, tasks):
        plan += [RangesPartition(tuple(part)) for part in _dealt(together, share, width)]
    return plan


def plan_numbers(entity: str, ranges: Sequence[tuple[int, int]], *, num_partitions: int | None, page_size: int) -> list[NumbersPartition]:
    """Tasks for listed numbers, in their order, so that few tasks have numbers of several partition ids."""
    spans = [Span(entity, start, end) for start, end in ranges]
    count = _width(spans)
    tasks = min(num_partitions or max(1, min(DEFAULT_PARTITIONS, count // (page_size * PAGES_OF_A_PART))), max(1, count))
    return [NumbersPartition(entity, tuple((span.start, span.end) for span in part)) for part in _cut(spans, tasks)]


def request_batches(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[list[int]]:
    """The numbers of a task as those of its requests: at most `size`, and of one partition id, since the service refuses others."""
    current: list[int] = []
    for start, end in ranges:
        while start < end:
            if current and (len(current) == size or partition_id(current[-1]) != partition_id(start)):
                yield current
                current = []
            stop = min(end, start + size - len(current), (partition_id(start) + 1) << PARTITION_SHIFT)
            current.extend(range(start, stop))
            start = stop
    if current:
        yield current


def plan_sessions(sessions: Mapping[str, Sequence[str]]) -> list[SessionsPartition]:
    """Tasks for sessions of entities."""
    count = sum(map(len, sessions.values()))
    size = max(SESSIONS_OF_A_TASK, -(-count // DEFAULT_PARTITIONS))
    plan = []
    for entity, ids in sessions.items():
        left = iter(ids)
        while part := tuple(islice(left, size)):
            plan.append(SessionsPartition(entity, part))
    return plan or [SessionsPartition("", ())]


def plan_entities(entities: Sequence[str]) -> list[EntitiesPartition]:
    """Tasks for entities that are read whole."""
    tasks = min(DEFAULT_PARTITIONS, len(entities))
    return [EntitiesPartition(tuple(entities[task::tasks])) for task in range(tasks)] or [EntitiesPartition(())]


def _width(spans: Iterable[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _shares(spans: Sequence[Span], tasks: int) -> list[tuple[list[Span], int]]:
    """Spans that share tasks, and how many: each entity that is worth a task on its own, and the small ones packed together."""
    entities: dict[str, list[Span]] = {}
    for span in spans:
        entities.setdefault(span.entity, []).append(span)
    total = _width(spans)
    small = {name: mine for name, mine in entities.items() if _width(mine) * tasks < total}
    large = {name: mine for name, mine in entities.items() if name not in small}
    small_width = sum(map(_width, small.values()))
    bins = min(len(small), max(1, round(tasks * small_width / total)), tasks - len(large)) if small else 0
    if small and bins < 1:
        # Every task is taken by a large entity: the small ones go with the least of these.
        least = min(large, key=lambda name: _width(large[name]))
        large[least] = [*large[least], *(span for mine in small.values() for span in mine)]
    packed: list[list[Span]] = [[] for _ in range(max(bins, 0))]
    if packed:
        for mine in sorted(small.values(), key=_width, reverse=True):
            min(packed, key=_width).extend(mine)
    return [*_apportioned(list(large.values()), tasks - len(packed)), *((mine, 1) for mine in packed)]


def _apportioned(groups: list[list[Span]], tasks: int) -> list[tuple[list[Span], int]]:
    """Tasks in proportion to width, at least one each: one by one to whoever has most for each of its tasks."""
    shares = [1] * len(groups)
    widths = [_width(mine) for mine in groups]
    for _ in range(tasks - len(groups)):
        if not groups:
            break
        most = max(range(len(groups)), key=lambda at: widths[at] / shares[at])
        shares[most] += 1
    return list(zip(groups, shares, strict=True))


def _dealt(spans: Sequence[Span], tasks: int, narrowest: int) -> list[list[Span]]:
    """Spans cut into equal parts and dealt to and fro."""
    width = _width(spans)
    tasks = min(tasks, width)
    # As many parts for each task: where there are few, one more is twice the work.
    parts = tasks * max(1, min(STRIDES, width // (narrowest * tasks)))
    hands: list[list[Span]] = [[] for _ in range(tasks)]
    for at, part in enumerate(_cut(spans, parts)):
        turn, place = divmod(at, tasks)
        hand = hands[place if turn % 2 == 0 else tasks - 1 - place]
        for span in part:
            # Where the deal turns, the same task gets two parts in a row.
            if hand and hand[-1].entity == span.entity and hand[-1].end == span.start:
                hand[-1] = Span(span.entity, hand[-1].start, span.end)
            else:
                hand.append(span)
    return hands


def _cut(spans: Sequence[Span], parts: int) -> Iterator[list[Span]]:
    """Spans laid end to end and cut into parts of equal width, give or take one number."""
    width, left = _width(spans), iter(spans)
    span: Span | None = next(left, None)
    for at in range(parts):
        wanted = width * (at + 1) // parts - width * at // parts
        part = []
        while span is not None and wanted:
            stop = min(span.end, span.start + wanted)
            part.append(Span(span.entity, span.start, stop))
            wanted -= stop - span.start
            span = Span(span.entity, stop, span.end) if stop < span.end else next(left, None)
        yield part
