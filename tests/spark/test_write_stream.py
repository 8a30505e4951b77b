"""writeStream: micro-batches as jobs, and what a query does that was stopped before it noted that it was done."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import spark_sb_mgmt
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.writing.stream_writer import batches_of, job_id
from spark_sb_mgmt.spark.writing.writer import check_mode
from tests.spark.conftest import NewEntity, Scheduling

TOMORROW = (datetime.now(timezone.utc) + timedelta(days=1)).replace(microsecond=0)


class Query:
    """A query from a directory of JSON files to a queue, started anew each time that there is something to do."""

    def __init__(self, spark: SparkSession, emulator: Emulator, directory: Path, schema: str, **options: object) -> None:
        spark_sb_mgmt.register(spark)
        self.input = directory / "input"
        self.input.mkdir()
        self.checkpoint = directory / "checkpoint"
        self._spark = spark
        self._schema = schema
        self._options = {"connectionString": emulator.connection_string, **{name: str(value) for name, value in options.items()}}

    def add(self, name: str, *rows: dict[str, Any]) -> None:
        (self.input / name).write_text("\n".join(json.dumps(row) for row in rows))

    def run(self, mode: str = "append") -> None:
        df = self._spark.readStream.schema(self._schema).json(str(self.input))
        if "body" in df.columns:
            df = df.withColumn("body", F.col("body").cast("binary"))
        writer = df.writeStream.format("sbmgmt").outputMode(mode).options(**self._options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(60)
        assert not query.isActive

    def forget(self, number: int) -> None:
        """As if the query had been stopped before it noted that this micro-batch was done."""
        for path in (self.checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()


def orders(start: int, end: int) -> list[dict[str, Any]]:
    return [{"message_id": f"order-{at:03d}", "body": "x"} for at in range(start, end)]


def standing(emulator: Emulator, queue: str) -> dict[str, int]:
    """Numbers by message ids; no id stands twice."""
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        found = [(str(message.message_id), message.sequence_number) for page in entity.peek_range() for message in page]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_micro_batch_that_is_done_again_schedules_nothing_twice(
    spark: SparkSession, emulator: Emulator, new_entity: NewEntity, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    target = tmp_path / "receipts"
    options = {"queue": queue, "scheduledEnqueueTime": TOMORROW.isoformat(), "receiptsPath": target, "maxBatchMessages": 7}
    query = Query(spark, emulator, tmp_path, "message_id string, body string", **options)
    query.add("1.json", *orders(0, 30))
    query.run()
    query.add("2.json", *orders(30, 50))
    query.run()
    first = standing(emulator, queue)
    assert sorted(first) == [f"order-{at:03d}" for at in range(50)]
    query.forget(1)
    query.run()
    second = standing(emulator, queue)
    assert sorted(second) == sorted(first)
    # The earlier micro-batch is not touched, the repeated one stands anew.
    assert {key for key in first if first[key] != second[key]} == {f"order-{at:03d}" for at in range(30, 50)}
    receipts = [row for part in target.glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    assert {row["message_id"]: row["sequence_number"] for row in receipts} == second
    assert len(receipts) == 50


def test_what_can_be_done_only_once_does_not_stop_the_query_when_it_is_done_again(
    spark: SparkSession, emulator: Emulator, scheduling: Scheduling, tmp_path: Path
) -> None:
    queue, numbers = scheduling(10)
    target = tmp_path / "receipts"
    options = {"queue": queue, "operation": "cancel-scheduled-message", "receiptsPath": target}
    query = Query(spark, emulator, tmp_path, "sequence_number long", **options)
    query.add("1.json", *({"sequence_number": number} for number in numbers[:6]))
    query.run()
    query.forget(0)
    query.run()
    assert sorted(standing(emulator, queue).values()) == numbers[6:]
    statuses = [row["status"] for part in target.glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    assert statuses == ["unknown"] * 6


def test_a_job_has_one_id_for_each_micro_batch_which_does_not_tell_the_querys() -> None:
    query = "3a5d9c02-1111-4222-8333-123456789abc"
    assert job_id(query, 3) == job_id(query, 3)
    assert len({job_id(query, 3), job_id(query, 4), job_id("another", 3)}) == 3
    assert query not in job_id(query, 3)


def test_only_append() -> None:
    with pytest.raises(InvalidArgumentError, match=r'outputMode\("complete"\) would have to empty .* use outputMode\("append"\)'):
        check_mode(True, "outputMode")


def test_rows_as_an_older_spark_hands_them_over_become_batches(spark: SparkSession) -> None:
    schema = StructType.fromDDL(
        "message_id string, body binary, scheduled_enqueue_time timestamp, application_properties map<string,string>"
    )
    df = spark.createDataFrame([("a", bytearray(b"x"), TOMORROW, {"k": "v"}), (None, None, TOMORROW, None)], schema)
    [batch] = batches_of(df.collect(), schema)
    assert batch.column("message_id").to_pylist() == ["a", None]
    assert batch.column("body").to_pylist() == [b"x", None]
    assert batch.column("application_properties").to_pylist() == [[("k", "v")], None]
    assert batch.column("scheduled_enqueue_time").to_pylist() == [TOMORROW, TOMORROW]
