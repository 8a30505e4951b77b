"""peek-message: look at messages without locking them (wire-facts.md, sections 1.1, 1.4 and 2)."""

from __future__ import annotations

from functools import partial

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Map, Value
from spark_sb_mgmt.errors import MESSAGE_NOT_FOUND
from spark_sb_mgmt.operations import arguments, names
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.message import Messages, read_messages


def peek_message(
    from_sequence_number: int = 0,
    message_count: int = 250,
    session_id: str | None = None,
    omit_message_body: bool | None = None,
) -> Request[Messages]:
    """The next messages from a sequence number on, at most `message_count`: the service may answer with fewer and mean nothing by it.
    None left is said with 204, or by some with 404 and message-not-found. `omit_message_body` is experimental: what the service does
    with it is not documented."""
    body: list[tuple[str, Value]] = [
        (names.FROM_SEQUENCE_NUMBER, arguments.int64("from_sequence_number", from_sequence_number)),
        (names.MESSAGE_COUNT, arguments.int32("message_count", message_count, 1)),
    ]
    if session_id is not None:
        body.append((names.SESSION_ID, arguments.identifier("session_id", session_id)))
    if omit_message_body is not None:
        body.append((names.OMIT_MESSAGE_BODY, arguments.boolean("omit_message_body", omit_message_body)))
    return Request(
        names.PEEK_MESSAGE,
        encode_value(Map(body)),
        f"peek-message of up to {message_count} messages from sequence number {from_sequence_number}",
        partial(read_messages, operation=names.PEEK_MESSAGE, most=message_count),
        safe=True,
        empty_condition=MESSAGE_NOT_FOUND,
    )
