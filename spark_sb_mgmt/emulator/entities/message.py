"""A message as the service stores it: the sender's bytes, and what the broker says about them (wire-facts.md section 3.6).

The one rule: the bare message (properties to footer) is the sender's and is kept byte for byte. Header and annotations are the
broker's: they are encoded anew when state changes and kept until it changes again, so that an answer is joined from stored bytes.
Only a disposition with properties-to-modify, a dead-lettering and a rule's action rewrite a part of the bare message, its application
properties, and a message that came without a message-id is given one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_described, encode_list, encode_map, encode_value
from spark_sb_mgmt.amqp.message import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Header,
    Message,
    Properties,
    decode_message,
    encode_message,
)
from spark_sb_mgmt.amqp.native import native_sender
from spark_sb_mgmt.amqp.types import Map, Symbol, Timestamp, UByte, UInt, Value, type_name
from spark_sb_mgmt.emulator.entities.events import Holder
from spark_sb_mgmt.emulator.entities.faults import argument_error, argument_out_of_range, decode_error
from spark_sb_mgmt.errors import DecodeError

# message-id, session-id and partition-key (wire-facts.md section 4).
MAX_ID_LENGTH = 128
MAX_TTL = 2**32 - 1


class MessageState(IntEnum):
    """x-opt-message-state."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


_SEQUENCE_NUMBER = "x-opt-sequence-number"
_ENQUEUE_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
_ENQUEUED_TIME = "x-opt-enqueued-time"
_LOCKED_UNTIL = "x-opt-locked-until"
_SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"
_MESSAGE_STATE = "x-opt-message-state"
_DEADLETTER_SOURCE = "x-opt-deadletter-source"
_PARTITION_KEY = "x-opt-partition-key"
_LOCK_TOKEN = "x-opt-lock-token"
# A sender may put these on a message (SDKs do when they send a received one again); only the broker's own value counts.
_BROKER_SET = frozenset(
    (
        *(_SEQUENCE_NUMBER, _ENQUEUE_SEQUENCE_NUMBER, _ENQUEUED_TIME, _LOCKED_UNTIL),
        *(_SCHEDULED_ENQUEUE_TIME, _MESSAGE_STATE, _DEADLETTER_SOURCE),
    )
)


class IncomingMessage(NamedTuple):
    """One message as a sender gave it, read once. Make it with `read_message`. The order of the fields is `_native_sender.c`'s too."""

    message_id: str | None
    session_id: str | None
    partition_key: str | None
    scheduled_enqueue_time: int | None
    ttl: int | None
    # durable, priority, first-acquirer: what of the header is the sender's to say and not kept elsewhere here.
    header: tuple[Value, Value, Value]
    delivery_annotations: bytes
    # Encoded key and value pairs without those that the broker sets, and how many items they are.
    annotations: bytes
    annotation_items: int
    bare: bytes
    size: int


_PLAIN_HEADER: tuple[Value, Value, Value] = (None, None, None)
_DURABLE_HEADER: tuple[Value, Value, Value] = (True, None, None)
_PROPERTIES_HEAD = bytes((c.DESCRIBED, c.SMALL_ULONG, PROPERTIES))


def read_message(encoded: bytes) -> IncomingMessage:
    """The encoded message of a sender; bytes that are no message are a fault, not a crash."""
    return read_messages((encoded,))[0]


def read_messages(encoded: Iterable[bytes]) -> list[IncomingMessage]:
    """Several; the first that is none is the fault."""
    native = native_sender()
    if native is None:
        return [read_by_values(each) for each in encoded]
    return [native.message(IncomingMessage, each) or read_by_values(each) for each in encoded]


def read_by_values(buffer: bytes) -> IncomingMessage:
    """As `read_message`, whatever the message is; the compiled reader knows those of the usual shapes."""
    try:
        message = decode_message(buffer)
        spans = _section_spans(buffer)
        if spans is None:
            buffer_in_order = encode_message(message)
            spans = _section_spans(buffer_in_order)
            assert spans is not None, "our own encoder writes sections in order, with small descriptors"
        else:
            buffer_in_order = buffer
    except DecodeError as error:
        raise decode_error(f"The message is not valid AMQP: {error}.") from error
    bare_start, delivery_annotations = spans
    header = message.header or Header()
    _check_header(header)
    properties = message.properties or Properties()
    given = message.message_annotations or Map()
    pairs = [(key, value) for key, value in given if key not in _BROKER_SET]
    kept_header = (header.durable, header.priority, header.first_acquirer)
    if kept_header == _PLAIN_HEADER:
        kept_header = _PLAIN_HEADER
    elif kept_header == _DURABLE_HEADER:
        kept_header = _DURABLE_HEADER
    return IncomingMessage(
        message_id=_identifier("message-id", properties.message_id),
        session_id=_identifier("group-id (session id)", properties.group_id),
        partition_key=_identifier(_PARTITION_KEY, given.get(_PARTITION_KEY)),
        scheduled_enqueue_time=_time(_SCHEDULED_ENQUEUE_TIME, given.get(_SCHEDULED_ENQUEUE_TIME)),
        ttl=_time_to_live(header, properties),
        header=kept_header,
        delivery_annotations=delivery_annotations,
        annotations=b"".join([encode_value(part) for pair in pairs for part in pair]),
        annotation_items=2 * len(pairs),
        bare=buffer_in_order[bare_start:],
        size=len(buffer),
    )


