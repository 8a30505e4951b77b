"""ISO 8601 durations, as Service Bus writes them: `PT1M`, `P14D`, `P10675199DT2H48M5.4775807S`."""

from __future__ import annotations

import re
from decimal import Decimal

_DURATION = re.compile(r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?")
# TimeSpan.MaxValue of .NET, with which Service Bus says "never".
FOREVER = 922_337_203_685_477


def parse_duration(text: str) -> int:
    """Milliseconds of a duration; ValueError if the text is none. Years and months are none: they have no fixed length."""
    match = _DURATION.fullmatch(text)
    if match is None or text in ("P", "PT"):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as PT1M, PT30S or P14D")
    days, hours, minutes = (int(match[part] or 0) for part in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(Decimal(match["seconds"] or 0) * 1000)
