"""cancel-scheduled-message: what stands afterwards, and what is said of numbers that were not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql import SparkSession

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.writing import cancel_writer
from spark_sb_mgmt.spark.writing.cancel_writer import CancelTask
from spark_sb_mgmt.spark.writing.number_runs import Runs
from spark_sb_mgmt.spark.writing.task_run import TaskRun
from spark_sb_mgmt.spark.writing.write_operation import Receipt, TaskAttempt
from tests.spark.conftest import Scheduling, Write


class Receipts:
    """Statuses by number, instead of a file."""

    def __init__(self) -> None:
        self.statuses: dict[int, str] = {}

    def add(self, receipt: Receipt) -> None:
        for number in receipt.rows.column("sequence_number").to_pylist():
            self.statuses[number] = receipt.status


def cancel(emulator: Emulator, queue: str, numbers: list[int], batch_size: int = 500, attempt: int = 0, **client: Any) -> dict[int, str]:
    """A task without Spark; what became of each number."""
    given = {"connectionString": emulator.connection_string, "queue": queue, "operation": "cancel-scheduled-message", "onError": "report"}
    options = write_options({**given, "receiptsPath": "unused"}, {})
    receipts = Receipts()
    with ManagementClient.from_connection_string(emulator.connection_string, **client) as opened, opened.entity(queue) as entity:
        task = CancelTask(entity, TaskAttempt(number=attempt), batch_size)
        TaskRun(task, entity, options, receipts).run(batches(numbers))  # type: ignore[arg-type]
    return receipts.statuses


def batches(numbers: list[int], size: int = 1_000) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(numbers), size):
        yield pa.RecordBatch.from_pydict({"sequence_number": pa.array(numbers[start : start + size], pa.int64())})


@pytest.mark.parametrize("kind", ["queue", "partitioned", "topic"])
def test_the_named_are_gone_and_the_others_stand(
    spark: SparkSession, write: Write, scheduling: Scheduling, emulator: Emulator, kind: str
) -> None:
    entity, numbers = scheduling(60, kind)
    where = {"topic": entity} if kind == "topic" else {"queue": entity}
    df = spark.createDataFrame([(number,) for number in numbers[::2]], "sequence_number long").repartition(2)
    write(df, operation="cancel-scheduled-message", maxBatchMessages=7, **where)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(entity) as opened:
        left = sorted(message.sequence_number for page in opened.peek_range() for message in page)
    assert left == numbers[1::2]


def test_the_official_sdk_sees_them_gone(spark: SparkSession, write: Write, scheduling: Scheduling, sdk: ServiceBusClient) -> None:
    queue, numbers = scheduling(10)
    write(spark.createDataFrame([(n,) for n in numbers[:-1]], "sequence_number long"), operation="cancel-scheduled-message", queue=queue)
    with sdk.get_queue_receiver(queue) as receiver:
        assert [message.sequence_number for message in receiver.peek_messages(20)] == numbers[-1:]


@pytest.mark.parametrize("spread", [1, 40])
def test_numbers_that_are_not_there_are_told_and_the_others_cancelled(scheduling: Scheduling, emulator: Emulator, spread: int) -> None:
    """Found by a look where they stand close together, by halving where they do not."""
    queue, numbers = scheduling(100)
    gone = [number * spread for number in range(1_000, 1_040)]
    statuses = cancel(emulator, queue, [*numbers[:50], *gone, *numbers[50:]])
    assert statuses == {**dict.fromkeys(numbers, "ok"), **dict.fromkeys(gone, "failed")}
    assert emulator.counts(queue)["scheduled"] == 0


def test_a_number_that_comes_twice(scheduling: Scheduling, emulator: Emulator) -> None:
    queue, numbers = scheduling(3)
    assert cancel(emulator, queue, [numbers[0], numbers[0], 77, 77]) == {numbers[0]: "ok", 77: "failed"}
    assert emulator.counts(queue)["scheduled"] == 2


def test_numbers_of_several_partitions_are_not_mixed_up(scheduling: Scheduling, emulator: Emulator) -> None:
    queue, numbers = scheduling(40, "partitioned")
    assert max(numbers) > 2**48
    missing = [max(numbers) + 1, max(numbers) + 2]
    statuses = cancel(emulator, queue, [*numbers, *missing])
    assert statuses == {**dict.fromkeys(numbers, "ok"), **dict.fromkeys(missing, "failed")}


def test_a_later_attempt_does_not_fail_for_what_an_earlier_one_did(scheduling: Scheduling, emulator: Emulator) -> None:
    queue, numbers = scheduling(6)
    assert cancel(emulator, queue, numbers[:3]) == dict.fromkeys(numbers[:3], "ok")
    assert cancel(emulator, queue, numbers, attempt=1) == {
        **dict.fromkeys(numbers[:3], "unknown"),
        **dict.fromkeys(numbers[3:], "ok"),
    }


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_lost_in_the_midst_is_looked_into(scheduling: Scheduling, emulator: Emulator, when: Any) -> None:
    queue, numbers = scheduling(20)
    key = emulator.faults.add(Fault("drop-connection", operation="cancel-scheduled-message", entity=queue, when=when))
    assert cancel(emulator, queue, numbers, batch_size=10) == dict.fromkeys(numbers, "ok")
    assert emulator.faults.hits(key) == 1
    assert emulator.counts(queue)["scheduled"] == 0


def test_an_answer_that_never_comes_is_looked_into(scheduling: Scheduling, emulator: Emulator) -> None:
    queue, numbers = scheduling(10)
    emulator.faults.add(Fault("lose-reply", operation="cancel-scheduled-message", entity=queue))
    statuses = cancel(emulator, queue, numbers, server_timeout_ms=200, request_margin_s=0.2)
    assert statuses == dict.fromkeys(numbers, "ok")


def test_a_request_that_is_carried_out_after_it_was_given_up_is_no_failure(
    scheduling: Scheduling, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look finds its messages, so that it is sent again; then they are gone."""
    queue, numbers = scheduling(10)
    looked: list[Any] = []

    def as_before(entity: EntityClient, runs: Runs) -> list[int]:
        looked.append(runs)
        return numbers if len(looked) == 1 else scheduled(entity, runs)

    scheduled = cancel_writer._scheduled
    monkeypatch.setattr(cancel_writer, "_scheduled", as_before)
    emulator.faults.add(Fault("drop-connection", operation="cancel-scheduled-message", entity=queue, when="after"))
    assert cancel(emulator, queue, numbers) == dict.fromkeys(numbers, "ok")
    assert len(looked) == 2
