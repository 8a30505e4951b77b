"""Values in expressions: which can be compared, what arithmetic makes of them, and how one is turned into another's type.

The one rule: as in C#, whose operators the documentation refers to. A value that is null or of a property that does not exist is `None`
and never gets here. Where C# has no operator for two types, the result is a `RuleEvaluationError`, not false: a subscription
that compares a string with a number would else lose messages without a word.

Beyond C#, where the documentation leaves it open:
- Numbers of all widths compare by value, ulong with the signed ones too. Arithmetic that leaves the range of its type is an error.
- Strings compare in the order of their characters. Symbols and chars count as strings, and so does the .NET client's Uri.
- A string next to a timestamp, duration or uuid is read as one: rules that come over AMQP have no other way to write such a constant.
- Decimals, lists, maps and arrays can be tested for existence only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Final
from uuid import UUID

from spark_sb_mgmt.amqp.types import (
    Byte,
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    type_name,
)
from spark_sb_mgmt.emulator.durations import parse_duration
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from spark_sb_mgmt.errors import EncodeError
from spark_sb_mgmt.operations.times import EPOCH, to_milliseconds


class Kind(Enum):
    """Values of one kind compare with each other; the value of a member is how people call it."""

    INTEGER = "an integer"
    FLOATING = "a floating-point number"
    TEXT = "a string"
    BOOLEAN = "a boolean"
    TIME = "a timestamp"
    DURATION = "a duration"
    UUID = "a uuid"
    BINARY = "a binary"


_KINDS: Final[dict[type, Kind]] = {
    **dict.fromkeys((UByte, UShort, UInt, ULong, Byte, Short, Int, Long), Kind.INTEGER),
    **dict.fromkeys((float, Float), Kind.FLOATING),
    **dict.fromkeys((str, Symbol), Kind.TEXT),
    bool: Kind.BOOLEAN,
    Timestamp: Kind.TIME,
    timedelta: Kind.DURATION,
    UUID: Kind.UUID,
    bytes: Kind.BINARY,
}
_NUMBERS: Final = frozenset((Kind.INTEGER, Kind.FLOATING))
_ORDERED: Final = _NUMBERS | {Kind.TEXT, Kind.TIME, Kind.DURATION}
_EQUALITY: Final = frozenset((operator.eq, operator.ne))

Comparison = Callable[[Value, Value], bool]
COMPARISONS: Final[dict[str, Comparison]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGNS: Final = {operator.eq: "=", operator.ne: "<>", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}


def describe(value: Value) -> str:
    """What a value is, for an error: its kind, not what it holds."""
    if value is None:
        return "null"
    kind = _KINDS.get(type(value))
    return kind.value if kind is not None else f"an AMQP {type_name(value)}"


# --- values of .NET that AMQP has no type for -------------------------------------------------------------------------------------------

# Under these descriptors the .NET client sends them.
_TIMESPAN: Final = "com.microsoft:timespan"
_DATETIME_OFFSET: Final = "com.microsoft:datetime-offset"
_URI: Final = "com.microsoft:uri"
_TICKS_PER_MICROSECOND: Final = 10
_TICKS_PER_MILLISECOND: Final = 10_000
# Of the Unix epoch, counted from the year 1.
_EPOCH_TICKS: Final = 621_355_968_000_000_000


def from_wire(value: Value) -> Value:
    """A property's value as expressions see it."""
    kind = type(value)
    if kind is Described:
        return _from_described(value)
    if kind is Char:
        return chr(value) if value <= 0x10FFFF else value
    return value


