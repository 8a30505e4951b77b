"""Large gaps, found before ranges are shared out.

The one rule: a number is left out only if a probe showed that nothing stands there. A peek from a finds the first message at or above a, so
one that finds z shows that [a, z) is empty. One round trip of probes at equal distances finds every gap that is wider than two of them
(less its ends), such as the 90 % of a queue that were consumed already. What is smaller is left in: striding evens that out
(`partitioning`).

A message that stands while the plan is made and while it is read is therefore never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_sb_mgmt.connection.planning import Extent, Found, Search

# Probes of the one round, for all extents together; each brings one message, so all of them are less than one page.
PROBES: Final = 128


def occupied(extents: Sequence[Extent], probes: int = PROBES) -> Search[list[tuple[int, int]]]:
    """The extents without their large gaps: ranges with exclusive ends, in the order of the extents. One round trip, or none."""
    total = sum(extent.highest - extent.lowest + 1 for extent in extents)
    cuts = [_cuts(extent, probes, total) for extent in extents]
    wanted = [cut for each in cuts for cut in each]
    answers = (yield wanted) if wanted else []
    ranges: list[tuple[int, int]] = []
    at = 0
    for extent, each in zip(extents, cuts, strict=True):
        ranges += _without_gaps(extent, each, answers[at : at + len(each)])
        at += len(each)
    return ranges


def _cuts(extent: Extent, probes: int, total: int) -> range:
    """Where to probe: at equal distances, and neither at the lowest number nor at the highest, which are known."""
    inside = extent.highest - extent.lowest - 1
    share = probes * (inside + 2) // total
    if inside < 1 or share < 1:
        return range(0)
    step = inside // (share + 1) + 1
    return range(extent.lowest + step, extent.highest, step)


def _without_gaps(extent: Extent, cuts: range, answers: Sequence[Found | None]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start, end = extent.lowest, extent.highest + 1
    for cut, found in zip(cuts, answers, strict=True):
        # What stood at the highest number may be gone by now; then nothing is left from here on.
        reached = end if found is None else min(found.sequence_number, end)
        if cut < start or reached - cut < cuts.step:
            continue
        ranges.append((start, cut))
        start = reached
    return [*ranges, (start, end)] if start < end else ranges
