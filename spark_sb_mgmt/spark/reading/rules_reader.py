"""enumerate-rules as a DataFrame: the rules of subscriptions (CONTRACT section 1.2).

The one rule: a subscription is read whole by one task; it has few rules, and only their order of paging says which were seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options.objects import RulesOptions
from spark_sb_mgmt.spark.reading.partitioning import EntitiesPartition, plan_entities
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.reading.read_schema import ReadColumns
from spark_sb_mgmt.spark.rule_rows import rules_to_batch


class RulesReader(DataSourceReader):
    """Rules of subscriptions."""

    def __init__(self, options: RulesOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return plan_entities(self.options.entities)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EntitiesPartition), "partitions() gives no other"
        options = self.options
        for path in partition.entities:
            with explained(options.operation, path), open_entity(options.connection, path) as entity:
                rules = entity.enumerate_rules()
            if rules:
                yield rules_to_batch(path, rules, self.columns.names)
