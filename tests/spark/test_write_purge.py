"""batch-delete-messages: what is left, as the official SDK sees it, and how many went."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from pyspark.sql import SparkSession

from spark_sb_mgmt.emulator import Emulator, Fault
from tests.spark.conftest import Deferring, NewEntity, Scheduling, Write
from tests.spark.task_harness import rows_of, running, written

PURGE = "batch-delete-messages"
Sending = Callable[..., str]


@pytest.fixture
def sending(sdk: ServiceBusClient, new_entity: NewEntity) -> Sending:
    """A queue with so many messages, dealt to sessions if there are any."""

    def make(count: int, kind: str = "queue", sessions: int = 0) -> str:
        queue = new_entity(kind)
        with sdk.get_queue_sender(queue) as sender:
            messages = [ServiceBusMessage("x", session_id=f"s{at % sessions}" if sessions else None) for at in range(count)]
            for start in range(0, count, 1000):
                sender.send_messages(messages[start : start + 1000])
        return queue

    return make


def deleted(receipts: list[dict[str, Any]]) -> int:
    """As the receipts say."""
    texts = [re.match(r"deleted (?:at least )?(\d+) messages", row["status_description"] or "") for row in receipts]
    return sum(int(text[1]) for text in texts if text)


def test_a_whole_queue_and_its_dead_letters(
    spark: SparkSession, write: Write, sending: Sending, sdk: ServiceBusClient, tmp_path: Path
) -> None:
    queue = sending(2_300)
    with sdk.get_queue_receiver(queue) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        receiver.dead_letter_message(message)
    write(spark.range(1), operation=PURGE, queue=queue, receiptsPath=tmp_path, rowKey="id")
    [receipt] = spark.read.parquet(str(tmp_path)).collect()
    assert (receipt.row_key, receipt.status) == (0, "ok")
    assert receipt.status_description.startswith("deleted 2299 messages that were enqueued before 20")
    with sdk.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages(9) == []
    write(spark.range(1), operation=PURGE, queue=queue, subQueue="deadLetter")
    with sdk.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert receiver.peek_messages(9) == []


def test_sessions_that_rows_name_and_no_others(
    spark: SparkSession, write: Write, sending: Sending, emulator: Emulator, tmp_path: Path
) -> None:
    queue = sending(60, "sessions", sessions=6)
    df = spark.createDataFrame([("s0",), ("s1",), ("s2",), ("s2",), ("nobody",)], "session_id string").repartition(2)
    write(df, operation=PURGE, queue=queue, receiptsPath=tmp_path, maxBatchMessages=4)
    assert emulator.counts(queue)["active"] == 30
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path)).collect()]
    assert ({row["status"] for row in rows}, len(rows), deleted(rows)) == ({"ok"}, 5, 30)


def test_tasks_share_the_work_on_a_whole_entity_and_count_what_they_did(
    spark: SparkSession, write: Write, sending: Sending, emulator: Emulator, tmp_path: Path
) -> None:
    queue = sending(500)
    write(spark.range(0, 8, 1, 4), operation=PURGE, queue=queue, receiptsPath=tmp_path, rowKey="id", maxBatchMessages=20)
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path)).collect()]
    assert (len(rows), deleted(rows), emulator.counts(queue)["active"]) == (8, 500, 0)


def test_a_row_without_columns_is_an_order_too(
    spark: SparkSession, write: Write, sending: Sending, emulator: Emulator, tmp_path: Path
) -> None:
    queue = sending(5)
    write(spark.range(1).select(), operation=PURGE, queue=queue, receiptsPath=tmp_path)
    [receipt] = spark.read.parquet(str(tmp_path)).collect()
    assert receipt.status_description.startswith("deleted 5 messages")
    assert emulator.counts(queue)["active"] == 0


def test_without_rows_nothing_is_deleted(spark: SparkSession, write: Write, sending: Sending, emulator: Emulator) -> None:
    queue = sending(5)
    write(spark.range(10).where("id < 0"), operation=PURGE, queue=queue)
    assert emulator.counts(queue)["active"] == 5


def test_what_came_after_the_cut_off_stays(spark: SparkSession, write: Write, sending: Sending, emulator: Emulator) -> None:
    queue = sending(5)
    write(spark.range(1), operation=PURGE, queue=queue, enqueuedBefore="2020-01-01T00:00:00Z")
    assert emulator.counts(queue)["active"] == 5


def test_locked_messages_stay_and_are_told(sending: Sending, sdk: ServiceBusClient, emulator: Emulator) -> None:
    queue = sending(10)
    with sdk.get_queue_receiver(queue) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        [receipt] = written(emulator, queue, rows_of(PURGE, id=[1]), PURGE, rowKey="id")
    said = rf"deleted 9 messages .*; 1 older ones .* are left, because they are locked, from sequence number {message.sequence_number} on"
    assert re.search(said, receipt["status_description"])


def test_scheduled_messages_stay(scheduling: Scheduling, emulator: Emulator) -> None:
    queue, _ = scheduling(3)
    [receipt] = written(emulator, queue, rows_of(PURGE, id=[1]), PURGE)
    assert "deleted 0 messages" in receipt["status_description"]
    assert "older ones" not in receipt["status_description"]
    assert emulator.counts(queue)["scheduled"] == 3


@pytest.mark.parametrize("sessions", [0, 2])
def test_the_limit_of_one_request_is_learned(sending: Sending, emulator: Emulator, sessions: int) -> None:
    """This one takes 4000 at most; the JavaScript SDK says 500."""
    queue = sending(40, "sessions" if sessions else "queue", sessions)
    rows = rows_of(PURGE, **({"session_id": ["s0", "s1"]} if sessions else {"id": [1]}))
    receipts = written(emulator, queue, rows, PURGE, maxBatchMessages="4500")
    assert deleted(receipts) == 40
    refusing = sending(40)
    emulator.faults.add(Fault("fail", PURGE, refusing, count=5, status=400, condition="com.microsoft:argument-out-of-range"))
    assert deleted(written(emulator, refusing, rows_of(PURGE, id=[1]), PURGE)) == 40


@pytest.mark.parametrize("action", ["drop-connection", "drop-link", "lose-reply", "corrupt", "throttle"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sessions", [0, 2])
def test_a_lost_answer_costs_the_count_alone(sending: Sending, emulator: Emulator, action: Any, when: Any, sessions: int) -> None:
    queue = sending(40, "sessions" if sessions else "queue", sessions)
    rows = rows_of(PURGE, **({"session_id": ["s0", "s1"]} if sessions else {"id": [1]}))
    key = emulator.faults.add(Fault(action, PURGE, queue, when=when, seconds=0.01))
    client = {"server_timeout_ms": 200, "request_margin_s": 0.2} if action == "lose-reply" else None
    receipts = written(emulator, queue, rows, PURGE, client=client, maxBatchMessages="5")
    assert emulator.faults.hits(key) == 1
    assert {row["status"] for row in receipts} == {"ok"}
    assert emulator.counts(queue)["active"] == 0
    # Requests in flight on one connection are lost with it, whose count nobody knows.
    if deleted(receipts) < 40:
        assert any("at least" in row["status_description"] for row in receipts)


def test_a_partitioned_entity_is_refused_with_its_reason(sending: Sending, emulator: Emulator) -> None:
    queue = sending(5, "partitioned")
    [receipt] = written(emulator, queue, rows_of(PURGE, id=[1]), PURGE)
    assert (receipt["status"], receipt["status_code"]) == ("failed", 400)
    assert f"'{queue}' is partitioned, and the service deletes no batches there" in receipt["status_description"]


def test_sessions_of_an_entity_that_has_none_delete_nothing(sending: Sending, emulator: Emulator) -> None:
    queue = sending(5)
    [receipt] = written(emulator, queue, rows_of(PURGE, session_id=["a"]), PURGE)
    assert "has no sessions: leave column session_id out" in receipt["status_description"]
    assert emulator.counts(queue)["active"] == 5


def test_a_repeated_attempt_says_that_its_count_may_be_short(sending: Sending, emulator: Emulator) -> None:
    rows = rows_of(PURGE, id=[1])
    with running(emulator, sending(3), rows.schema, attempt=1, operation=PURGE) as task:
        [receipt] = task.run([rows])
    assert "deleted 3 messages" in receipt["status_description"]
    assert "another attempt of this task may have deleted more" in receipt["status_description"]


def test_deferred_messages_go_too(deferring: Deferring, emulator: Emulator) -> None:
    queue, _ = deferring(4)
    assert deleted(written(emulator, queue, rows_of(PURGE, id=[1]), PURGE)) == 4
    assert emulator.counts(queue)["deferred"] == 0
