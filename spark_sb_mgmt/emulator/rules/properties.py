"""Properties of a message as rules name them: the system's, which are fields and annotations, and the user's.

The one rule: names are told apart without regard to letter case. Of user properties that differ only in it, the one that is written exactly
so is meant, else the first. A system property that is not set is null; one that does not exist is refused when the rule is compiled.

The names are those of `BrokeredMessage` (and of the table in "Messages, payloads, and serialization"), with the newer clients' names where
they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from spark_sb_mgmt.amqp.message import Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, Timestamp, UInt, Value
from spark_sb_mgmt.emulator.durations import FOREVER
from spark_sb_mgmt.emulator.entities.message import MAX_ID_LENGTH, MAX_TTL
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from spark_sb_mgmt.emulator.rules.values import as_duration, as_text, as_time, converted, from_wire, to_wire

Getter = Callable[[Message], Value]
Setter = Callable[[Message, Value], Message]

_ABSENT: Final = object()
_NO_PROPERTIES: Final = Properties()
_NO_HEADER: Final = Header()
_EMPTY: Final = Map()
_MILLISECOND: Final = timedelta(milliseconds=1)


class Subject:
    """The message that a rule is evaluated for, and where new ids come from."""

    __slots__ = ("_folded", "_user", "message", "new_id")

    def __init__(self, message: Message, new_id: Callable[[], UUID]) -> None:
        self.message = message
        self.new_id = new_id
        self._user = message.application_properties or _EMPTY
        self._folded: dict[str, Value] | None = None

    def user(self, name: str, folded: str) -> Value:
        """The value of a user property, None if there is none; `folded` is the name in lower case."""
        found = self._find(name, folded)
        return None if found is _ABSENT else from_wire(found)

    def has_user(self, name: str, folded: str) -> bool:
        return self._find(name, folded) is not _ABSENT

    def _find(self, name: str, folded: str) -> Value:
        found = self._user.get(name, _ABSENT)
        if found is not _ABSENT:
            return found
        if self._folded is None:
            self._folded = {}
            for key, value in self._user.pairs:
                if isinstance(key, str):
                    self._folded.setdefault(key.lower(), value)
        return self._folded.get(folded, _ABSENT)


# --- user properties ----------------------------------------------------------------------------------------------------------------------


def with_user(message: Message, name: str, value: Value) -> Message:
    """The message with a user property set. One that is there keeps its place, its spelling and, where possible, its type."""
    pairs = list((message.application_properties or _EMPTY).pairs)
    at = _position(pairs, name)
    if at is None:
        pairs.append((name, to_wire(value)))
    else:
        key, existing = pairs[at]
        pairs[at] = (key, to_wire(converted(value, from_wire(existing))))
    return replace(message, application_properties=Map(pairs))


def without_user(message: Message, name: str) -> Message:
    pairs = list((message.application_properties or _EMPTY).pairs)
    at = _position(pairs, name)
    if at is None:
        return message
    del pairs[at]
    return replace(message, application_properties=Map(pairs))


def _position(pairs: list[tuple[Value, Value]], name: str) -> int | None:
    names = [key if isinstance(key, str) else None for key, _ in pairs]
    if name in names:
        return names.index(name)
    folded = name.lower()
    return next((at for at, key in enumerate(names) if key is not None and key.lower() == folded), None)


# --- system properties --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemProperty:
    """`put` is None where only the broker may set it; it takes None to clear."""

    name: str
    get: Getter
    put: Setter | None = None


def _field(name: str, attribute: str, *, longest: int | None = None, symbol: bool = False) -> SystemProperty:
    """A field of the properties section that is a text to Service Bus, whatever type it came with."""

    def get(message: Message) -> Value:
        value = getattr(message.properties or _NO_PROPERTIES, attribute)
        if type(value) is str or value is None:
            return value
        return as_text(value)

    def put(message: Message, value: Value) -> Message:
        text = None if value is None else _text(name, value, longest, symbol)
        return replace(message, properties=replace(message.properties or _NO_PROPERTIES, **{attribute: text}))

    return SystemProperty(name, get, put)


def _text(name: str, value: Value, longest: int | None, symbol: bool = False) -> str:
    text = as_text(value)
    if longest is not None and len(text) > longest:
        raise RuleEvaluationError(f"sys.{name} has at most {longest} characters, not {len(text)}")
    if symbol and not text.isascii():
        raise RuleEvaluationError(f"sys.{name} has ASCII characters only")
    return text


def _annotation(name: str, key: str, convert: Callable[[Value], Value] | None = None) -> SystemProperty:
    """An annotation; one with `convert` is the sender's to set."""

    def get(message: Message) -> Value:
        return (message.message_annotations or _EMPTY).get(key)

    def put(message: Message, value: Value) -> Message:
        pairs = [pair for pair in (message.message_annotations or _EMPTY).pairs if pair[0] != key]
        if value is not None and convert is not None:
            pairs.append((Symbol(key), convert(value)))
        return replace(message, message_annotations=Map(pairs))

    return SystemProperty(name, get, None if convert is None else put)


