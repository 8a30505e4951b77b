"""How far a stream has read: for each entity and partition id the next sequence number (CONTRACT section 1.4).

The one rule: pure, and an offset only grows. A partition id that an offset does not name is at its first number, so that one which gets its
first message later is read from its start. What an offset once named it keeps, also when no message is left there.

An offset is what Spark writes into the checkpoint: `{"orders": {"0": 1001}}`. Ids are text, because they are keys of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_sb_mgmt.connection.planning import Extent, partition_id, partition_range

# Of one entity, and of all entities of a stream.
Position = dict[str, int]
Offset = dict[str, Position]


def next_number(position: Mapping[str, int], partition: int) -> int:
    """The next sequence number of a partition."""
    return position.get(str(partition), partition_range(partition)[0])


def at_number(sequence_number: int) -> Position:
    """Where every message from this number on is still to be read, and none below it. Numbers of lower partition ids are all below it."""
    reached = partition_id(sequence_number)
    return {**{str(lower): partition_range(lower)[1] for lower in range(reached)}, str(reached): sequence_number}


def behind(extents: Iterable[Extent]) -> Position:
    """Right behind all that stands now."""
    return {str(partition_id(extent.highest)): extent.highest + 1 for extent in extents}


def furthest(start: Mapping[str, int], end: Mapping[str, int]) -> Position:
    """The further of the two in every partition, in the order of their ids: Spark compares offsets as texts."""
    together = {partition: max(next_number(start, partition), next_number(end, partition)) for partition in ids(start, end)}
    return {str(partition): number for partition, number in together.items()}


def no_further(position: Mapping[str, int], limit: Mapping[str, int], start: Mapping[str, int]) -> Position:
    """A position without what lies behind `limit`, and never before `start`."""
    kept = {key: min(number, limit[key]) for key, number in position.items() if key in limit}
    return furthest(start, kept)


def ranges_between(start: Mapping[str, int], end: Mapping[str, int]) -> list[tuple[int, int]]:
    """The numbers from one position to another, ascending, their ends exclusive. Where the start is further there are none."""
    ranges = ((next_number(start, partition), next_number(end, partition)) for partition in ids(end))
    return [(low, high) for low, high in ranges if low < high]


def ids(*positions: Mapping[str, int]) -> list[int]:
    """Of the partitions that are named."""
    return sorted({int(key) for position in positions for key in position})


def shared_out(widths: Mapping[int, int], most: int, turn: int) -> dict[int, int]:
    """How many numbers of each are taken, `most` in all: equal shares, and what some do not use goes to the others. Where there are more of
    them than numbers, those have theirs whose turn it is."""
    order = [key for key in sorted(widths) if widths[key] > 0]
    order = [*order[turn % len(order) :], *order[: turn % len(order)]] if order else []
    taken = dict.fromkeys(order, 0)
    left = most
    while left > 0:
        open_ones = [key for key in order if taken[key] < widths[key]]
        if not open_ones:
            break
        share = max(1, left // len(open_ones))
        for key in open_ones[:left]:
            more = min(share, widths[key] - taken[key], left)
            taken[key] += more
            left -= more
    return {key: count for key, count in taken.items() if count}
