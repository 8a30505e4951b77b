"""Operations on messages that stand in an entity: peek, receive by number, settle, renew, delete (wire-facts.md sections 1.1, 1.2 and 2).

The one rule: a page of messages is joined from stored bytes; nothing of a message is decoded to answer with it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.encode import encode_binary, encode_list, encode_map, encode_value
from spark_sb_mgmt.amqp.types import Array, Int, Long
from spark_sb_mgmt.emulator.entities import Disposition, DispositionStatus, StoredMessage, encode_peeked, faults
from spark_sb_mgmt.emulator.management.call import DONE, Answer, Call, nothing
from spark_sb_mgmt.errors import MESSAGE_NOT_FOUND
from spark_sb_mgmt.operations import names

_MESSAGES, _MESSAGE, _LOCK_TOKEN, _EXPIRATIONS, _MESSAGE_COUNT = (
    encode_value(key) for key in (names.MESSAGES, names.MESSAGE, names.LOCK_TOKEN, names.EXPIRATIONS, names.MESSAGE_COUNT)
)
_LIST_HEAD: Final = Struct(">BII").pack
# What an answer has besides its messages, with room to spare.
_ENVELOPE: Final = 1024
# `released` is an outcome on a link only.
_STATUSES: Final = {status: DispositionStatus(status) for status in (names.COMPLETED, names.ABANDONED, names.SUSPENDED, names.DEFERED)}


def peek_message(call: Call) -> Answer:
    body = call.body
    count = body.integer(names.MESSAGE_COUNT, "int")
    if call.page_limit is not None:
        count = min(count, call.page_limit)
    omit = bool(body.optional(names.OMIT_MESSAGE_BODY, "boolean"))
    room = call.max_bytes - _ENVELOPE
    page = call.entity.peek(
        body.integer(names.FROM_SEQUENCE_NUMBER, "long"),
        count,
        session_id=body.optional_identifier(names.SESSION_ID),
        max_bytes=room,
    )
    if not page:
        return nothing("There are no more messages.", MESSAGE_NOT_FOUND)
    if omit:
        return Answer((_MESSAGES, encode_peeked(_fitting(page, room), omit_message_body=True)))
    parts = _entries(page)
    size = sum(map(len, parts))
    if size > room:
        page = _fitting(page, room)
        parts = _entries(page)
        size = sum(map(len, parts))
    # A list of entries, each already a map where it is stored; see `StoredMessage.entry_head`.
    return Answer((_MESSAGES, _LIST_HEAD(c.LIST_32, 4 + size, len(page)), *parts), items=2)


def _entries(page: list[StoredMessage]) -> list[bytes]:
    parts: list[bytes] = []
    for message in page:
        parts += (message.entry_head, message.bare)
    return parts


def _fitting(page: list[StoredMessage], room: int) -> list[StoredMessage]:
    """As many of the page as there is room for with all that is around them; one at least. The entity counted messages, not entries."""
    for index, message in enumerate(page):
        room -= len(message.entry_head) + len(message.bare)
        if room < 0:
            return page[: max(1, index)]
    return page


def receive_by_sequence_number(call: Call) -> Answer:
    body = call.body
    # The documents say ubyte, every client sends uint.
    mode = body.integer(names.RECEIVER_SETTLE_MODE, "uint", "ubyte")
    if mode not in (names.RECEIVE_AND_DELETE, names.PEEK_LOCK):
        raise faults.argument_out_of_range(
            f"`{names.RECEIVER_SETTLE_MODE}` must be {names.RECEIVE_AND_DELETE} (receive and delete) or {names.PEEK_LOCK} (peek-lock), "
            f"not {mode}."
        )
    messages = call.queue.receive_by_sequence_number(
        call.holder,
        body.sequence_numbers(),
        delete=mode == names.RECEIVE_AND_DELETE,
        session_id=body.optional_identifier(names.SESSION_ID),
    )
    return Answer((_MESSAGES, encode_list([_received(message) for message in messages])))


def _received(message: StoredMessage) -> bytes:
    # The token stands in the message too, as in one that came over a link: older versions of azure-servicebus find it only there.
    pairs = [_MESSAGE, encode_binary(message.delivered())]
    if message.lock_token is not None:
        pairs += (_LOCK_TOKEN, encode_value(message.lock_token))
    return encode_map(pairs)


def update_disposition(call: Call) -> Answer:
    body = call.body
    given = body.text(names.DISPOSITION_STATUS)
    status = _STATUSES.get(given)
    if status is None:
        raise faults.argument_error(f"`{names.DISPOSITION_STATUS}` must be one of {', '.join(_STATUSES)}, not {given!r:.80}.")
    # Lock tokens alone say which messages are meant; the session is checked for what it is and not needed.
    body.optional_identifier(names.SESSION_ID)
    disposition = Disposition(
        status,
        body.optional_text(names.DEADLETTER_REASON),
        body.optional_text(names.DEADLETTER_DESCRIPTION),
        body.properties(names.PROPERTIES_TO_MODIFY),
    )
    tokens = body.lock_tokens()
    if call.work is not None:
        call.work.settle(call.queue, tokens, disposition)
    else:
        call.queue.settle(tokens, disposition)
    return DONE


def renew_lock(call: Call) -> Answer:
    return Answer((_EXPIRATIONS, encode_value(Array("timestamp", call.queue.renew_locks(call.body.lock_tokens())))))


def batch_delete_messages(call: Call) -> Answer:
    body = call.body
    before = body.optional(names.ENQUEUED_TIME_UTC, "timestamp")
    deleted = call.queue.batch_delete(
        body.integer(names.MESSAGE_COUNT, "int"),
        # Without a time, all that is there now.
        Long.maximum if before is None else int(before),
        session_id=body.optional_identifier(names.SESSION_ID),
    )
    counted = _MESSAGE_COUNT, encode_value(Int(deleted))
    return Answer(counted) if deleted else nothing("There are no messages to delete.", MESSAGE_NOT_FOUND, *counted)
