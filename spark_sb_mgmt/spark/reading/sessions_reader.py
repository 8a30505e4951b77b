"""get-message-sessions as a DataFrame: the sessions of queues and subscriptions, with their states if asked for (CONTRACT section 1.2).

The one rule: a state is a request of its own, so it is fetched only for the column that shows it, by the tasks, many in flight. Which
sessions there are is asked once, by the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_sb_mgmt.amqp.columns import batch_of
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.operations.sessions import get_session_state
from spark_sb_mgmt.spark.connections import open_entity
from spark_sb_mgmt.spark.options.objects import SessionsOptions
from spark_sb_mgmt.spark.reading.message_batches import BATCH_BYTES, BATCH_MESSAGES
from spark_sb_mgmt.spark.reading.partitioning import SessionsPartition, plan_sessions
from spark_sb_mgmt.spark.reading.read_errors import explained
from spark_sb_mgmt.spark.reading.read_schema import SESSION_STATE, ReadColumns
from spark_sb_mgmt.spark.reading.side_by_side import ask_each


class SessionsReader(DataSourceReader):
    """Ids and states of sessions."""

    def __init__(self, options: SessionsOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        return plan_sessions(ask_each(options, options.entities, lambda entity: entity.get_message_sessions(options.last_updated_since)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SessionsPartition), "partitions() gives no other"
        path, ids = partition.entity, partition.session_ids
        if not ids:
            # The one task of an empty plan: there is no entity to open.
            return
        if SESSION_STATE not in self.columns:
            yield self._batch(path, ids, [None] * len(ids))
            return
        for found in self._states(path, ids):
            yield self._batch(path, [session_id for session_id, _ in found], [state for _, state in found])

    def _states(self, path: str, ids: Sequence[str]) -> Iterator[list[tuple[str, bytes | None]]]:
        """Sessions with their states, as many at once as one batch may hold."""
        gathered: list[tuple[str, bytes | None]] = []
        size = 0
        with explained(self.options.operation, path), open_entity(self.options.connection, path) as entity:
            for position, outcome in entity.pipeline(map(get_session_state, ids)):
                if isinstance(outcome, SbMgmtError):
                    raise outcome
                gathered.append((ids[position], outcome))
                size += len(outcome or b"")
                if len(gathered) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                    yield gathered
                    gathered, size = [], 0
        if gathered:
            yield gathered

    def _batch(self, path: str, ids: Sequence[str], states: Sequence[bytes | None]) -> pa.RecordBatch:
        cells: dict[str, Sequence[object]] = {"entity": [path] * len(ids), "session_id": ids, SESSION_STATE: states}
        arrays = [pa.array(cells[field.name], field.type) for field in self.columns.arrow]
        return batch_of(arrays, self.columns.arrow, len(ids))
