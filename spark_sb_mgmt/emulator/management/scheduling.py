"""schedule-message and cancel-scheduled-message (wire-facts.md sections 1.1 and 1.2).

The one rule: what a message is, is said by the message. The ids beside it in the request are there for a service that routes by them
without reading on; here they need only be ids.
"""

from __future__ import annotations

from uuid import UUID

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.native import native_sender
from spark_sb_mgmt.amqp.types import Array, Value
from spark_sb_mgmt.emulator.entities import IncomingMessage, ServiceBusFault, read_message
from spark_sb_mgmt.emulator.management.bodies import Body
from spark_sb_mgmt.emulator.management.call import DONE, Answer, Call
from spark_sb_mgmt.operations import names

_SEQUENCE_NUMBERS = encode_value(names.SEQUENCE_NUMBERS)
_IDS = (names.SESSION_ID, names.PARTITION_KEY, names.VIA_PARTITION_KEY)


def schedule_message(call: Call) -> Answer:
    destination = call.destination
    messages = read_scheduled(call.body)
    numbers = destination.schedule(messages) if call.work is None else call.work.schedule(destination, messages)
    return Answer((_SEQUENCE_NUMBERS, encode_value(Array("long", numbers))))


def read_scheduled(body: Body) -> list[IncomingMessage]:
    """The messages of a request."""
    messages = _read_encoded(body)
    if messages is not None:
        return messages
    entries = body.required(names.MESSAGES, "list")
    return [_read(entry, _place(body, index)) for index, entry in enumerate(entries)]


def _place(body: Body, index: int) -> str:
    return f"`{names.MESSAGES}`[{index}] of {body.place}"


def _read_encoded(body: Body) -> list[IncomingMessage] | None:
    """The messages of a body as the usual clients write it, found without decoding it; None for any other."""
    native = native_sender()
    if native is None or body.encoded is None:
        return None
    found = native.scheduled(IncomingMessage, body.encoded.request, body.encoded.offset)
    if found is None:
        return None
    return [_read_message(each, _place(body, index)) if isinstance(each, bytes) else each for index, each in enumerate(found)]


def _read(entry: Value, place: str) -> IncomingMessage:
    fields = Body(entry, place)
    # azure-servicebus passes a message-id on as it was given, and takes a uuid.
    if not isinstance(fields.optional(names.MESSAGE_ID, "string", "uuid"), UUID):
        fields.optional_identifier(names.MESSAGE_ID)
    for key in _IDS:
        fields.optional_identifier(key)
    return _read_message(fields.required(names.MESSAGE, "binary"), place)


def _read_message(encoded: bytes, place: str) -> IncomingMessage:
    try:
        return read_message(encoded)
    except ServiceBusFault as fault:
        raise ServiceBusFault(fault.status, fault.condition, f"{place}: {fault.description}") from fault


def cancel_scheduled_message(call: Call) -> Answer:
    call.destination.cancel_scheduled(call.body.sequence_numbers())
    return DONE