def _from_described(value: Described) -> Value:
    inner = value.value
    if value.descriptor == _TIMESPAN and type(inner) is Long:
        return timedelta(microseconds=inner // _TICKS_PER_MICROSECOND)
    if value.descriptor == _DATETIME_OFFSET and type(inner) is Long:
        return Timestamp((inner - _EPOCH_TICKS) // _TICKS_PER_MILLISECOND)
    if value.descriptor == _URI and isinstance(inner, str):
        return inner
    return value


def to_wire(value: Value) -> Value:
    """An expression's value as a property has it."""
    if type(value) is not timedelta:
        return value
    ticks = value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND
    if not Long.minimum <= ticks <= Long.maximum:
        raise RuleEvaluationError("a duration is longer than a property can have")
    return Described(Symbol(_TIMESPAN), Long(ticks))


# --- comparison ---------------------------------------------------------------------------------------------------------------------------


def compare(comparison: Comparison, left: Value, right: Value) -> bool:
    """Two values that are there, compared."""
    left_kind, right_kind = _KINDS.get(type(left)), _KINDS.get(type(right))
    if left_kind is right_kind and left_kind is not None:
        if left_kind in _ORDERED or comparison in _EQUALITY:
            return comparison(left, right)
    elif left_kind in _NUMBERS and right_kind in _NUMBERS:
        return comparison(*_as_floats(left, right))
    elif left_kind is Kind.TEXT and right_kind is not None and right_kind in _READERS:
        return comparison(_read(left, right_kind), right)
    elif right_kind is Kind.TEXT and left_kind is not None and left_kind in _READERS:
        return comparison(left, _read(right, left_kind))
    raise RuleEvaluationError(f"{_SIGNS[comparison]} cannot compare {describe(left)} with {describe(right)}")


def equal(left: Value, right: Value) -> bool:
    """The correlation filter's equality: strings and symbols alike, numbers by value, and what cannot be compared is not equal."""
    left_kind, right_kind = _KINDS.get(type(left)), _KINDS.get(type(right))
    if left_kind is not right_kind and not (left_kind in _NUMBERS and right_kind in _NUMBERS):
        return False
    return bool(left == right)


def _as_floats(left: Value, right: Value) -> tuple[float, float]:
    """C#: with a double in it, both are doubles; else with a float, both are floats."""
    if float in (type(left), type(right)):
        return float(left), float(right)
    return _single(float(left)), _single(float(right))


def _single(value: float) -> Float:
    try:
        return Float(value)
    except EncodeError:
        return Float(math.copysign(math.inf, value))


def _read_time(text: str) -> Timestamp:
    # Python before 3.11 knows the Z of UTC only by its number.
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    return Timestamp(to_milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)))


def _read_duration(text: str) -> timedelta:
    return timedelta(milliseconds=parse_duration(text))


_READERS: Final[dict[Kind, Callable[[str], Value]]] = {Kind.TIME: _read_time, Kind.DURATION: _read_duration, Kind.UUID: UUID}


def _read(text: str, kind: Kind) -> Value:
    try:
        return _READERS[kind](text)
    except (ValueError, OverflowError):
        raise RuleEvaluationError(f"the string {text!r:.80} cannot be read as {kind.value}") from None


# --- arithmetic ---------------------------------------------------------------------------------------------------------------------------


def arithmetic(sign: str, left: Value, right: Value) -> Value:
    """Two values that are there, computed."""
    left_kind, right_kind = _KINDS.get(type(left)), _KINDS.get(type(right))
    try:
        if left_kind is Kind.INTEGER and right_kind is Kind.INTEGER:
            return _integer(_INTEGER[sign](int(left), int(right)), type(left), type(right))
        if left_kind in _NUMBERS and right_kind in _NUMBERS:
            return _floating(sign, *_as_floats(left, right))
        if sign == "+" and Kind.TEXT in (left_kind, right_kind) and left_kind and right_kind:
            return as_text(left) + as_text(right)
        if (sign, left_kind, right_kind) in _TEMPORAL:
            return _TEMPORAL[sign, left_kind, right_kind](left, right)
    except (OverflowError, EncodeError):
        raise RuleEvaluationError(f"the result of {sign} is outside the range of its type") from None
    except ZeroDivisionError:
        raise RuleEvaluationError(f"{sign} divides an integer by zero") from None
    raise RuleEvaluationError(f"{sign} cannot be applied to {describe(left)} and {describe(right)}")


def negate(value: Value) -> Value:
    kind = _KINDS.get(type(value))
    if kind is Kind.FLOATING:
        return _single(-value) if type(value) is Float else -value
    if kind is Kind.DURATION:
        return -value
    if kind is Kind.INTEGER and type(value) is not ULong:
        result = -int(value)
        promoted = Long if type(value) in (Long, UInt) else Int
        if result <= promoted.maximum:
            return promoted(result)
        raise RuleEvaluationError("the result of - is outside the range of its type")
    raise RuleEvaluationError(f"- cannot be applied to {describe(value)}")


def posit(value: Value) -> Value:
    if _KINDS.get(type(value)) not in _NUMBERS:
        raise RuleEvaluationError(f"+ cannot be applied to {describe(value)}")
    return value


def _quotient(left: int, right: int) -> int:
    """C# rounds towards zero, Python down."""
    magnitude = abs(left) // abs(right)
    return magnitude if (left < 0) == (right < 0) else -magnitude


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


