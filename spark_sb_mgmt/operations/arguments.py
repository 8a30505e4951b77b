"""What an argument must be before it may go on the wire.

The one rule: an argument that cannot be sent, or that the service is known to refuse, is an error here that names argument, value and
what is allowed; nothing has been sent then (limits: wire-facts.md, section 4).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.amqp.encode import encode_value, utf8
from spark_sb_mgmt.amqp.types import Array, Int, Long, Map, Timestamp, Value
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.operations.times import to_milliseconds

# Characters of a message-id, session-id or partition key.
LONGEST_ID: Final = 128
LONGEST_RULE_NAME: Final = 50
LONGEST_EXPRESSION: Final = 1024
LONGEST_DEADLETTER_TEXT: Final = 4096


def boolean(name: str, value: bool) -> bool:
    """A boolean and nothing that only counts as one: "false" is true in Python."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(name, f"must be True or False, not {value!r:.80}")
    return value


def one_of(name: str, value: Value, allowed: Mapping[Any, str]) -> None:
    """One of a few values, said with what each means."""
    # True equals 1, and stands for no mode.
    if isinstance(value, bool) or not any(isinstance(value, type(choice)) and value == choice for choice in allowed):
        choices = ", ".join(f"{choice} ({meaning})" if meaning else f"{choice}" for choice, meaning in allowed.items())
        raise InvalidArgumentError(name, f"must be one of {choices}, not {value!r:.80}")


def int32(name: str, value: int, minimum: int) -> Int:
    """An AMQP int, from `minimum` up."""
    number = integer(value)
    if number is None or not minimum <= number <= Int.maximum:
        raise InvalidArgumentError(name, f"must be an integer from {minimum} to {Int.maximum}, not {value!r:.80}")
    return _int(number)


def int64(name: str, value: int, row: int | None = None) -> Long:
    """An AMQP long."""
    number = integer(value)
    if number is None or not Long.minimum <= number <= Long.maximum:
        raise InvalidArgumentError(name, f"must be a 64-bit integer, not {value!r:.80}", row=row)
    return _long(number)


def int64_array(name: str, values: Iterable[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """At least one integer, for an array of long. What is such an array already has only its length to be looked at."""
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and len(values):
        return values
    return np.array([int64(name, value, row) for row, value in enumerate(several(name, values))], np.int64)


def uuid_array(name: str, values: Iterable[UUID | str]) -> Array:
    """At least one UUID, given as such or as its text, as an array of uuid."""
    return Array("uuid", [_uuid(name, value, row) for row, value in enumerate(several(name, values))])


def text(name: str, value: str, longest: int | None, *, empty: bool = True, row: int | None = None) -> str:
    """A string of at most so many characters; None where no limit is known but that of the whole message."""
    if not isinstance(value, str):
        raise InvalidArgumentError(name, f"must be a string, not {value!r:.80}", row=row)
    if longest is not None and len(value) > longest:
        raise InvalidArgumentError(name, f"has {len(value)} characters, {longest} at most are allowed: {value[:40]!r}...", row=row)
    if not value and not empty:
        raise InvalidArgumentError(name, "must not be empty", row=row)
    try:
        utf8(value)
    except EncodeError as problem:
        raise InvalidArgumentError(name, f"cannot be sent: {problem}", row=row) from None
    return str(value)


def identifier(name: str, value: str, *, row: int | None = None) -> str:
    """A message-id, session-id or partition key."""
    return text(name, value, LONGEST_ID, row=row)


def timestamp(name: str, value: datetime | int, *, row: int | None = None) -> Timestamp:
    """A time: a datetime with a time zone, or milliseconds since 1970."""
    if isinstance(value, datetime):
        try:
            return _timestamp(to_milliseconds(value))
        except ValueError:
            problem = f"is {value.isoformat()} without a time zone: say which, as in datetime(..., tzinfo=timezone.utc)"
            raise InvalidArgumentError(name, problem, row=row) from None
    number = integer(value)
    if number is None or not Timestamp.minimum <= number <= Timestamp.maximum:
        raise InvalidArgumentError(name, f"must be a datetime or milliseconds since 1970, not {value!r:.80}", row=row)
    return _timestamp(number)


def amqp_value(value: Any) -> Value:
    """A value that a person gave, with the AMQP type of its Python type where it has none of its own: an int goes as long. One of numpy's
    goes as the Python value that it is."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int:
        return Long(value)
    if isinstance(value, datetime):
        return _timestamp(to_milliseconds(value))
    return value


def properties(name: str, given: Mapping[str, Any] | Map, *, row: int | None = None) -> Map:
    """Named values as a map with string keys."""
    if not isinstance(given, (Mapping, Map)):
        raise InvalidArgumentError(name, f"must be a dict or a Map, not {given!r:.80}", row=row)
    pairs = given.pairs if isinstance(given, Map) else given.items()
    converted = []
    for key, value in pairs:
        if not isinstance(key, str):
            raise InvalidArgumentError(name, f"has the key {key!r:.80}, which is no string", row=row)
        text(f"{name} key {key!r:.80}", key, None, row=row)
        try:
            typed = amqp_value(value)
            # Encoded here once for nothing: what cannot be sent is found where its name is still known.
            encode_value(typed)
        except ValueError as problem:
            raise InvalidArgumentError(name, f"has a value for {key!r:.80} that cannot be sent: {problem}", row=row) from None
        converted.append((str(key), typed))
    return Map(converted)


def several(name: str, values: Iterable[Any]) -> list[Any]:
    """The items of a sequence that has at least one."""
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(name, f"must be a sequence, not {values!r:.80}")
    items = list(values)
    if not items:
        raise InvalidArgumentError(name, "must have at least one item")
    return items


def _uuid(name: str, value: UUID | str, row: int) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgumentError(name, f"must be a UUID, not {value!r:.80}", row=row) from None


def integer(value: Any) -> int | None:
    """An integer as Python's own, whatever kind it is (numpy has several); None for what is none: a bool only counts as one."""
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        return None


# The wire types check their range again when called; it was just held against the argument's own.
def _int(value: int) -> Int:
    return int.__new__(Int, value)


def _long(value: int) -> Long:
    return int.__new__(Long, value)


def _timestamp(value: int) -> Timestamp:
    return int.__new__(Timestamp, value)
