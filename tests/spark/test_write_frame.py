"""What all writes have in common: modes, receipts, rows that fail, tasks that are tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import spark_sb_mgmt
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import InvalidArgumentError, RowsFailedError
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.writing import writer as writer_module
from spark_sb_mgmt.spark.writing.write_operation import TaskAttempt
from spark_sb_mgmt.spark.writing.writer import ManagementWriter, TaskMessage, check_mode
from tests.spark.conftest import NewEntity, Scheduling, Write

ROWS = StructType([StructField("sequence_number", LongType()), StructField("name", StringType())])


@pytest.fixture
def numbered(spark: SparkSession) -> Callable[..., DataFrame]:
    """Rows of numbers, each with a name."""
    return lambda numbers, tasks=2: spark.createDataFrame([(n, f"row {n}") for n in numbers], ROWS).repartition(tasks)


@pytest.fixture
def planned(emulator: Emulator, tmp_path: Path) -> Callable[..., ManagementWriter]:
    """A writer as the driver makes it, to be driven without Spark."""

    def make(queue: str, **options: str) -> ManagementWriter:
        given = {"connectionString": emulator.connection_string, "queue": queue, "operation": "cancel-scheduled-message", **options}
        return ManagementWriter(write_options(given, {}), StructType(ROWS.fields[: 2 if "rowKey" in given else 1]))

    return make


def batches(*numbers: int | None) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"sequence_number": pa.array(numbers, pa.int64()), "name": [f"row {n}" for n in numbers]})


def receipts(directory: Path) -> list[dict[str, Any]]:
    return [row for part in sorted(directory.glob("*.parquet")) for row in pq.read_table(part).to_pylist()]


def test_each_row_has_one_receipt_in_one_part_for_each_task(
    spark: SparkSession, write: Write, numbered: Callable[..., DataFrame], scheduling: Scheduling, tmp_path: Path
) -> None:
    queue, numbers = scheduling(30)
    target = tmp_path / "receipts"
    write(numbered(numbers, 3), operation="cancel-scheduled-message", queue=queue, receiptsPath=target, rowKey="name")
    assert len(list(target.glob("*.parquet"))) == 3
    df = spark.read.parquet(str(target))
    assert df.columns == [
        "row_key",
        "message_id",
        "sequence_number",
        "lock_token",
        "status",
        "status_code",
        "error_condition",
        "status_description",
        "expiration",
    ]
    assert sorted((row.row_key, row.sequence_number, row.status, row.status_code) for row in df.collect()) == sorted(
        (f"row {number}", number, "ok", 200) for number in numbers
    )


def test_without_rows_there_are_receipts_without_rows(
    spark: SparkSession, write: Write, numbered: Callable[..., DataFrame], new_entity: NewEntity, tmp_path: Path
) -> None:
    target = tmp_path / "receipts"
    write(numbered([]), operation="cancel-scheduled-message", queue=new_entity("queue"), receiptsPath=target, rowKey="name")
    assert spark.read.parquet(str(target)).count() == 0


def test_report_puts_rows_that_fail_into_the_receipts_and_the_job_succeeds(
    write: Write, numbered: Callable[..., DataFrame], scheduling: Scheduling, emulator: Emulator, tmp_path: Path
) -> None:
    queue, numbers = scheduling(5)
    target = tmp_path / "receipts"
    rows = numbered([*numbers, 1_000, None])
    write(rows, operation="cancel-scheduled-message", queue=queue, receiptsPath=target, onError="report", rowKey="name")
    found = {row["row_key"]: row for row in receipts(target)}
    assert len(found) == 7
    assert {key for key, row in found.items() if row["status"] == "ok"} == {f"row {number}" for number in numbers}
    missing, wrong = found["row 1000"], found["row None"]
    assert (missing["status"], missing["status_code"], missing["error_condition"]) == ("failed", 404, "com.microsoft:message-not-found")
    assert (wrong["status"], wrong["status_code"]) == ("failed", None)
    assert wrong["status_description"] == "sequence_number is null, and cancel-scheduled-message needs it"
    assert emulator.counts(queue)["scheduled"] == 0


def test_fail_fails_the_job_once_names_rows_by_their_key_and_publishes_no_receipts(
    write: Write, numbered: Callable[..., DataFrame], scheduling: Scheduling, emulator: Emulator, tmp_path: Path
) -> None:
    queue, numbers = scheduling(5)
    target = tmp_path / "receipts"
    with pytest.raises(Exception, match=r"2 rows failed: row with name=row 1\d\d\d: there is no scheduled message.*onError=report"):
        write(numbered([*numbers, 1_000, 1_001]), operation="cancel-scheduled-message", queue=queue, receiptsPath=target, rowKey="name")
    assert list(target.rglob("*")) == []
    assert emulator.counts(queue)["scheduled"] == 0


def test_a_row_that_is_wrong_stops_the_task_before_its_batch_is_sent(
    planned: Callable[..., ManagementWriter], scheduling: Scheduling, emulator: Emulator
) -> None:
    queue, numbers = scheduling(4)
    writer = planned(queue, rowKey="name")
    message = writer.write(batches(*numbers, None, -1))
    with pytest.raises(RowsFailedError, match=r"2 rows failed: row with name=row None: sequence_number is null.*row with name=row -1: "):
        writer.commit([message])
    assert emulator.counts(queue)["scheduled"] == 4


def test_only_append(write: Write, numbered: Callable[..., DataFrame], new_entity: NewEntity) -> None:
    given = {"operation": "cancel-scheduled-message", "queue": new_entity("queue"), "rowKey": "name"}
    with pytest.raises(Exception, match=r'mode\("overwrite"\) would have to empty the entity first: use mode\("append"\)'):
        write(numbered([1]), mode="overwrite", **given)
    for mode in ("errorifexists", "ignore"):
        # Spark's own word, before we are asked.
        with pytest.raises(Exception, match='Please use either the "Append"'):
            write(numbered([1]), mode=mode, **given)
    with pytest.raises(Exception, match="partitioning"):
        write(numbered([1]), partition_by="name", **given)


def test_a_thread_of_its_own_can_write(
    spark: SparkSession, write: Write, scheduling: Scheduling, numbered: Callable[..., DataFrame], emulator: Emulator
) -> None:
    queue, numbers = scheduling(3)
    rows = numbered(numbers)

    def cancel() -> None:
        spark_sb_mgmt.register(spark)
        write(rows, operation="cancel-scheduled-message", queue=queue, rowKey="name")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(cancel).result()
    assert emulator.counts(queue)["scheduled"] == 0


def test_what_is_wrong_with_options_or_columns_is_told_before_there_is_a_task(
    write: Write, numbered: Callable[..., DataFrame], new_entity: NewEntity
) -> None:
    queue = new_entity("queue")
    with pytest.raises(Exception, match="column name is unknown to cancel-scheduled-message"):
        write(numbered([1]), operation="cancel-scheduled-message", queue=queue)
    with pytest.raises(Exception, match="option operation is peek-message, which reads"):
        write(numbered([1]), operation="peek-message", queue=queue)


def test_a_place_where_no_receipts_can_be_is_told_before_there_is_a_task(
    planned: Callable[..., ManagementWriter], new_entity: NewEntity, tmp_path: Path
) -> None:
    queue = new_entity("queue")
    (tmp_path / "file").write_text("")
    for path in ("dbfs:/receipts", "nowhere://key:secret@bucket/receipts", str(tmp_path / "file" / "receipts")):
        with pytest.raises(InvalidArgumentError, match=r"option receiptsPath is .* no directory can be made there") as caught:
            planned(queue, receiptsPath=path)
        assert "secret" not in str(caught.value)


def test_receipts_by_a_uri(planned: Callable[..., ManagementWriter], scheduling: Scheduling, tmp_path: Path) -> None:
    queue, numbers = scheduling(3)
    writer = planned(queue, receiptsPath=f"file://{tmp_path}/receipts")
    writer.commit([writer.write(batches(*numbers))])
    assert sorted(row["sequence_number"] for row in receipts(tmp_path / "receipts")) == numbers


def test_receipts_are_seen_from_the_commit_on(planned: Callable[..., ManagementWriter], scheduling: Scheduling, tmp_path: Path) -> None:
    queue, numbers = scheduling(3)
    writer = planned(queue, receiptsPath=str(tmp_path))
    message = writer.write(batches(*numbers))
    assert list(tmp_path.glob("*.parquet")) == []
    writer.commit([message])
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    assert len(receipts(tmp_path)) == 3


def test_an_abort_leaves_no_receipts_also_where_some_were_published(
    planned: Callable[..., ManagementWriter], scheduling: Scheduling, tmp_path: Path
) -> None:
    queue, numbers = scheduling(3)
    writer = planned(queue, receiptsPath=str(tmp_path))
    message = writer.write(batches(*numbers))
    assert isinstance(message, TaskMessage)
    lost = replace(message, attempt=TaskAttempt(partition=1, id="1"))
    with pytest.raises(InvalidArgumentError, match="the driver does not see what an executor wrote"):
        writer.commit([message, lost])
    writer.abort([message, lost, None])
    assert list(tmp_path.iterdir()) == []


def test_receipts_of_attempts_that_do_not_count_are_not_published(
    planned: Callable[..., ManagementWriter], scheduling: Scheduling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, numbers = scheduling(3)
    writer = planned(queue, receiptsPath=str(tmp_path))
    writer.write(batches(*numbers))
    monkeypatch.setattr(writer_module, "this_attempt", lambda job: TaskAttempt(partition=0, number=1, id="7"))
    writer.commit([writer.write(batches(*numbers))])
    # The second attempt found nothing to cancel; what became of the rows only the first knew.
    assert [row["status"] for row in receipts(tmp_path)] == ["unknown"] * 3
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_lost_attempt_may_have_done_fails_no_job(
    planned: Callable[..., ManagementWriter], scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that runs again counts its attempts anew; that there were others shows by their numbers."""
    queue, numbers = scheduling(4)
    writer = planned(queue)
    writer.write(batches(*numbers[:2]))
    messages = []
    for partition, started in ((0, 7), (1, 5)):
        attempt = TaskAttempt(partition=partition, id=str(started), started=started)
        monkeypatch.setattr(writer_module, "this_attempt", lambda job, attempt=attempt: attempt)
        messages.append(writer.write(batches(*numbers[2 * partition : 2 * partition + 2])))
    writer.commit(messages)
    # Without another attempt between them, the rows are not there by their own fault.
    following = [replace(message, attempt=replace(message.attempt, started=at)) for at, message in enumerate(messages)]
    with pytest.raises(RowsFailedError, match="2 rows failed"):
        writer.commit(following)


