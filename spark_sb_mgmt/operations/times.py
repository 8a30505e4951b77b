"""Times: milliseconds on the wire, aware datetimes for people.

The one rule: exact both ways. A time below the millisecond is cut off towards the past; one without a time zone is refused, because
nobody can know which was meant.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> datetime:
    """The time that many milliseconds after 1970, UTC; OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(milliseconds=int(milliseconds))


def to_milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970; ValueError for a datetime that has no time zone."""
    if moment.utcoffset() is None:
        raise ValueError("a time without a time zone")
    return (moment - EPOCH) // _MILLISECOND