def _partition_key(name: str) -> Callable[[Value], str]:
    return lambda value: _text(name, value, MAX_ID_LENGTH)


_ENQUEUED_TIME: Final = _annotation("EnqueuedTimeUtc", "x-opt-enqueued-time")


def _time_to_live(message: Message) -> timedelta:
    """As .NET has it: the longest duration there is for a message that does not expire."""
    ttl = (message.header or _NO_HEADER).ttl
    properties = message.properties or _NO_PROPERTIES
    if ttl is None and properties.absolute_expiry_time is not None and properties.creation_time is not None:
        ttl = max(0, int(properties.absolute_expiry_time) - int(properties.creation_time))
    return timedelta(milliseconds=FOREVER if ttl is None else min(int(ttl), FOREVER))


def _put_time_to_live(message: Message, value: Value) -> Message:
    milliseconds = FOREVER if value is None else as_duration(value) // _MILLISECOND
    if milliseconds < 0:
        raise RuleEvaluationError("sys.TimeToLive cannot be less than nothing")
    header, properties = message.header or _NO_HEADER, message.properties or _NO_PROPERTIES
    creation, expiry = properties.creation_time, None
    if MAX_TTL < milliseconds < FOREVER:
        # More than the header's uint can say: the two times of the properties do.
        creation = creation if creation is not None else _ENQUEUED_TIME.get(message) or Timestamp(0)
        expiry = Timestamp(min(int(creation) + milliseconds, Timestamp.maximum))
    return replace(
        message,
        header=replace(header, ttl=UInt(milliseconds) if milliseconds <= MAX_TTL else None),
        properties=replace(properties, creation_time=creation, absolute_expiry_time=expiry),
    )


def _expires_at(message: Message) -> Value:
    enqueued, ttl = _ENQUEUED_TIME.get(message), _time_to_live(message) // _MILLISECOND
    if enqueued is None or ttl >= FOREVER:
        return None
    return Timestamp(int(enqueued) + ttl)


def _delivery_count(message: Message) -> Value:
    return Int((message.header or _NO_HEADER).delivery_count or 0)


def _state(message: Message) -> Value:
    return Int((message.message_annotations or _EMPTY).get("x-opt-message-state") or 0)


def _size(message: Message) -> Value:
    return Long(len(encode_message(message)))


_SYSTEM: Final = (
    _field("ContentType", "content_type", symbol=True),
    _field("CorrelationId", "correlation_id"),
    _field("Label", "subject"),
    _field("MessageId", "message_id", longest=MAX_ID_LENGTH),
    _field("ReplyTo", "reply_to"),
    _field("ReplyToSessionId", "reply_to_group_id", longest=MAX_ID_LENGTH),
    _field("SessionId", "group_id", longest=MAX_ID_LENGTH),
    _field("To", "to"),
    _annotation("PartitionKey", "x-opt-partition-key", _partition_key("PartitionKey")),
    _annotation("ViaPartitionKey", "x-opt-via-partition-key", _partition_key("ViaPartitionKey")),
    _annotation("ScheduledEnqueueTimeUtc", "x-opt-scheduled-enqueue-time", as_time),
    _annotation("DeadLetterSource", "x-opt-deadletter-source"),
    _annotation("EnqueuedSequenceNumber", "x-opt-enqueue-sequence-number"),
    _annotation("LockedUntilUtc", "x-opt-locked-until"),
    _annotation("SequenceNumber", "x-opt-sequence-number"),
    _ENQUEUED_TIME,
    SystemProperty("DeliveryCount", _delivery_count),
    SystemProperty("ExpiresAtUtc", _expires_at),
    SystemProperty("Size", _size),
    SystemProperty("State", _state),
    SystemProperty("TimeToLive", _time_to_live, _put_time_to_live),
)
# What the newer clients call them.
_ALIASES: Final = {
    "Subject": "Label",
    "TransactionPartitionKey": "ViaPartitionKey",
    "ScheduledEnqueueTime": "ScheduledEnqueueTimeUtc",
    "EnqueuedTime": "EnqueuedTimeUtc",
    "ExpiresAt": "ExpiresAtUtc",
    "LockedUntil": "LockedUntilUtc",
}
_BY_NAME: Final = {each.name.lower(): each for each in _SYSTEM}
_BY_NAME.update((alias.lower(), _BY_NAME[name.lower()]) for alias, name in _ALIASES.items())


def system_property(name: str) -> SystemProperty:
    """The system property of that name; LookupError, with the names that there are, if there is none."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(sorted(each.name for each in _SYSTEM))
        raise LookupError(f"there is no system property {name!r:.80}; there are: {known}")
    return found


def settable_names() -> str:
    return ", ".join(sorted(each.name for each in _SYSTEM if each.put is not None))
