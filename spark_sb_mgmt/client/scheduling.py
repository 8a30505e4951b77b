"""schedule-message for people: all messages are one request, and if that is too large, the error says which message alone is.

The one rule: a message is a ScheduledMessage, or what makes one, by the names of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, TypeAlias

from spark_sb_mgmt.errors import InvalidArgumentError, RequestTooLargeError
from spark_sb_mgmt.operations import arguments
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.schedule import ScheduledMessage, schedule_message

_Message: TypeAlias = ScheduledMessage | Mapping[str, Any]
ToSchedule: TypeAlias = _Message | Iterable[_Message]

_COLUMNS: Final = tuple(field.name for field in fields(ScheduledMessage))
_NEEDED: Final = tuple(field.name for field in fields(ScheduledMessage) if field.default is MISSING and field.default_factory is MISSING)


def schedule(call: Callable[[Request[list[int]]], list[int]], given: ToSchedule) -> list[int]:
    """Their sequence numbers, in their order."""
    several = [given] if isinstance(given, (ScheduledMessage, Mapping)) else arguments.several("messages", given)
    messages = [_message(message, row) for row, message in enumerate(several)]
    request = schedule_message(messages)
    try:
        return call(request)
    except RequestTooLargeError as problem:
        raise _with_row(problem, len(request.body), messages) from None


def _message(given: Any, row: int) -> ScheduledMessage:
    if not isinstance(given, Mapping):
        # What is none either is told by those who encode it.
        return given  # type: ignore[no-any-return]
    unknown = [str(name) for name in given if name not in _COLUMNS]
    if unknown:
        raise InvalidArgumentError("messages", f"has {unknown[0]!r:.60}, and a message has {', '.join(_COLUMNS)}", row=row)
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        raise InvalidArgumentError("messages", f"has no {missing[0]}", row=row)
    # As in a row, None is what is not there.
    return ScheduledMessage(**{name: value for name, value in given.items() if value is not None or name in _NEEDED})


def _with_row(error: RequestTooLargeError, body_size: int, messages: list[ScheduledMessage]) -> RequestTooLargeError:
    envelope = error.size - body_size
    for row, message in enumerate(messages):
        size = envelope + len(schedule_message([message]).body)
        if size > error.limit:
            return RequestTooLargeError(size, error.limit, row=row, operation=error.operation, entity=error.entity)
    return error
