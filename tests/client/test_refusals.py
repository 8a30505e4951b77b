"""Every refusal of wire-facts.md section 1.4, for every operation: which error it is, and whether it is tried again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import pytest

from spark_sb_mgmt import errors
from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import OutcomeUnknownError, SbMgmtError
from spark_sb_mgmt.model import Rule, TrueFilter
from tests.client.conftest import SOON

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")
QUEUE, SESSIONS, SUBSCRIPTION = "orders", "sessions", "events/Subscriptions/audit"

# Every operation: its entity, and a call that an emulator would not refuse by itself.
OPERATIONS: dict[str, tuple[str, Callable[[EntityClient], Any]]] = {
    "peek-message": (QUEUE, lambda entity: entity.peek_message()),
    "receive-by-sequence-number": (QUEUE, lambda entity: entity.receive_by_sequence_number([1])),
    "update-disposition": (QUEUE, lambda entity: entity.update_disposition("completed", [TOKEN])),
    "renew-lock": (QUEUE, lambda entity: entity.renew_lock([TOKEN])),
    "schedule-message": (QUEUE, lambda entity: entity.schedule_message(ScheduledMessage(b"x", LATER, "m"))),
    "cancel-scheduled-message": (QUEUE, lambda entity: entity.cancel_scheduled_message([1])),
    "batch-delete-messages": (QUEUE, lambda entity: entity.batch_delete_messages()),
    "renew-session-lock": (SESSIONS, lambda entity: entity.renew_session_lock("s")),
    "get-session-state": (SESSIONS, lambda entity: entity.get_session_state("s")),
    "set-session-state": (SESSIONS, lambda entity: entity.set_session_state("s", b"x")),
    "get-message-sessions": (SESSIONS, lambda entity: entity.get_message_sessions()),
    "add-rule": (SUBSCRIPTION, lambda entity: entity.add_rule(Rule("r", TrueFilter()))),
    "remove-rule": (SUBSCRIPTION, lambda entity: entity.remove_rule("r")),
    "enumerate-rules": (SUBSCRIPTION, lambda entity: entity.enumerate_rules()),
}
# What is sent again without changing anything more.
SAFE = {"peek-message", "renew-lock", "renew-session-lock", "get-session-state", "get-message-sessions", "enumerate-rules"}
# No error, but the answer that nothing is there.
NOTHING: dict[tuple[str, str], Any] = {
    ("peek-message", "com.microsoft:message-not-found"): [],
    ("batch-delete-messages", "com.microsoft:message-not-found"): 0,
}
# The service says no more than that it failed, or that the link did: perhaps half-way.
UNCERTAIN = {"com.microsoft:timeout", "amqp:internal-error", "amqp:link:stolen"}
# Status, condition, error, whether it passes by itself.
CONDITIONS = [
    (400, "amqp:not-allowed", errors.ArgumentError, False),
    (400, "com.microsoft:argument-error", errors.ArgumentError, False),
    (400, "com.microsoft:argument-out-of-range", errors.ArgumentError, False),
    (400, "com.microsoft:entity-disabled", errors.EntityDisabledError, False),
    (401, "amqp:unauthorized-access", errors.AuthenticationError, False),
    (401, "com.microsoft:auth-failed", errors.AuthenticationError, False),
    (401, "com.microsoft:publisher-revoked", errors.AuthenticationError, False),
    (403, "amqp:resource-limit-exceeded", errors.QuotaExceededError, False),
    (403, "amqp:link:message-size-exceeded", errors.MessageSizeExceededError, False),
    (404, "amqp:not-found", errors.EntityNotFoundError, False),
    (404, "com.microsoft:message-not-found", errors.MessageNotFoundError, False),
    (408, "com.microsoft:timeout", errors.OperationTimeoutError, True),
    (409, "com.microsoft:entity-already-exists", errors.EntityAlreadyExistsError, False),
    (410, "com.microsoft:message-lock-lost", errors.MessageLockLostError, False),
    (410, "com.microsoft:session-lock-lost", errors.SessionLockLostError, False),
    (410, "com.microsoft:session-cannot-be-locked", errors.SessionCannotBeLockedError, False),
    (410, "com.microsoft:store-lock-lost", errors.ServiceBusError, False),
    (410, "com.microsoft:partition-not-owned", errors.ServiceBusError, False),
    (410, "amqp:link:stolen", errors.ServiceBusError, False),
    (500, "com.microsoft:no-matching-subscription", errors.ServiceBusError, False),
    (500, "amqp:internal-error", errors.ServiceBusError, True),
    (501, "amqp:not-implemented", errors.NotSupportedError, False),
    (503, "com.microsoft:server-busy", errors.ServerBusyError, True),
]
TRANSIENT = [condition for _, condition, _, transient in CONDITIONS if transient]


def outcome(entity: EntityClient, use: Callable[[EntityClient], Any]) -> Any:
    """What a call gives, or the error that it raises, as Spark would carry it to the driver."""
    try:
        found = use(entity)
    except SbMgmtError as error:
        found = pickle.loads(pickle.dumps(error))
        found.__cause__ = error.__cause__
        return found
    return list(found) if hasattr(found, "__len__") else found


def told(found: Any) -> Any:
    """Of an error, all that a caller may go by."""
    if isinstance(found, OutcomeUnknownError):
        return OutcomeUnknownError, found.retryable, told(found.__cause__)
    if isinstance(found, SbMgmtError):
        return type(found), found.status, found.condition, found.retryable, found.operation, found.entity
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_refusal_of_every_operation_is_its_error(operation: str, emulator: Emulator) -> None:
    path, use = OPERATIONS[operation]
    found, expected = {}, {}
    with ManagementClient.from_connection_string(emulator.connection_string, max_retries=0) as client, client.entity(path) as entity:
        for status, condition, kind, transient in CONDITIONS:
            emulator.faults.add(Fault("fail", operation=operation, status=status, condition=condition))
            found[condition] = told(outcome(entity, use))
            error: Any = kind, status, condition, transient, operation, path
            if condition in UNCERTAIN and operation not in SAFE:
                error = OutcomeUnknownError, False, error
            expected[condition] = NOTHING.get((operation, condition), error)
    assert found == expected
    # Each was sent once.
    assert emulator.requests[operation] == len(CONDITIONS)


@pytest.mark.parametrize("condition", TRANSIENT)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_passes_by_itself_is_tried_again_unless_it_may_have_been_done(operation: str, condition: str, emulator: Emulator) -> None:
    path, use = OPERATIONS[operation]
    status = next(row[0] for row in CONDITIONS if row[1] == condition)
    emulator.faults.add(Fault("fail", operation=operation, status=status, condition=condition, count=3))
    with ManagementClient.from_connection_string(emulator.connection_string, retry=SOON) as client, client.entity(path) as entity:
        found = outcome(entity, use)
    if condition in UNCERTAIN and operation not in SAFE:
        assert isinstance(found, OutcomeUnknownError)
        assert emulator.requests[operation] == 1
    else:
        # Then it is done, or what the emulator itself has against it is said.
        assert getattr(found, "condition", None) != condition
        assert emulator.requests[operation] >= 4