def with_message_id(message: IncomingMessage, message_id: str) -> IncomingMessage:
    """The message with this id. The service gives one to every message that comes without (azure-service-bus-java#69), and the JavaScript
    SDK, which gives none itself, cannot settle a message that has none."""
    bare, after, fields = message.bare, 0, ()
    if bare[:3] == _PROPERTIES_HEAD:
        fields, after = decode_value(bare, 3)
    section = encode_described(PROPERTIES, encode_list([encode_value(field) for field in (message_id, *fields[1:])]))
    bare = section + bare[after:]
    return message._replace(message_id=message_id, bare=bare, size=message.size + len(bare) - len(message.bare))


def _check_header(header: Header) -> None:
    """The broker encodes it anew, so that others get what this sender gives."""
    for name, value, kind in (
        ("durable", header.durable, bool),
        ("priority", header.priority, UByte),
        ("ttl", header.ttl, UInt),
        ("first-acquirer", header.first_acquirer, bool),
        ("delivery-count", header.delivery_count, UInt),
    ):
        if value is not None and not isinstance(value, kind):
            raise decode_error(f"The message is not valid AMQP: {name} of its header is a {type_name(value)}.")


def _section_spans(buffer: bytes) -> tuple[int, bytes] | None:
    """Where the bare message starts, and the delivery annotations; None where sections are not in the specification's order
    or not described by small ulongs: correct, but no SDK writes so, and such a message is encoded anew."""
    at, end, previous, bare_start = 0, len(buffer), 0, None
    delivery_annotations = b""
    while at < end:
        start = at
        if end - at < 3 or buffer[at] != c.DESCRIBED or buffer[at + 1] != c.SMALL_ULONG:
            return None
        code = buffer[at + 2]
        if code < previous or (code > FOOTER):
            return None
        previous = code
        at = _after(buffer, at + 3)
        if code >= PROPERTIES and bare_start is None:
            bare_start = start
        elif HEADER < code < MESSAGE_ANNOTATIONS:
            delivery_annotations = buffer[start:at]
    return (end if bare_start is None else bare_start), delivery_annotations


def _after(buffer: bytes, at: int) -> int:
    """The offset after a value that is known to decode."""
    code = buffer[at]
    if code == c.DESCRIBED:
        return decode_value(buffer, at)[1]
    width = c.FIXED_WIDTH.get(code >> 4)
    if width is not None:
        return at + 1 + width
    size_width = c.SIZE_WIDTH[code >> 4]
    return at + 1 + size_width + int.from_bytes(buffer[at + 1 : at + 1 + size_width], "big")


def _identifier(name: str, value: Value) -> str | None:
    if value is None:
        return None
    text = value if type(value) is str else value.hex() if isinstance(value, bytes) else str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # It would stand in answers to others, who could not read them.
            raise argument_error(f"{name} is not valid UTF-8.") from None
    if len(text) > MAX_ID_LENGTH:
        raise argument_out_of_range(f"{name} has {len(text)} characters; at most {MAX_ID_LENGTH} are allowed.")
    return text


def _time(name: str, value: Value) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise argument_out_of_range(f"{name} must be a timestamp, not {value!r:.80}.")
    return int(value)


def _time_to_live(header: Header, properties: Properties) -> int | None:
    if header.ttl is not None:
        return int(header.ttl)
    # What does not fit the header's uint is said by the two times of the properties.
    if properties.absolute_expiry_time is not None and properties.creation_time is not None:
        return max(0, int(properties.absolute_expiry_time) - int(properties.creation_time))
    return None


_LONG = Struct(">Bq").pack
_U32 = Struct(">I").pack


def _key(name: str) -> bytes:
    return encode_value(Symbol(name))


