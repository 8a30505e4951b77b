"""set-session-state: what the official SDK finds in the sessions afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql import SparkSession

from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from tests.spark.conftest import NewEntity, Write
from tests.spark.task_harness import rows_of, written

OPERATION = "set-session-state"


def states(emulator: Emulator, queue: str, *sessions: str) -> list[bytes | None]:
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        return [entity.get_session_state(session) for session in sessions]


def test_states_are_set_and_null_clears(spark: SparkSession, write: Write, new_entity: NewEntity, sdk: ServiceBusClient) -> None:
    queue = new_entity("sessions")
    columns = "session_id string, session_state binary"
    write(spark.createDataFrame([("a", b"\x00one"), ("b", b"two"), ("c", b"")], columns), operation=OPERATION, queue=queue)
    write(spark.createDataFrame([("b", None)], columns), operation=OPERATION, queue=queue)
    found = {}
    for session in ("a", "b"):
        with sdk.get_queue_receiver(queue, session_id=session) as receiver:  # type: ignore[arg-type]
            found[session] = receiver.session.get_state()
    assert found == {"a": b"\x00one", "b": None}


def test_a_session_that_is_there_twice_is_a_mistake(new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("sessions")
    rows = rows_of(OPERATION, session_id=["a", "b", "a"], session_state=[b"1", b"2", b"3"])
    receipts = written(emulator, queue, rows, OPERATION)
    assert [row["status"] for row in receipts] == ["failed", "ok", "ok"]
    assert "session_id 'a' stands in an earlier row too: which state is to stay cannot be told" in receipts[0]["status_description"]
    assert states(emulator, queue, "a", "b") == [b"1", b"2"]


@pytest.mark.parametrize("action", ["drop-connection", "drop-link", "corrupt", "lose-reply"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_is_looked_into_and_a_state_that_was_set_is_not_set_again(
    new_entity: NewEntity, emulator: Emulator, action: Any, when: Any
) -> None:
    queue = new_entity("sessions")
    key = emulator.faults.add(Fault(action, OPERATION, queue, when=when))
    before = emulator.requests.get(OPERATION, 0)
    rows = rows_of(OPERATION, session_id=["a"], session_state=[b"1"])
    client = {"server_timeout_ms": 200, "request_margin_s": 0.2} if action == "lose-reply" else None
    [receipt] = written(emulator, queue, rows, OPERATION, client=client)
    assert receipt["status"] == "ok"
    assert emulator.faults.hits(key) == 1
    assert states(emulator, queue, "a") == [b"1"]
    not_done = when == "before" and action.startswith("drop")
    assert emulator.requests[OPERATION] - before == (2 if not_done else 1)


def test_an_answer_that_is_lost_again_and_again_is_unknown(new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("sessions")
    key = emulator.faults.add(Fault("drop-connection", OPERATION, queue, count=None, when="before"))
    [receipt] = written(emulator, queue, rows_of(OPERATION, session_id=["a"], session_state=[b"1"]), OPERATION)
    emulator.faults.remove(key)
    assert receipt["status"] == "unknown"
    assert "it is not known whether it took effect" in receipt["status_description"]


def test_without_sessions_the_service_says_so(new_entity: NewEntity, emulator: Emulator) -> None:
    [receipt] = written(emulator, new_entity("queue"), rows_of(OPERATION, session_id=["a"], session_state=[b"1"]), OPERATION)
    assert (receipt["status"], receipt["status_code"]) == ("failed", 400)
    assert "has no sessions" in receipt["status_description"]