def test_a_batch_that_cannot_be_made_fails_the_task_and_leaves_nothing_staged(
    planned: Callable[..., ManagementWriter], scheduling: Scheduling, emulator: Emulator, tmp_path: Path
) -> None:
    queue, numbers = scheduling(3)
    writer = planned(queue, receiptsPath=str(tmp_path))

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(*numbers[:2])
        raise OSError("the input is gone")

    with pytest.raises(OSError, match="the input is gone"):
        writer.write(broken())
    writer.abort([None])
    assert list(tmp_path.iterdir()) == []
    # What was sent was waited for.
    assert emulator.counts(queue)["scheduled"] == 1


def test_memory_of_a_write_does_not_grow_with_its_rows(planned: Callable[..., ManagementWriter], new_entity: NewEntity) -> None:
    """A batch is asked for when there is room for its requests, and let go of when they are answered."""
    writer = planned(new_entity("queue"), maxBatchMessages="50", pipelineDepth="2", onError="fail")
    alive: list[Any] = []
    most = 0

    def many() -> Iterator[pa.RecordBatch]:
        nonlocal most
        import gc
        import weakref

        for start in range(0, 2_000, 100):
            batch = pa.RecordBatch.from_pydict({"sequence_number": pa.array(range(start, start + 100), pa.int64())})
            alive.append(weakref.ref(batch))
            yield batch
            del batch
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))

    message = writer.write(many())
    assert isinstance(message, TaskMessage)
    assert message.failures.count == 2_000
    assert most <= 3