_SEQUENCE_NUMBER_KEY, _ENQUEUE_SEQUENCE_NUMBER_KEY = _key(_SEQUENCE_NUMBER), _key(_ENQUEUE_SEQUENCE_NUMBER)
_ENQUEUED_TIME_KEY, _MESSAGE_STATE_KEY = _key(_ENQUEUED_TIME), _key(_MESSAGE_STATE)
_LOCKED_UNTIL_KEY, _SCHEDULED_KEY, _DEADLETTER_SOURCE_KEY = (
    *(_key(_LOCKED_UNTIL), _key(_SCHEDULED_ENQUEUE_TIME)),
    _key(_DEADLETTER_SOURCE),
)
# What every stored message has, in one step: this is done for each message that a peek meets first.
_ALWAYS = Struct(
    f">{len(_SEQUENCE_NUMBER_KEY)}sBq{len(_ENQUEUE_SEQUENCE_NUMBER_KEY)}sBq{len(_ENQUEUED_TIME_KEY)}sBq{len(_MESSAGE_STATE_KEY)}sBB"
).pack
_ANNOTATIONS_MAP = encode_described(MESSAGE_ANNOTATIONS, bytes((c.MAP_32,)))


# By type too: to a dictionary, true and 1 are one.
@lru_cache(maxsize=1024, typed=True)
def _encode_header(durable: Value, priority: Value, first_acquirer: Value, ttl: int | None, delivery_count: int) -> bytes:
    """Few headers differ from one another."""
    fields = (durable, priority, None if ttl is None else UInt(ttl), first_acquirer, UInt(delivery_count))
    return encode_described(HEADER, encode_list([encode_value(field) for field in fields]))


# One entry of a peek answer is map{"message": binary}, every size in its four-byte form so that the part before the message has one length.
_ENTRY_KEY = _U32(2) + encode_value("message") + bytes((c.BINARY_32,))
_ENTRY_OVERHEAD = 1 + 4 + len(_ENTRY_KEY) + 4


class StoredMessage:
    """A message that stands in an entity.

    Fields are read by anyone and changed only by the entity that holds the message, which then calls `changed()`.
    """

    __slots__ = (
        "_entry",
        "annotation_items",
        "annotations",
        "bare",
        "dead_letter_source",
        "delivery_annotations",
        "delivery_count",
        "enqueued_sequence_number",
        "enqueued_time",
        "expires_at",
        "header",
        "holder",
        "lock_token",
        "locked_until",
        "scheduled_enqueue_time",
        "sequence_number",
        "session_id",
        "state",
        "ttl",
    )

    def __init__(
        self,
        sequence_number: int,
        enqueued_sequence_number: int,
        enqueued_time: int,
        *,
        bare: bytes,
        state: MessageState = MessageState.ACTIVE,
        delivery_count: int = 0,
        ttl: int | None = None,
        expires_at: int | None = None,
        scheduled_enqueue_time: int | None = None,
        session_id: str | None = None,
        dead_letter_source: str | None = None,
        header: tuple[Value, Value, Value] = _PLAIN_HEADER,
        delivery_annotations: bytes = b"",
        annotations: bytes = b"",
        annotation_items: int = 0,
    ) -> None:
        self.sequence_number = sequence_number
        self.enqueued_sequence_number = enqueued_sequence_number
        self.enqueued_time = enqueued_time
        self.bare = bare
        self.state = state
        self.delivery_count = delivery_count
        self.ttl = ttl
        self.expires_at = expires_at
        self.scheduled_enqueue_time = scheduled_enqueue_time
        self.session_id = session_id
        self.dead_letter_source = dead_letter_source
        self.header = header
        self.delivery_annotations = delivery_annotations
        self.annotations = annotations
        self.annotation_items = annotation_items
        self.lock_token: UUID | None = None
        self.locked_until = 0
        self.holder: Holder | None = None
        self._entry: bytes | None = None

    def changed(self) -> None:
        """Header or annotations are out of date."""
        self._entry = None

    @property
    def is_receivable(self) -> bool:
        """Active and held by nobody."""
        return self.state is MessageState.ACTIVE and self.lock_token is None

    @property
    def size(self) -> int:
        """Bytes of the encoded message."""
        return len(self.entry_head) - _ENTRY_OVERHEAD + len(self.bare)

    @property
    def entry_head(self) -> bytes:
        """What stands before the bare message in an entry of a peek answer: the entry's map, then header and annotations."""
        entry = self._entry
        if entry is None:
            head = self._encode_head(self.delivery_annotations)
            length = len(head) + len(self.bare)
            entry = bytes((c.MAP_32,)) + _U32(len(_ENTRY_KEY) + 4 + length) + _ENTRY_KEY + _U32(length) + head
            self._entry = entry
        return entry

    @property
    def head(self) -> bytes:
        """The sections before the bare message."""
        return self.entry_head[_ENTRY_OVERHEAD:]

    def encoded(self) -> bytes:
        """The whole message."""
        return self.head + self.bare

    def delivered(self) -> bytes:
        """The whole message as it goes to a receiver over its link: with the token of its lock, which there stands in the message too."""
        if self.lock_token is None:
            return self.encoded()
        return self._encode_head(_with_lock_token(self.delivery_annotations, self.lock_token)) + self.bare

    def read(self) -> Message:
        """The whole message as values."""
        return decode_message(self.encoded())

    def as_incoming(self) -> IncomingMessage:
        """The message as if its sender gave it anew: how it enters the next entity when it is forwarded."""
        return read_message(self.encoded())

    def _encode_head(self, delivery_annotations: bytes) -> bytes:
        body = _ALWAYS(
            *(_SEQUENCE_NUMBER_KEY, c.LONG, self.sequence_number),
            *(_ENQUEUE_SEQUENCE_NUMBER_KEY, c.LONG, self.enqueued_sequence_number),
            *(_ENQUEUED_TIME_KEY, c.TIMESTAMP, self.enqueued_time),
            *(_MESSAGE_STATE_KEY, c.SMALL_INT, self.state),
        )
        items = 8 + self.annotation_items
        if self.lock_token is not None:
            body += _LOCKED_UNTIL_KEY + _LONG(c.TIMESTAMP, self.locked_until)
            items += 2
        if self.scheduled_enqueue_time is not None:
            body += _SCHEDULED_KEY + encode_value(Timestamp(self.scheduled_enqueue_time))
            items += 2
        if self.dead_letter_source is not None:
            body += _DEADLETTER_SOURCE_KEY + encode_value(self.dead_letter_source)
            items += 2
        body += self.annotations
        ttl = None if self.ttl is None or self.ttl > MAX_TTL else self.ttl
        return b"".join(
            (
                _encode_header(*self.header, ttl, self.delivery_count),
                delivery_annotations,
                _ANNOTATIONS_MAP,
                _U32(len(body) + 4),
                _U32(items),
                body,
            )
        )

    def __repr__(self) -> str:
        return f"<StoredMessage {self.sequence_number} {self.state.name.lower()}, {len(self.bare)} bytes>"


