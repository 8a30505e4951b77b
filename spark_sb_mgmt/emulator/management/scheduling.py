"""schedule-message and cancel-scheduled-message (wire-facts.md sections 1.1 and 1.2).

The one rule: what a message is, is said by the message. The ids beside it in the request are there for a service that routes by them
without reading on; here they need only be ids.
"""

from __future__ import annotations

from uuid import UUID

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Value
from spark_sb_mgmt.emulator.entities import IncomingMessage, ServiceBusFault, read_message
from spark_sb_mgmt.emulator.management.bodies import Body
from spark_sb_mgmt.emulator.management.call import DONE, Answer, Call
from spark_sb_mgmt.operations import names

_SEQUENCE_NUMBERS = encode_value(names.SEQUENCE_NUMBERS)
_IDS = (names.SESSION_ID, names.PARTITION_KEY, names.VIA_PARTITION_KEY)


def schedule_message(call: Call) -> Answer:
    destination = call.destination
    entries = call.body.required(names.MESSAGES, "list")
    messages = [_read(entry, f"`{names.MESSAGES}`[{index}] of {call.body.place}") for index, entry in enumerate(entries)]
    numbers = destination.schedule(messages) if call.work is None else call.work.schedule(destination, messages)
    return Answer((_SEQUENCE_NUMBERS, encode_value(Array("long", numbers))))


def _read(entry: Value, place: str) -> IncomingMessage:
    fields = Body(entry, place)
    # azure-servicebus passes a message-id on as it was given, and takes a uuid.
    if not isinstance(fields.optional(names.MESSAGE_ID, "string", "uuid"), UUID):
        fields.optional_identifier(names.MESSAGE_ID)
    for key in _IDS:
        fields.optional_identifier(key)
    encoded: bytes = fields.required(names.MESSAGE, "binary")
    try:
        return read_message(encoded)
    except ServiceBusFault as fault:
        raise ServiceBusFault(fault.status, fault.condition, f"{place}: {fault.description}") from fault


def cancel_scheduled_message(call: Call) -> Answer:
    call.destination.cancel_scheduled(call.body.sequence_numbers())
    return DONE
