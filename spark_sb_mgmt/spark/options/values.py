"""Text of an option to its value.

The one rule: a kind says in words what it allows and takes nothing else; it raises a plain ValueError, and who knows the option's name
makes the error that people see. Times without an offset are UTC: the session's time zone is not known where options are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS

# Each of these is asked for by its number, so a list far too long is a range that was meant to be searched.
MOST_LISTED_NUMBERS: Final = 10_000_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_NUMBERS: Final = re.compile(r"([0-9]{1,30})(?:\s*-\s*([0-9]{1,30}))?")
_TIME: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[Tt ](?P<minute>\d\d:\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?\s?"
    r"(?P<offset>[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Kind:
    """What an option's text may be, in words that follow "must be", and how it is read."""

    allowed: str
    read: Callable[[str], Any]


def integer(minimum: int, maximum: int) -> Kind:
    def read(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not minimum <= value <= maximum:
            raise ValueError
        return value

    return Kind(f"an integer from {minimum} to {_power(maximum)}", read)


def _power(number: int) -> str:
    """Large limits are easier read as powers of two."""
    for value, name in ((number, ""), (number + 1, " - 1")):
        if value >= 2**31 and value & (value - 1) == 0:
            return f"2^{value.bit_length() - 1}{name}"
    return str(number)


def choice(*names: str) -> Kind:
    """One of several words, in any case."""
    spelled = {name.lower(): name for name in names}

    def read(text: str) -> str:
        if text.lower() not in spelled:
            raise ValueError
        return spelled[text.lower()]

    return Kind(f"{', '.join(names[:-1])} or {names[-1]}", read)


def choices(*names: str) -> Kind:
    """Several of these words, divided by commas; read in the order in which they are known, each once."""
    one = choice(*names)

    def read(text: str) -> tuple[str, ...]:
        given = {one.read(part) for part in _parts(text)}
        return tuple(name for name in names if name in given)

    return Kind(f"one or more of {', '.join(names)}, divided by commas", read)


def integer_or(minimum: int, maximum: int, *names: str) -> Kind:
    words, numbers = choice(*names), integer(minimum, maximum)

    def read(text: str) -> int | str:
        value: int | str = numbers.read(text) if _INTEGER.fullmatch(text) else words.read(text)
        return value

    return Kind(f"{', '.join(names)} or {numbers.allowed}", read)


def _read_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _read_text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _read_file(text: str) -> str:
    # On the driver, which connects too: a task that does not find it says so only after the job has started.
    if not os.path.isfile(text) or not os.access(text, os.R_OK):
        raise ValueError("the driver cannot")
    return text


def _read_seconds(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    return float(text)


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parts(text)))


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError("there is nothing between two commas, or around one" if any(parts) else "")
    return parts


def _read_time(text: str) -> datetime:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError
    # Not datetime.fromisoformat: which forms it takes depends on the version of Python.
    try:
        moment = datetime.strptime(f"{found['day']} {found['minute'] or '00:00'}:{found['second'] or '00'}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        raise ValueError("there is no such day or time of day") from None
    moment = moment.replace(microsecond=int((found["fraction"] or "0").ljust(6, "0")[:6]), tzinfo=timezone.utc)
    try:
        return moment - _offset(found["offset"])
    except OverflowError:
        raise ValueError("it is outside the years 1 to 9999") from None


def _offset(text: str | None) -> timedelta:
    if text is None or text in "Zz":
        return timedelta(0)
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or "0")
    if hours > 18 or minutes > 59:
        raise ValueError("its offset is no time zone's")
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def _read_numbers(text: str) -> tuple[tuple[int, int], ...]:
    ranges = []
    for part in _parts(text):
        found = _NUMBERS.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r:.60} is neither a number nor a range")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{part!r:.60} ends before it starts")
        if last >= END_OF_NUMBERS:
            raise ValueError(f"{part!r:.60} is above 2^63 - 1")
        ranges.append((first, last + 1))
    merged = merge(ranges)
    count = sum(end - start for start, end in merged)
    if count > MOST_LISTED_NUMBERS:
        raise ValueError(
            f"these are {count} numbers, {MOST_LISTED_NUMBERS} at most can be listed: "
            "give fromSequenceNumber and untilSequenceNumber to search a range"
        )
    return merged


def merge(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges (end exclusive) as the fewest that hold the same numbers, ascending."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


TEXT: Final = Kind("a text that is not empty", _read_text)
FILE: Final = Kind("a file that driver and executors can read", _read_file)
ANY_TEXT: Final = Kind("a text", str)
FLAG: Final = Kind("true or false", _read_flag)
SECONDS: Final = Kind("a number of seconds of 0 or more, such as 30 or 0.5", _read_seconds)
NAMES: Final = Kind("one or more names, divided by commas", _read_names)
TIME: Final = Kind("a time in ISO 8601 such as 2026-01-31T18:30:00Z or 2026-01-31T18:30:00+02:00; without an offset it is UTC", _read_time)
# Ranges as they are meant inside: the end is exclusive.
NUMBERS: Final = Kind("sequence numbers and ranges of them (both ends included), divided by commas, such as 7,9,100-200", _read_numbers)