def _with_lock_token(delivery_annotations: bytes, token: UUID) -> bytes:
    given = decode_value(delivery_annotations, 3)[0] if delivery_annotations else ()
    pairs = [encode_value(part) for key, value in given if key != _LOCK_TOKEN for part in (key, value)]
    return encode_described(DELIVERY_ANNOTATIONS, encode_map((*pairs, _key(_LOCK_TOKEN), encode_value(token))))


def encode_peeked(messages: Iterable[StoredMessage], *, omit_message_body: bool = False) -> bytes:
    """The encoded value of `messages` in a peek answer: a list of map{"message": binary}."""
    parts: list[bytes] = []
    count = 0
    if omit_message_body:
        for message in messages:
            encoded = message.head + without_body(message.bare)
            parts += (
                bytes((c.MAP_32,)) + _U32(len(_ENTRY_KEY) + 4 + len(encoded)),
                *(_ENTRY_KEY, _U32(len(encoded)), encoded),
            )
            count += 1
    else:
        append = parts.append
        for message in messages:
            append(message._entry or message.entry_head)
            append(message.bare)
            count += 1
    body = b"".join(parts)
    return bytes((c.LIST_32,)) + _U32(len(body) + 4) + _U32(count) + body


def without_body(bare: bytes) -> bytes:
    """A bare message with only its properties and application properties."""
    at = 0
    while at < len(bare) and bare[at + 2] < DATA:
        at = _after(bare, at + 3)
    return bare[:at]


def with_application_properties(bare: bytes, changes: Mapping[str, Value] | Map) -> bytes:
    """A bare message whose application properties have `changes` set; all other sections keep their bytes."""
    pairs = changes.pairs if isinstance(changes, Map) else tuple(changes.items())
    if not pairs:
        return bare
    start = 0
    while start < len(bare) and bare[start + 2] < APPLICATION_PROPERTIES:
        start = _after(bare, start + 3)
    after, properties = start, Map()
    if start < len(bare) and bare[start + 2] == APPLICATION_PROPERTIES:
        properties, after = decode_value(bare, start + 3)
    new = {str(key): value for key, value in pairs}
    merged = [(key, new.pop(key, value)) for key, value in properties] + list(new.items())
    section = encode_described(APPLICATION_PROPERTIES, encode_value(Map(merged)))
    return bare[:start] + section + bare[after:]