def test_what_concerns_the_whole_entity_fails_the_job_and_says_what_to_do(
    write: Write, numbered: Callable[..., DataFrame], scheduling: Scheduling, emulator: Emulator
) -> None:
    with pytest.raises(Exception, match="There is no entity 'nowhere' in this namespace"):
        write(numbered([1]), operation="cancel-scheduled-message", queue="nowhere", rowKey="name")
    queue, numbers = scheduling(4)
    key = emulator.faults.add(
        Fault("fail", operation="cancel-scheduled-message", entity=queue, count=None, status=401, condition="amqp:unauthorized-access")
    )
    with pytest.raises(Exception, match="needs the right Send there"):
        write(numbered(numbers), operation="cancel-scheduled-message", queue=queue, rowKey="name")
    emulator.faults.remove(key)
    assert emulator.counts(queue)["scheduled"] == 4


def test_no_secret_is_in_what_fails(write: Write, numbered: Callable[..., DataFrame], emulator: Emulator) -> None:
    secret = emulator.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it says
        write(numbered([1]), operation="cancel-scheduled-message", queue="nowhere", rowKey="name")
    assert secret not in str(caught.value)


def test_check_mode() -> None:
    check_mode(False)
    with pytest.raises(InvalidArgumentError, match="batch-delete-messages"):
        check_mode(True)
