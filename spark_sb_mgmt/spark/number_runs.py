"""Sequence numbers as runs of neighbours, and looking at what stands there.

The one rule: a run is a range with an exclusive end; runs ascend, and neither overlap nor touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.client.peeking import SCHEDULED
from spark_sb_mgmt.spark.message_batches import Wanted, message_batches

Runs = list[tuple[int, int]]
_PAGE: int = 250


def runs_of(numbers: Iterable[int] | npt.NDArray[np.int64]) -> Runs:
    """Numbers in any order, also some twice, as runs."""
    known = np.unique(np.fromiter(numbers, np.int64) if not isinstance(numbers, np.ndarray) else numbers)
    if not len(known):
        return []
    cuts = np.flatnonzero(np.diff(known) > 1) + 1
    first = known[np.concatenate(([0], cuts))].tolist()
    last = known[np.concatenate((cuts - 1, [len(known) - 1]))].tolist()
    return [(start, end + 1) for start, end in zip(first, last, strict=True)]


def scheduled_in(entity: EntityClient, runs: Runs, columns: Iterable[str] = ("sequence_number",)) -> Iterator[pa.RecordBatch]:
    """The scheduled messages that stand in these runs, in no order; with the columns that are asked for."""
    pages = entity.peek_ranges(runs, min(_PAGE, max((end - start for start, end in runs), default=1)))
    return message_batches(pages, list(columns), entity.path, Wanted(states=(SCHEDULED,)))