_INTEGER: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_UNSIGNED: Final = frozenset((UByte, UShort, UInt, ULong))


def _integer(value: int, left: type, right: type) -> Value:
    """C#'s binary numeric promotion."""
    both = (left, right)
    unsigned = left in _UNSIGNED and right in _UNSIGNED
    if ULong in both:
        # C# has no type for ulong with a signed one; here it is the one that the result fits.
        return ULong(value) if unsigned or value > Long.maximum else Long(value)
    if Long in both:
        return Long(value)
    if UInt in both:
        return UInt(value) if unsigned else Long(value)
    return Int(value)


def _floating(sign: str, left: float, right: float) -> float:
    if sign == "/":
        result = _divide(left, right)
    elif sign == "%":
        result = math.nan if right == 0 or math.isinf(left) or math.isnan(left) else math.fmod(left, right)
    else:
        result = _FLOATING[sign](float(left), float(right))
    return _single(result) if type(left) is Float else result


_FLOATING: Final[dict[str, Callable[[float, float], float]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _divide(left: float, right: float) -> float:
    if right != 0:
        return float(left) / float(right)
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _moved(time: Timestamp, duration: timedelta) -> Timestamp:
    return Timestamp(int(time) + duration // timedelta(milliseconds=1))


_TEMPORAL: Final[dict[tuple[str, Kind | None, Kind | None], Callable[[Value, Value], Value]]] = {
    ("-", Kind.TIME, Kind.TIME): lambda left, right: timedelta(milliseconds=int(left) - int(right)),
    ("+", Kind.TIME, Kind.DURATION): _moved,
    ("-", Kind.TIME, Kind.DURATION): lambda left, right: _moved(left, -right),
    ("+", Kind.DURATION, Kind.DURATION): operator.add,
    ("-", Kind.DURATION, Kind.DURATION): operator.sub,
}


# --- conversion ---------------------------------------------------------------------------------------------------------------------------


def as_text(value: Value) -> str:
    """A value as its text, as .NET writes it."""
    kind = _KINDS.get(type(value))
    if kind is Kind.TEXT:
        return str(value)
    if kind is Kind.BINARY:
        return bytes(value).hex()
    if kind is Kind.TIME:
        try:
            return (EPOCH + timedelta(milliseconds=int(value))).isoformat()
        except OverflowError:
            raise RuleEvaluationError("a timestamp is outside the years 1 to 9999") from None
    if kind is Kind.FLOATING:
        return _float_text(float(value))
    if kind is None:
        raise RuleEvaluationError(f"{describe(value)} has no text")
    return str(value)


def _float_text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def as_duration(value: Value) -> timedelta:
    if type(value) is timedelta:
        return value
    if isinstance(value, str):
        duration: timedelta = _read(value, Kind.DURATION)
        return duration
    raise RuleEvaluationError(f"a duration is needed, such as 'PT1M', not {describe(value)}")


def as_time(value: Value) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if isinstance(value, str):
        time: Timestamp = _read(value, Kind.TIME)
        return time
    raise RuleEvaluationError(f"a timestamp is needed, such as '2026-01-31T12:00:00Z', not {describe(value)}")


def converted(value: Value, existing: Value) -> Value:
    """A new value of a property as the type that the property has, where C# or the text of the value allows; else as it is."""
    wanted = type(existing)
    if value is None or type(value) is wanted:
        return value
    kind, wanted_kind = _KINDS.get(type(value)), _KINDS.get(wanted)
    try:
        if kind is Kind.TEXT:
            return _converted_text(str(value), wanted, wanted_kind)
        if kind is Kind.INTEGER and wanted_kind in _NUMBERS:
            return wanted(value)
        if kind is Kind.FLOATING and wanted_kind is Kind.FLOATING:
            return wanted(value)
        if wanted_kind is Kind.TEXT:
            return _converted_text(as_text(value), wanted, wanted_kind)
    except (ValueError, OverflowError):
        pass
    return value


_BOOLEANS: Final = {"true": True, "false": False}


def _converted_text(text: str, wanted: type, kind: Kind | None) -> Value:
    if kind is Kind.INTEGER:
        return wanted(int(text)) if text.isascii() else text
    if kind is Kind.FLOATING:
        return wanted(float(text)) if text.isascii() else text
    if kind is Kind.BOOLEAN:
        return _BOOLEANS.get(text.lower(), text)
    if kind is not None and kind in _READERS:
        return _READERS[kind](text)
    if wanted is Symbol and text.isascii():
        return Symbol(text)
    return text
