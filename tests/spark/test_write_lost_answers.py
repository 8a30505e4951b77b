"""A connection takes the answers to all that was in flight on it along: what became of each request is looked for, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from tests.spark.conftest import Deferring, NewEntity, Scheduling
from tests.spark.task_harness import rows_of, written

# More requests of one row each than are in flight by default, which are more than a lost answer is looked for.
ROWS = 20
SCHEDULE, CANCEL, SETTLE, PURGE = "schedule-message", "cancel-scheduled-message", "update-disposition", "batch-delete-messages"
STATE, ADD, REMOVE = "set-session-state", "add-rule", "remove-rule"
Prepared = tuple[str, pa.RecordBatch, dict[str, str]]

both_times = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def prepare(new_entity: NewEntity, scheduling: Scheduling, deferring: Deferring, sdk: ServiceBusClient) -> Callable[[str], Prepared]:
    """An entity with what an operation needs, rows for it, and its options."""
    names = [f"name-{at}" for at in range(ROWS)]

    def of(operation: str) -> Prepared:
        if operation == SCHEDULE:
            rows = rows_of(SCHEDULE, message_id=names)
            return new_entity("queue"), rows, {"scheduledEnqueueTime": "2101-01-01", "maxBatchMessages": "1"}
        if operation == CANCEL:
            queue, numbers = scheduling(ROWS)
            return queue, rows_of(CANCEL, sequence_number=numbers), {"maxBatchMessages": "1"}
        if operation == SETTLE:
            queue, numbers = deferring(ROWS, kind="brief-locks")
            return queue, rows_of(SETTLE, sequence_number=numbers), {"dispositionStatus": "completed", "maxBatchMessages": "1"}
        if operation == PURGE:
            queue = new_entity("queue")
            with sdk.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage("x") for _ in range(ROWS)])
            return queue, rows_of(PURGE, id=[1]), {"maxBatchMessages": "1", "enqueuedBefore": "2099-01-01"}
        if operation == STATE:
            return new_entity("sessions"), rows_of(STATE, session_id=names, session_state=[b"x"] * ROWS), {}
        return f"{new_entity('topic')}/Subscriptions/one", rows_of(operation, rule_name=names), {}

    return of


def is_done(operation: str, entity: EntityClient, rows: pa.RecordBatch) -> bool:
    if operation == SCHEDULE:
        found = [str(message.message_id) for page in entity.peek_range() for message in page]
        return sorted(found) == sorted(rows.column("message_id").to_pylist())
    if operation in (ADD, REMOVE):
        return len(entity.enumerate_rules()) == (1 + ROWS if operation == ADD else 1)
    if operation == STATE:
        return {entity.get_session_state(session) for session in rows.column("session_id").to_pylist()} == {b"x"}
    return [message for page in entity.peek_range() for message in page] == []


@both_times
@pytest.mark.parametrize("operation", [SCHEDULE, CANCEL, SETTLE, STATE, ADD, REMOVE, PURGE])
def test_every_row_is_done_once(emulator: Emulator, prepare: Callable[[str], Prepared], operation: str, when: Any) -> None:
    path, rows, options = prepare(operation)
    if operation == REMOVE:
        written(emulator, path, rows, ADD)
    key = emulator.faults.add(Fault("drop-connection", operation, path, skip=1, when=when))
    receipts = written(emulator, path, rows, operation, **options)
    assert emulator.faults.hits(key) == 1
    assert [row["status"] for row in receipts] == ["ok"] * rows.num_rows
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(path) as entity:
        assert is_done(operation, entity, rows)


def test_a_service_that_never_answers_is_given_up(emulator: Emulator, prepare: Callable[[str], Prepared]) -> None:
    path, rows, _ = prepare(STATE)
    key = emulator.faults.add(Fault("drop-connection", STATE, path, count=None))
    [receipt] = written(emulator, path, rows.slice(0, 1), STATE)
    emulator.faults.remove(key)
    assert receipt["status"] == "unknown"
