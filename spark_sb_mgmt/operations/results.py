"""What a body must hold, read with an error that names the key (wire-facts.md, section 1.1).

The one rule: a service is believed only as far as it keeps to the protocol. A key that is missing or of the wrong type is a
RemoteProtocolError, never a None or a KeyError that turns up later somewhere else.
"""

from __future__ import annotations

from datetime import datetime

from spark_sb_mgmt.amqp.types import Array, Map, Value, type_name
from spark_sb_mgmt.errors import RemoteProtocolError
from spark_sb_mgmt.operations.envelope import Response
from spark_sb_mgmt.operations.times import to_datetime


def nothing(response: Response) -> None:
    """For operations whose success says it all. Only 200 is one: 202 and 204 would leave open whether anything was done."""
    if response.is_empty:
        raise RemoteProtocolError(f"the answer has status {response.status}, which leaves open whether it was done: 200 would say so")


def required(body: Map, key: str) -> Value:
    if key not in body:
        raise RemoteProtocolError(f"the body of the answer has no `{key}`")
    return body[key]


def one(body: Map, key: str, kind: str) -> Value:
    """The value of a key, of one AMQP type."""
    value = required(body, key)
    if type_name(value) != kind:
        raise RemoteProtocolError(f"`{key}` of the answer is an AMQP {type_name(value)}, not a {kind}")
    return value


def several(body: Map, key: str, kind: str, expected: int | None = None) -> tuple[Value, ...]:
    """The items of an array of one type, as many as expected. A list of such items is taken too: Python and JavaScript clients do so."""
    value = required(body, key)
    if isinstance(value, Array) and value.descriptor is None and (value.of == kind or not value.items):
        items = value.items
    elif isinstance(value, tuple) and all(type_name(item) == kind for item in value):
        items = value
    else:
        found = f"array of {value.of}" if isinstance(value, Array) else type_name(value)
        raise RemoteProtocolError(f"`{key}` of the answer is an AMQP {found}, not an array of {kind}")
    if expected is not None and len(items) != expected:
        raise RemoteProtocolError(f"`{key}` of the answer has {len(items)} items where {expected} were asked for")
    return items


def moment(key: str, milliseconds: int) -> datetime:
    try:
        return to_datetime(milliseconds)
    except OverflowError:
        raise RemoteProtocolError(f"`{key}` of the answer is {int(milliseconds)} ms since 1970, outside the years 1 to 9999") from None
