"""Times and sequence numbers in options."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.spark.options.values import NUMBERS, TIME, integer, merge
from spark_sb_mgmt.spark.suggestions import closest, did_you_mean

UTC = timezone.utc
EXPECTED = datetime(2026, 1, 31, 18, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T18:30:00Z", EXPECTED),
        ("2026-01-31t18:30:00z", EXPECTED),
        ("2026-01-31 18:30:00", EXPECTED),
        ("2026-01-31T18:30", EXPECTED),
        ("2026-01-31T20:30:00+02:00", EXPECTED),
        ("2026-01-31T20:30:00 +0200", EXPECTED),
        ("2026-01-31T13:00-05:30", EXPECTED),
        ("2026-01-31T19:30:00+01", EXPECTED),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T18:30:00.5", EXPECTED + timedelta(milliseconds=500)),
        ("2026-01-31T18:30:00,123456789Z", EXPECTED + timedelta(microseconds=123456)),
        ("9999-12-31T23:59:59.999Z", datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ],
)
def test_times_without_an_offset_are_utc(text: str, expected: datetime) -> None:
    assert TIME.read(text) == expected
    assert TIME.read(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1769884200",
        "2026-1-31",
        "2026-13-01",
        "2026-02-30",
        "2026-01-31T25:00",
        "2026-01-31T18:30:60",
        "2026-01-31T18:30+19:00",
        "2026-01-31T18:30+02:60",
        "2026-01-31Z",
        "0001-01-01T00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٦-01-31",
        "2026-01-31T18:30:00Z x",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$|no such|outside|offset"):
        TIME.read(text)


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-18 * 60, 18 * 60))
def test_every_time_that_python_writes_is_read(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert TIME.read(aware.isoformat()) == aware


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), min_size=1, max_size=12))
def test_numbers_are_what_a_person_would_count(listed: list[tuple[int, int]]) -> None:
    text = ",".join(str(first) if not more else f"{first}-{first + more}" for first, more in listed)
    wanted = {number for first, more in listed for number in range(first, first + more + 1)}
    ranges = NUMBERS.read(text)
    assert [number for start, end in ranges for number in range(start, end)] == sorted(wanted)
    # Compact: no two ranges touch.
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def test_a_wide_range_takes_no_room() -> None:
    assert NUMBERS.read("1-10000000") == ((1, 10_000_001),)
    with pytest.raises(ValueError, match="these are 10000001 numbers"):
        NUMBERS.read("0-10000000")
    assert merge([]) == ()


def test_limits_are_said_as_powers_of_two() -> None:
    assert integer(0, 2**63 - 1).allowed == "an integer from 0 to 2^63 - 1"
    assert integer(0, 2**63).allowed == "an integer from 0 to 2^63"
    assert integer(1, 4500).allowed == "an integer from 1 to 4500"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sessionid", "session_id"), ("SESSION-ID", "session_id"), ("sesion_id", "session_id"), ("bod", "body"), ("zzz", None), ("b", None)],
)
def test_did_you_mean(name: str, expected: str | None) -> None:
    assert closest(name, ["session_id", "body", "message_id"]) == expected
    assert did_you_mean(name, ["session_id", "body", "message_id"]) == (f", did you mean {expected}" if expected else "")
