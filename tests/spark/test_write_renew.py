"""renew-lock and renew-session-lock: locks that go on, with their new ends in the receipts."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import SparkSession

from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from tests.spark.conftest import Deferring, NewEntity, Write
from tests.spark.task_harness import rows_of, running, written


def test_each_receipt_has_the_new_end_of_its_lock(
    spark: SparkSession, write: Write, deferring: Deferring, emulator: Emulator, tmp_path: Path
) -> None:
    queue, numbers = deferring(12)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        locked = entity.receive_by_sequence_number(numbers)
        before = {str(message.lock_token): message.locked_until for message in locked}
    df = spark.createDataFrame([(token,) for token in before], "lock_token string").repartition(2)
    write(df, operation="renew-lock", queue=queue, maxBatchMessages=5, receiptsPath=tmp_path)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        receipts = {row.lock_token: row.expiration for row in spark.read.parquet(str(tmp_path)).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert receipts.keys() == before.keys()
    for token, until in before.items():
        assert until is not None
        assert receipts[token].astimezone(timezone.utc) > until


def test_a_lock_that_is_lost_is_one_row_and_the_others_are_renewed(deferring: Deferring, emulator: Emulator) -> None:
    queue, numbers = deferring(20)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        tokens = [message.lock_token or "" for message in entity.receive_by_sequence_number(numbers)]
        entity.update_disposition("completed", [tokens[7]])
    rows = rows_of("renew-lock", lock_token=[*tokens, tokens[0]], key=list(range(21)))
    receipts = written(emulator, queue, rows, "renew-lock", rowKey="key")
    found = {row["row_key"]: row for row in receipts}
    assert {key for key, row in found.items() if row["status"] != "ok"} == {7}
    assert (found[7]["error_condition"], found[7]["expiration"]) == ("com.microsoft:message-lock-lost", None)
    assert all(isinstance(row["expiration"], datetime) for key, row in found.items() if key != 7)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_lost_is_no_matter(deferring: Deferring, emulator: Emulator, when: Any) -> None:
    queue, numbers = deferring(4)
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        tokens = [message.lock_token or "" for message in entity.receive_by_sequence_number(numbers)]
        key = emulator.faults.add(Fault("drop-connection", "renew-lock", queue, when=when))
        receipts = written(emulator, queue, rows_of("renew-lock", lock_token=tokens), "renew-lock")
    assert [row["status"] for row in receipts] == ["ok"] * 4
    assert emulator.faults.hits(key) == 1


def test_sessions_that_are_held_are_renewed_and_one_that_nobody_holds_is_said_to_be_so(
    spark: SparkSession, write: Write, new_entity: NewEntity, sdk: ServiceBusClient, emulator: Emulator, tmp_path: Path
) -> None:
    queue = new_entity("sessions")
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("x", session_id=session) for session in ("a", "b")])
    df = spark.createDataFrame([("a",), ("b",)], "session_id string").repartition(2)
    with sdk.get_queue_receiver(queue, session_id="a") as receiver:  # type: ignore[arg-type]
        before = receiver.session.locked_until_utc
        with pytest.raises(Exception, match=r"1 row failed: row with session_id=b: nobody has this session locked"):
            write(df, operation="renew-session-lock", queue=queue)
        receipts = written(emulator, queue, rows_of("renew-session-lock", session_id=["a", "b"]), "renew-session-lock")
    held, free = receipts
    assert (held["status"], free["status"]) == ("ok", "failed")
    assert before is not None
    assert held["expiration"] >= before
    assert free["error_condition"] == "com.microsoft:session-lock-lost"
    assert free["status_description"].startswith("nobody has this session locked: ")


def test_an_entity_without_sessions_says_so(new_entity: NewEntity, emulator: Emulator) -> None:
    rows = rows_of("renew-session-lock", session_id=["a"])
    with running(emulator, new_entity("queue"), rows.schema, operation="renew-session-lock") as task:
        [receipt] = task.run([rows])
    assert "has no sessions" in receipt["status_description"]
