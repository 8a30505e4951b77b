"""schedule-message and cancel-scheduled-message (wire-facts.md, section 1.1).

When a message is to be enqueued is said inside it, by the annotation x-opt-scheduled-enqueue-time; the entry around it repeats the ids
that the service routes by. `schedule_message` is for people; `encode_entry` and `schedule_entries` are its two halves, for those who have
encoded messages already and cut them into requests by size. `ENTRY` is `encode_entry` as a shape, for `amqp.native_encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, TypeVar
from uuid import uuid4

import numpy as np

from spark_sb_mgmt.amqp.columns import TTL_LIMIT
from spark_sb_mgmt.amqp.encode import encode_binary, encode_longs, encode_map, encode_value, list_head, map_head, utf8
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Body, Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.native_encode import EntryShape, Ints
from spark_sb_mgmt.amqp.types import Map, Symbol, Timestamp, Value
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.operations import arguments, names, results
from spark_sb_mgmt.operations.envelope import Request, Response

T = TypeVar("T")

_PARTITION_KEY: Final = Symbol("x-opt-partition-key")
_VIA_PARTITION_KEY: Final = Symbol("x-opt-via-partition-key")
_SCHEDULED: Final = Symbol("x-opt-scheduled-enqueue-time")
_IDS: Final = ("message_id", "session_id", "partition_key", "via_partition_key")
_TEXTS: Final = ("correlation_id", "subject", "to", "reply_to", "reply_to_session_id", "content_type")


@dataclass(frozen=True)
class ScheduledMessage:
    """A message to be enqueued at a time, its fields named as the columns of CONTRACT section 2. A body of bytes or text becomes a data
    section. In `application_properties` an int goes as long, a datetime as timestamp; a value of `amqp.types` goes as what it is. A message
    that is given no id gets one."""

    # What it carries is no business of a log.
    body: bytes | str | Body | None = field(repr=False)
    scheduled_enqueue_time: datetime | int
    message_id: str = field(default_factory=lambda: str(uuid4()))
    session_id: str | None = None
    partition_key: str | None = None
    via_partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    time_to_live_ms: int | None = None
    application_properties: Mapping[str, Any] | Map = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class EncodedEntries:
    """Entries of a request, one behind the other: `bounds` are where in `buffer` each starts, and last where they end."""

    buffer: bytes = field(repr=False)
    bounds: Ints = field(repr=False)

    @classmethod
    def of(cls, entries: Sequence[bytes]) -> EncodedEntries:
        """Of what `encode_entry` gave."""
        return cls(b"".join(entries), np.fromiter(accumulate(map(len, entries), initial=0), np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def joined(self) -> memoryview:
        return memoryview(self.buffer)[self.bounds[0] : self.bounds[-1]]

    def cut(self, start: int, end: int) -> EncodedEntries:
        return EncodedEntries(self.buffer, self.bounds[start : end + 1])


def schedule_message(messages: Iterable[ScheduledMessage]) -> Request[list[int]]:
    """Schedule messages; answers with their sequence numbers, in their order."""
    entries = [_entry(message, row) for row, message in enumerate(arguments.several("messages", messages))]
    return _schedule(EncodedEntries.of(entries), lambda response: _read_numbers(response, len(entries)).tolist())


def schedule_entries(entries: EncodedEntries) -> Request[Ints]:
    """Schedule what is encoded already; answers with an array."""
    if not len(entries):
        raise InvalidArgumentError("messages", "must have at least one item")
    return _schedule(entries, lambda response: _read_numbers(response, len(entries)))


def _schedule(entries: EncodedEntries, reader: Callable[[Response], T]) -> Request[T]:
    # Joined once: this is a megabyte.
    head = _MESSAGES_KEY + list_head(len(entries), entries.size)
    body = b"".join((map_head(2, len(head) + entries.size), head, entries.joined))
    return Request(names.SCHEDULE_MESSAGE, body, f"schedule-message of {len(entries)} messages", reader, transactional=True)


_MESSAGES_KEY, _MESSAGE_ID_KEY, _SESSION_ID_KEY, _PARTITION_KEY_KEY, _VIA_PARTITION_KEY_KEY, _MESSAGE_KEY = (
    encode_value(key)
    for key in (names.MESSAGES, names.MESSAGE_ID, names.SESSION_ID, names.PARTITION_KEY, names.VIA_PARTITION_KEY, names.MESSAGE)
)
ENTRY: Final = EntryShape(
    dict(zip(_IDS, (_MESSAGE_ID_KEY, _SESSION_ID_KEY, _PARTITION_KEY_KEY, _VIA_PARTITION_KEY_KEY), strict=True)),
    _MESSAGE_KEY,
    arguments.LONGEST_ID,
)


def encode_entry(
    message: bytes,
    message_id: str,
    session_id: str | None = None,
    partition_key: str | None = None,
    via_partition_key: str | None = None,
    *,
    row: int | None = None,
) -> bytes:
    """One entry of the `messages` list around an encoded message; ids that are None are left out. `row` is for errors."""
    parts = [_MESSAGE_ID_KEY, encode_value(arguments.identifier("message_id", message_id, row=row))]
    if session_id is not None:
        parts += (_SESSION_ID_KEY, encode_value(arguments.identifier("session_id", session_id, row=row)))
    if partition_key is not None:
        parts += (_PARTITION_KEY_KEY, encode_value(arguments.identifier("partition_key", partition_key, row=row)))
    if via_partition_key is not None:
        parts += (_VIA_PARTITION_KEY_KEY, encode_value(arguments.identifier("via_partition_key", via_partition_key, row=row)))
    parts += (_MESSAGE_KEY, encode_binary(message))
    return encode_map(parts)


_SEQUENCE_NUMBERS_KEY: Final = encode_value(names.SEQUENCE_NUMBERS)


def cancel_scheduled_message(sequence_numbers: Iterable[int] | Ints) -> Request[None]:
    """Take scheduled messages back, by the numbers that scheduling them gave."""
    numbers = arguments.int64_array("sequence_numbers", sequence_numbers)
    return Request(
        names.CANCEL_SCHEDULED_MESSAGE,
        encode_map((_SEQUENCE_NUMBERS_KEY, encode_longs(numbers))),
        f"cancel-scheduled-message of {len(numbers)} messages",
        results.nothing,
    )


def _read_numbers(response: Response, count: int) -> Ints:
    return np.array(results.several(response.body(), names.SEQUENCE_NUMBERS, "long", count), np.int64)


def _entry(message: ScheduledMessage, row: int) -> bytes:
    if not isinstance(message, ScheduledMessage):
        raise InvalidArgumentError("messages", f"must be a ScheduledMessage, not a {type(message).__name__}", row=row)
    amqp_message = _amqp_message(message, row)
    try:
        wire = encode_message(amqp_message)
    except EncodeError as problem:
        # All else was looked at when the message was put together.
        raise InvalidArgumentError("body", f"cannot be sent: {problem}", row=row) from None
    return encode_entry(wire, message.message_id, message.session_id, message.partition_key, message.via_partition_key, row=row)


def _amqp_message(message: ScheduledMessage, row: int) -> Message:
    time = arguments.timestamp("scheduled_enqueue_time", message.scheduled_enqueue_time, row=row)
    life = message.time_to_live_ms
    if life is not None:
        life = int(arguments.int64("time_to_live_ms", life, row))
        if life < 0:
            raise InvalidArgumentError("time_to_live_ms", f"must not be below zero, as {life} is", row=row)
        if time + life > Timestamp.maximum:
            raise InvalidArgumentError("time_to_live_ms", f"is {life}, and {time} plus that is no time any more", row=row)
    # A life above the header's 32 bits is carried as the SDKs do it. It counts from when the message is enqueued.
    long_life = life is not None and life > TTL_LIMIT
    given = arguments.properties("application_properties", message.application_properties, row=row)
    for argument in _IDS:
        if getattr(message, argument) is not None or argument == "message_id":
            arguments.identifier(argument, getattr(message, argument), row=row)
    for argument in _TEXTS:
        if getattr(message, argument) is not None:
            arguments.text(argument, getattr(message, argument), None, row=row)
    annotations: list[tuple[Symbol, Value]] = [
        (key, value)
        for key, value in ((_PARTITION_KEY, message.partition_key), (_VIA_PARTITION_KEY, message.via_partition_key))
        if value is not None
    ]
    return Message(
        header=None if life is None else Header(ttl=min(life, TTL_LIMIT)),
        message_annotations=Map([*annotations, (_SCHEDULED, time)]),
        properties=Properties(
            message_id=message.message_id,
            to=message.to,
            subject=message.subject,
            reply_to=message.reply_to,
            correlation_id=message.correlation_id,
            content_type=message.content_type,
            creation_time=time if long_life else None,
            absolute_expiry_time=Timestamp(time + life) if life is not None and long_life else None,
            group_id=message.session_id,
            reply_to_group_id=message.reply_to_session_id,
        ),
        application_properties=given if len(given) else None,
        body=_body(message.body, row),
    )


def _body(body: bytes | str | Body | None, row: int) -> Body | None:
    if body is None or isinstance(body, (Data, AmqpSequence, AmqpValue)):
        return body
    if isinstance(body, str):
        return Data((utf8(arguments.text("body", body, None, row=row)),))
    if isinstance(body, (bytes, bytearray, memoryview)):
        return Data((bytes(body),))
    raise InvalidArgumentError("body", f"must be bytes, text, Data, AmqpSequence or AmqpValue, not a {type(body).__name__}", row=row)
