"""batch-delete-messages: remove messages unread, oldest first (wire-facts.md, section 2).

Best effort: locked messages are skipped, and the answer tells how many went. A purge is a loop with one fixed time until none goes.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Map, Value
from spark_sb_mgmt.errors import MESSAGE_NOT_FOUND, RemoteProtocolError
from spark_sb_mgmt.operations import arguments, names, results
from spark_sb_mgmt.operations.envelope import Request, Response

# The documents say 4000, the JavaScript SDK that the service takes no more than 500.
SAFE_MESSAGE_COUNT: Final = 500


def batch_delete_messages(message_count: int, enqueued_time_utc: datetime | int, session_id: str | None = None) -> Request[int]:
    """Delete up to `message_count` messages that were enqueued before a time; answers how many were."""
    body: list[tuple[str, Value]] = [
        (names.MESSAGE_COUNT, arguments.int32("message_count", message_count, 1)),
        (names.ENQUEUED_TIME_UTC, arguments.timestamp("enqueued_time_utc", enqueued_time_utc)),
    ]
    if session_id is not None:
        body.append((names.SESSION_ID, arguments.identifier("session_id", session_id)))
    return Request(
        names.BATCH_DELETE_MESSAGES,
        encode_value(Map(body)),
        f"batch-delete-messages of up to {message_count} messages",
        partial(_read_count, most=message_count),
        empty_condition=MESSAGE_NOT_FOUND,
    )


def _read_count(response: Response, most: int) -> int:
    body = response.body()
    if names.MESSAGE_COUNT not in body and (response.is_empty or not response.is_success):
        return 0
    count = int(results.one(body, names.MESSAGE_COUNT, "int"))
    if not 0 <= count <= most:
        raise RemoteProtocolError(f"`{names.MESSAGE_COUNT}` of the answer is {count}, outside 0 to the {most} that were asked for")
    return count
