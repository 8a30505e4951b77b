"""Where the messages of a read stand: asked of the service by the driver, in a few round trips (DESIGN section 3).

The one rule: a plan may be too wide, never too narrow. Bounds in numbers cut it exactly; bounds in time are searched with a margin, and
cut exactly when the messages are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.planning import Extent, Search, sequence_number_at
from spark_sb_mgmt.spark.options.objects import PeekOptions, ReceiveOptions
from spark_sb_mgmt.spark.reading.gaps import occupied
from spark_sb_mgmt.spark.reading.partitioning import Span, spans_of
from spark_sb_mgmt.spark.reading.side_by_side import ask_each

# The times of neighbours may be out of order by as much as the service's clocks differ.
CLOCK_MARGIN_MS: Final = 1_000


def spans_of_read(
    options: PeekOptions | ReceiveOptions, *, enqueued_from_ms: int | None = None, enqueued_until_ms: int | None = None
) -> list[Span]:
    """Ranges of all entities of a read, as `find_spans` finds them."""
    find = partial(
        find_spans,
        from_sequence_number=options.from_sequence_number,
        until_sequence_number=options.until_sequence_number,
        enqueued_from_ms=enqueued_from_ms,
        enqueued_until_ms=enqueued_until_ms,
        session_id=options.session_id,
    )
    found = ask_each(options, options.entities, find, options.session_id)
    return [span for spans in found.values() for span in spans]


def find_spans(
    entity: EntityClient,
    *,
    from_sequence_number: int | None = None,
    until_sequence_number: int | None = None,
    enqueued_from_ms: int | None = None,
    enqueued_until_ms: int | None = None,
    session_id: str | None = None,
) -> list[Span]:
    """Ranges of an entity that hold all of its messages within the bounds, without large gaps."""
    found = [(extent.lowest, extent.highest + 1) for extent in entity.extents(session_id)]
    spans = spans_of(entity.path, found, from_sequence_number, until_sequence_number)
    if enqueued_from_ms is not None or enqueued_until_ms is not None:
        spans = _within_time(entity, spans, enqueued_from_ms, enqueued_until_ms, session_id)
    [ranges] = entity.search([occupied([Extent(span.start, span.end - 1) for span in spans])], session_id)
    return spans_of(entity.path, ranges, None, None)


def _within_time(
    entity: EntityClient, spans: Sequence[Span], earliest: int | None, latest: int | None, session_id: str | None
) -> list[Span]:
    searches: list[Search[int | None]] = []
    for span in spans:
        if earliest is not None:
            searches.append(sequence_number_at(earliest - CLOCK_MARGIN_MS, span.start, span.end))
        if latest is not None:
            searches.append(sequence_number_at(latest + CLOCK_MARGIN_MS, span.start, span.end, unknown_is_later=False))
    found = iter(entity.search(searches, session_id))
    ranges = []
    for span in spans:
        first = next(found) if earliest is not None else span.start
        after = next(found) if latest is not None else None
        # None late enough to start with leaves nothing; none late enough to end with leaves all.
        if first is not None:
            ranges.append((first, span.end if after is None else after))
    return spans_of(entity.path, ranges, None, None)
