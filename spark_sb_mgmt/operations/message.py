"""Messages as peek-message and receive-by-sequence-number answer with them (CONTRACT section 2; wire-facts.md, section 1.1).

The one rule: bytes until somebody looks. `Messages` holds the answer as it came, for those who decode it into columns, and gives
`ServiceBusMessage`s to those who want objects; the two read the same bytes by the same rules (`amqp.columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, overload
from uuid import UUID

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.amqp.columns import COLUMNS, TIMESTAMP, Received
from spark_sb_mgmt.amqp.message import Header, Message, Properties, decode_message
from spark_sb_mgmt.amqp.response import find_entries, read_entry
from spark_sb_mgmt.amqp.sequence_numbers import read_sequence_numbers
from spark_sb_mgmt.amqp.types import Map, Value
from spark_sb_mgmt.errors import DecodeError, RemoteProtocolError
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.envelope import Response
from spark_sb_mgmt.operations.times import to_datetime

_T = TypeVar("_T")


def _no_sequence_number(entity: str | None) -> RemoteProtocolError:
    return RemoteProtocolError("a message of the answer has no x-opt-sequence-number", entity=entity)


class _Column(Generic[_T]):
    """An attribute that is the column of its name, read as that column is; a time is a datetime in UTC."""

    def __set_name__(self, owner: type[ServiceBusMessage], name: str) -> None:
        self.column = COLUMNS[name]
        self.is_time = self.column.type == TIMESTAMP

    @overload
    def __get__(self, message: None, owner: type[ServiceBusMessage]) -> _Column[_T]: ...
    @overload
    def __get__(self, message: ServiceBusMessage, owner: type[ServiceBusMessage]) -> _T: ...
    def __get__(self, message: ServiceBusMessage | None, owner: type[ServiceBusMessage]) -> Any:
        if message is None:
            return self
        value = self.column.read(message.received)
        return to_datetime(value // 1000) if self.is_time and value is not None else value


class ServiceBusMessage:
    """A message as the service holds it. Attributes are the columns of CONTRACT section 2, None where the message has nothing there;
    `body` is the bytes that `body_type` describes, `application_properties` and the sections keep their AMQP types."""

    __slots__ = ("received",)

    entity: _Column[str | None] = _Column()
    enqueued_sequence_number: _Column[int | None] = _Column()
    message_id: _Column[str | None] = _Column()
    session_id: _Column[str | None] = _Column()
    partition_key: _Column[str | None] = _Column()
    via_partition_key: _Column[str | None] = _Column()
    correlation_id: _Column[str | None] = _Column()
    subject: _Column[str | None] = _Column()
    to: _Column[str | None] = _Column()
    reply_to: _Column[str | None] = _Column()
    reply_to_session_id: _Column[str | None] = _Column()
    content_type: _Column[str | None] = _Column()
    time_to_live_ms: _Column[int | None] = _Column()
    enqueued_time: _Column[datetime | None] = _Column()
    scheduled_enqueue_time: _Column[datetime | None] = _Column()
    expires_at: _Column[datetime | None] = _Column()
    locked_until: _Column[datetime | None] = _Column()
    delivery_count: _Column[int | None] = _Column()
    state: _Column[str] = _Column()
    dead_letter_source: _Column[str | None] = _Column()
    dead_letter_reason: _Column[str | None] = _Column()
    dead_letter_error_description: _Column[str | None] = _Column()
    lock_token: _Column[str | None] = _Column()
    body: _Column[bytes | None] = _Column()
    body_type: _Column[str | None] = _Column()
    amqp_message: _Column[bytes] = _Column()

    def __init__(self, wire: bytes, lock_token: UUID | None = None, entity: str | None = None) -> None:
        self.received = Received(decode_message(wire), wire, lock_token, entity)

    @property
    def message(self) -> Message:
        """The whole message, section by section."""
        return self.received.message

    @property
    def sequence_number(self) -> int:
        """The number that the service gave the message; one that has none did not come from there."""
        number = COLUMNS["sequence_number"].read(self.received)
        if number is None:
            raise _no_sequence_number(self.received.entity)
        return int(number)

    @property
    def application_properties(self) -> dict[str, Value]:
        """Application properties by name, with their AMQP types; `message.application_properties` has also keys that are no strings."""
        section = self.message.application_properties
        return {} if section is None else {key: value for key, value in section if isinstance(key, str)}

    @property
    def typed_properties(self) -> Map | None:
        return self.message.application_properties

    @property
    def properties(self) -> Properties | None:
        return self.message.properties

    @property
    def message_annotations(self) -> Map | None:
        return self.message.message_annotations

    @property
    def delivery_annotations(self) -> Map | None:
        return self.message.delivery_annotations

    @property
    def header(self) -> Header | None:
        return self.message.header

    @property
    def footer(self) -> Map | None:
        return self.message.footer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServiceBusMessage) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[bytes, UUID | None, str | None]:
        return self.received.wire, self.received.lock_token, self.received.entity

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._identity

    def __repr__(self) -> str:
        # What it carries is the business of whoever sent it, not of a log.
        number = COLUMNS["sequence_number"].read(self.received)
        return f"ServiceBusMessage(sequence_number={number}, message_id={self.message_id!r}, {len(self.received.wire)} bytes)"


class Messages(Sequence[ServiceBusMessage]):
    """The messages of one answer, decoded one by one as they are taken. `response` is the answer's own bytes, as
    `amqp.arrow_decode.decode_responses` takes them."""

    __slots__ = ("_bounds", "entity", "operation", "response")

    def __init__(
        self,
        response: bytes,
        entity: str | None = None,
        bounds: npt.NDArray[np.int64] | None = None,
        operation: str | None = None,
    ) -> None:
        self.response = response
        self.entity = entity
        # What was asked, for errors that show only when a message is looked at.
        self.operation = operation
        # Where each entry starts, and last where they end.
        self._bounds = find_entries(response) if bounds is None else bounds

    def __len__(self) -> int:
        return max(len(self._bounds) - 1, 0)

    @overload
    def __getitem__(self, index: int) -> ServiceBusMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ServiceBusMessage]: ...
    def __getitem__(self, index: int | slice) -> ServiceBusMessage | Sequence[ServiceBusMessage]:
        if isinstance(index, slice):
            return [self._message(one) for one in range(len(self))[index]]
        return self._message(range(len(self))[index])

    def __eq__(self, other: object) -> bool:
        """As a list of the same messages is, so that nothing there is `[]`."""
        if not isinstance(other, (Messages, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def sequence_numbers(self) -> npt.NDArray[np.int64]:
        """The number of each message, all else left alone."""
        numbers = read_sequence_numbers(self.response, self._bounds) if len(self) else np.empty(0, np.int64)
        if numbers is None:
            raise _no_sequence_number(self.entity)
        return numbers

    def lock_token(self, index: int) -> UUID | None:
        """The lock token of one message, the message itself left alone."""
        return self._entry(index)[2]

    def _message(self, index: int) -> ServiceBusMessage:
        start, end, token = self._entry(index)
        try:
            return ServiceBusMessage(self.response[start:end], token, self.entity)
        except DecodeError as problem:
            raise problem.at_message(index).about(self.operation, self.entity) from None

    def _entry(self, index: int) -> tuple[int, int, UUID | None]:
        try:
            start, end, token = read_entry(self.response, int(self._bounds[index]), int(self._bounds[index + 1]))
        except DecodeError as problem:
            raise problem.at_message(index).about(self.operation, self.entity) from None
        return start, end, None if token is None else UUID(bytes=self.response[token : token + 16])

    def __repr__(self) -> str:
        return f"Messages({len(self)} messages, {len(self.response)} bytes)"


def read_messages(response: Response, operation: str, most: int) -> Messages:
    """The messages of an answer, at most as many as were asked for. Nothing there is said with 204: a 200 has messages."""
    if not response.is_success or response.is_empty:
        return Messages(response.raw, response.entity, np.empty(0, np.int64))
    try:
        bounds = find_entries(response.raw)
    except DecodeError as problem:
        raise DecodeError(f"`{names.MESSAGES}` of the answer cannot be found: {problem.problem}", problem.offset) from None
    messages = Messages(response.raw, response.entity, bounds, names.short_name(operation))
    if not messages:
        raise RemoteProtocolError(
            f"`{names.MESSAGES}` of the answer is missing or empty, and its status is 200; nothing there would be 204"
        )
    if len(messages) > most:
        raise RemoteProtocolError(f"`{names.MESSAGES}` of the answer has {len(messages)} items where {most} at most were asked for")
    return messages
