"""Errors of the service in the words of the options: what to set instead.

The one rule: the error stays what it is, with all that the service said; a sentence about the options is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_sb_mgmt.errors import (
    ArgumentError,
    AuthenticationError,
    DeadlineExceededError,
    EntityNotFoundError,
    OperationTimeoutError,
    SbMgmtError,
    ServerBusyError,
)
from spark_sb_mgmt.spark.options.table import CANCEL, EVERY_OPERATION, SCHEDULE, SESSIONS


@contextmanager
def explained(operation: str, entity: str, session_id: str | None = None) -> Iterator[None]:
    """Whatever is raised inside, about this operation on this entity."""
    try:
        yield
    except SbMgmtError as error:
        hint = _hint(error, operation, entity, session_id)
        if hint:
            error.args = (f"{str(error.args[0]).rstrip('.')}. {hint}", *error.args[1:])
        raise error.about(operation, entity) from error.__cause__


def _hint(error: SbMgmtError, operation: str, entity: str, session_id: str | None) -> str:
    if isinstance(error, EntityNotFoundError):
        return (
            f"There is no entity {entity!r} in this namespace: check the name. A queue is named by option queue, a topic's subscription by "
            "topic and subscription together (as an address <topic>/Subscriptions/<subscription>), a dead-letter queue by subQueue"
        )
    # What was refused here, such as a signature that has ended, says itself what to do.
    if isinstance(error, AuthenticationError) and (error.status is not None or error.condition is not None):
        # Rules over AMQP need no right to manage.
        # A write looks at what it did, too.
        asked = error.operation if error.operation in EVERY_OPERATION else operation
        right = "Send" if asked in (SCHEDULE, CANCEL) else "Listen"
        return f"{asked} on {entity!r} needs the right {right} there: check the key's name and value, and the rights of its policy"
    if isinstance(error, ServerBusyError):
        return (
            "It was asked again as often as option maxRetries says: raise that, or ask for less at once, by pipelineDepth and fewer tasks"
        )
    if isinstance(error, OperationTimeoutError) or (isinstance(error, DeadlineExceededError) and error.deadline == "request"):
        return "Raise option serverTimeoutMs, which is how long a request may take, or maxRetries"
    if isinstance(error, ArgumentError) and session_id is not None:
        return f"If {entity!r} has no sessions, leave option sessionId out: it is for queues and subscriptions that require sessions"
    if isinstance(error, ArgumentError) and operation == SESSIONS:
        return f"Only queues and subscriptions that require sessions have any: check that {entity!r} does"
    return ""
