"""peek-message as a DataFrame: ranges planned on the driver, each read by a task (CONTRACT sections 1.2 and 3).

The one rule: the plan is made once for a DataFrame, at its first action, and every task of it can be repeated. Messages that arrive later
are above it; `load()` again plans again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_sb_mgmt.spark.options.objects import PeekOptions
from spark_sb_mgmt.spark.reading.message_batches import Wanted
from spark_sb_mgmt.spark.reading.partitioning import RangesPartition, plan_ranges
from spark_sb_mgmt.spark.reading.peek_plan import spans_of_read
from spark_sb_mgmt.spark.reading.ranges_reader import read_ranges
from spark_sb_mgmt.spark.reading.read_schema import ReadColumns


class PeekReader(DataSourceReader):
    """Messages of ranges of sequence numbers."""

    def __init__(self, options: PeekOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        spans = spans_of_read(options, enqueued_from_ms=options.enqueued_from_ms, enqueued_until_ms=options.enqueued_until_ms)
        return plan_ranges(spans, num_partitions=options.num_partitions, page_size=options.page_size, max_messages=options.max_messages)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition), "partitions() gives no other"
        options = self.options
        wanted = Wanted(options.states, options.enqueued_from_ms, options.enqueued_until_ms)
        return read_ranges(options, self.columns, partition, wanted)
