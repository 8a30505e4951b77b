"""Reading the ranges of a task: what batch and stream have in common.

The one rule: repeatable. Nothing is locked and nothing changes, so a task may be retried, run twice or killed, and a message that stands
from plan to end of read is exactly one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options.objects import PeekOptions, StreamOptions
from spark_sb_mgmt.spark.reading.message_batches import Wanted, message_batches
from spark_sb_mgmt.spark.reading.partitioning import RangesPartition
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.reading.read_schema import ReadColumns


def read_ranges(
    options: PeekOptions | StreamOptions, columns: ReadColumns, partition: RangesPartition, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of a task."""
    left = partition.limit
    for path, spans in groupby(partition.spans, key=lambda span: span.entity):
        if left == 0:
            return
        with explained(options.operation, path, options.session_id), open_entity(options.connection, path) as entity:
            pages = entity.peek_ranges(
                sorted((span.start, span.end) for span in spans),
                min(options.page_size, left) if left is not None and wanted.is_all else options.page_size,
                # With a limit in order of their numbers, so that the same rows come each time.
                None if left is None else 1,
                options.session_id,
            )
            for batch in message_batches(pages, columns.names, path, wanted, left):
                left = None if left is None else left - batch.num_rows
                yield batch
