"""Reading a queue into a DataFrame with azure-servicebus: what a user would write who has no data source.

The one rule: as good as it gets. Ranges are disjoint, each task peeks its own over a connection of its own, pages are as large as ours, a
page is one pandas frame, and every column of ours is filled from what the SDK says of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage
from pyspark.sql import DataFrame, SparkSession

from spark_sb_mgmt.spark.schema import message_schema

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[Any, ...]


def peek_in_tasks(spark: SparkSession, connection_string: str, queue: str, count: int, page: int, tasks: int) -> DataFrame:
    """`mapInPandas` over disjoint ranges: the strongest thing."""
    schema = message_schema()
    names = schema.names

    def peek(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd

        for frame in frames:
            for task in frame["id"]:
                start, end = 1 + count * task // tasks, 1 + count * (task + 1) // tasks
                for rows in pages(connection_string, queue, start, end, page):
                    yield pd.DataFrame(rows, columns=names)

    return spark.range(tasks, numPartitions=tasks).mapInPandas(peek, schema)


def peek_on_the_driver(spark: SparkSession, connection_string: str, queue: str, count: int, page: int) -> DataFrame:
    """A loop on the driver and `createDataFrame`: the first thing that comes to mind."""
    rows = [row for some in pages(connection_string, queue, 1, 1 + count, page) for row in some]
    return spark.createDataFrame(rows, message_schema())


def pages(connection_string: str, queue: str, start: int, end: int, page: int) -> Iterator[list[Row]]:
    """The messages of a range as rows."""
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_receiver(queue) as receiver:
        while start < end:
            messages = receiver.peek_messages(min(page, end - start), sequence_number=start)
            if not messages:
                return
            start = (messages[-1].sequence_number or 0) + 1
            yield [_row(queue, message) for message in messages if (message.sequence_number or 0) < end]


def _row(queue: str, message: ServiceBusReceivedMessage) -> Row:
    raw = message.raw_amqp_message
    annotations, properties = raw.annotations or {}, message.application_properties
    lasts = message.time_to_live
    return (
        queue,
        message.sequence_number,
        message.enqueued_sequence_number,
        message.message_id,
        message.session_id,
        message.partition_key,
        _text(annotations.get(b"x-opt-via-partition-key")),
        message.correlation_id,
        message.subject,
        message.to,
        message.reply_to,
        message.reply_to_session_id,
        message.content_type,
        None if lasts is None else int(lasts.total_seconds() * 1000),
        message.enqueued_time_utc,
        message.scheduled_enqueue_time_utc,
        message.expires_at_utc,
        None,
        message.delivery_count,
        message.state.name.lower(),
        message.dead_letter_source,
        message.dead_letter_reason,
        message.dead_letter_error_description,
        None,
        None if properties is None else {_text(key): None if value is None else str(_text(value)) for key, value in properties.items()},
        b"".join(raw.body),
        raw.body_type.name.lower(),
    )


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
