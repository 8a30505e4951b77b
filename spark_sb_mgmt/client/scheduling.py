"""schedule-message for people: all messages are one request, and if that is too large, the error says which message alone is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_sb_mgmt.errors import RequestTooLargeError
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.schedule import ScheduledMessage, schedule_message


def schedule(call: Callable[[Request[list[int]]], list[int]], messages: Iterable[ScheduledMessage] | ScheduledMessage) -> list[int]:
    """Their sequence numbers, in their order."""
    messages = [messages] if isinstance(messages, ScheduledMessage) else list(messages)
    request = schedule_message(messages)
    try:
        return call(request)
    except RequestTooLargeError as problem:
        raise _with_row(problem, len(request.body), messages) from None


def _with_row(error: RequestTooLargeError, body_size: int, messages: list[ScheduledMessage]) -> RequestTooLargeError:
    envelope = error.size - body_size
    for row, message in enumerate(messages):
        size = envelope + len(schedule_message([message]).body)
        if size > error.limit:
            return RequestTooLargeError(size, error.limit, row=row, operation=error.operation, entity=error.entity)
    return error
