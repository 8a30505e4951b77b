"""The compiled encoder of rows and the reference beside it: the same entries to the last byte, the same errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.columns import COLUMNS
from spark_sb_mgmt.amqp.native import native_encoder
from spark_sb_mgmt.amqp.native_encode import Stamps, encode_plain_entries
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.operations.schedule import ENTRY
from spark_sb_mgmt.spark.options.objects import ScheduleOptions
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.writing.schedule_rows import RowEncoder
from spark_sb_mgmt.spark.writing.write_operation import Job, TaskAttempt

JOB = Job("0123456789abcdef", 1_700_000_000_000)
WHEN = datetime(2030, 1, 1, 12, 0, 0, 123_999, tzinfo=timezone.utc)
TEXTS = ("session_id", "partition_key", "via_partition_key", "correlation_id", "subject", "to", "reply_to", "reply_to_session_id")
PROPERTIES = {"a": pa.string(), "b": pa.bool_(), "i": pa.int32(), "l": pa.int64(), "d": pa.float64(), "raw": pa.binary()}
# Around the borders of the short and the long forms: of one value, and, with all that stands beside, of a section and of an entry.
SIZES = (0, 1, 20, 60, 100, 126, 127, 128)
LONG_SIZES = (*SIZES, *range(150, 260, 9), 254, 255, 256, 257, 65_536)

characters = st.characters(exclude_categories=["Cs"])
ids = st.text(characters, max_size=128) | st.sampled_from(SIZES).map(lambda size: "i" * size)
texts = st.text(characters, max_size=12) | st.sampled_from(LONG_SIZES).map(lambda size: "t" * size)
bodies = st.binary(max_size=12) | st.sampled_from(LONG_SIZES).map(bytes)
# Some are called as a property column is.
pairs = st.lists(st.tuples(texts | st.sampled_from(["a", "i"]), st.none() | texts), max_size=3) | st.just([("k", "v")] * 130)
of_properties: dict[str, st.SearchStrategy[Any]] = {
    "a": texts,
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1) | st.integers(-130, 130),
    "l": st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130),
    "d": st.floats(),
    "raw": bodies,
}
times = st.datetimes(timezones=st.just(timezone.utc))
cells: dict[str, st.SearchStrategy[Any]] = {
    "message_id": st.none() | ids,
    **dict.fromkeys(TEXTS[:3], st.none() | ids),
    **dict.fromkeys((*TEXTS[3:], "content_type"), st.none() | texts),
    "application_properties": st.none() | pairs,
    "body": st.none() | bodies,
    "body_type": st.none() | st.just("data"),
    "scheduled_enqueue_time": times,
    **{name: st.none() | values for name, values in of_properties.items()},
}


@pytest.fixture(autouse=True)
def is_built() -> None:
    assert native_encoder() is not None


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Plain rows, cut out of a batch that is larger."""
    names = draw(st.sets(st.sampled_from(sorted(cells)), min_size=1))
    count = draw(st.integers(1, 12))
    types = {name: PROPERTIES.get(name) or COLUMNS[name].type for name in sorted(names)}
    columns = {name: pa.array(draw(st.lists(cells[name], min_size=count, max_size=count)), kind) for name, kind in types.items()}
    start = draw(st.integers(0, count - 1))
    return pa.RecordBatch.from_pydict(columns).slice(start, draw(st.integers(1, count - start)))


def encoder(rows: pa.RecordBatch) -> RowEncoder:
    given_options = {"connectionString": "Endpoint=sb://ns/;SharedAccessKeyName=n;SharedAccessKey=a2V5", "queue": "q"}
    properties = ",".join(name for name in rows.schema.names if name in PROPERTIES)
    if properties:
        given_options["propertyColumns"] = properties
    options = write_options({"scheduledEnqueueTime": "2030-01-01T00:00:00Z", **given_options}, {})
    assert isinstance(options, ScheduleOptions)
    return RowEncoder(options, JOB, TaskAttempt(7, 0, "3-1234abcd"))


@contextmanager
def without_it() -> Iterator[None]:
    os.environ["SBMGMT_NATIVE"] = "0"
    try:
        yield
    finally:
        del os.environ["SBMGMT_NATIVE"]


def outcome(rows: pa.RecordBatch, first: int) -> Any:
    """Entries and their ids, or the error."""
    encode = encoder(rows)
    try:
        entries = encode.encoded(encode.timed(rows), np.arange(first, first + rows.num_rows))
    except (EncodeError, InvalidArgumentError) as problem:
        return type(problem), str(problem), problem.row
    cut = [entries.cut(at, at + 1) for at in range(len(entries))]
    return [bytes(one.encoded.joined) for one in cut], [one.ids.to_pylist() for one in cut]


def plain(rows: pa.RecordBatch, properties: tuple[str, ...] = ()) -> object:
    """What the compiled encoder alone makes of rows."""
    return encode_plain_entries(rows, ENTRY, property_columns=properties, stamps=Stamps("k", "p/", np.arange(rows.num_rows)))


def rows_of(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values, COLUMNS[name].type) for name, values in columns.items()})


@given(batches(), st.integers(0, 2**40))
@example(rows_of(message_id=["m"], application_properties=[[]]), 0)
@example(rows_of(message_id=["m" * 128], body=[b"x" * 1024], scheduled_enqueue_time=[datetime(1969, 12, 31, tzinfo=timezone.utc)]), 9)
def test_entries_are_the_same_to_the_last_byte(rows: pa.RecordBatch, first: int) -> None:
    found = outcome(rows, first)
    with without_it():
        assert outcome(rows, first) == found
    # Nobody stepped aside.
    named = rows if "message_id" in rows.schema.names else rows.append_column("message_id", pa.array(["m"] * rows.num_rows))
    if not named.column("message_id").null_count:
        assert plain(named, tuple(name for name in rows.schema.names if name in PROPERTIES)) is not None


@pytest.mark.parametrize("length", [126, 127, 128, 129])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f41d"])
@pytest.mark.parametrize("column", ["message_id", *TEXTS[:3]])
def test_an_id_that_is_too_long_is_the_same_error(column: str, letter: str, length: int) -> None:
    rows = rows_of(**{"message_id": ["a", "b"], column: ["c", letter * length], "body": [b"x", b"y"]})
    found = outcome(rows, 0)
    with without_it():
        assert outcome(rows, 0) == found
    assert (found[-1] == 1) == (length > 128)


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(message_id=["a"], time_to_live_ms=[5]),
        rows_of(message_id=["a"], header=[[("durable", {"type": "boolean", "value": "true"})]]),
        rows_of(message_id=["a"], body=[b"\xa1\x01x"], body_type=["value"]),
        rows_of(message_id=["a"], scheduled_enqueue_time=[None]),
        rows_of(message_id=[None], body=[b"x"]),
        rows_of(body=[b"x"]),
        # Spark does not look whether what it calls text is UTF-8.
        rows_of(message_id=["a"]).append_column("subject", pa.array([b"\xff"]).view(pa.string())),
        rows_of(message_id=["a"]).append_column("subject", pa.array([b"\xed\xa0\x80"]).view(pa.string())),
    ],
)
def test_what_is_not_plain_is_left_to_the_reference(rows: pa.RecordBatch) -> None:
    assert plain(rows) is None


def test_a_property_column_of_another_type_is_left_to_the_reference() -> None:
    rows = rows_of(message_id=["a"]).append_column("when", pa.array([WHEN], pa.timestamp("us", tz="UTC")))
    assert plain(rows, ("when",)) is None


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_any_unit_are_cut_off_towards_the_past(unit: str) -> None:
    times = pa.array([WHEN, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)], pa.timestamp("us", tz="UTC"))
    rows = rows_of(message_id=["a", "b"]).append_column("scheduled_enqueue_time", times.cast(pa.timestamp(unit, tz="UTC"), safe=False))
    found = plain(rows)
    assert isinstance(found, tuple)
    expected = (1_893_499_200_123, 0 if unit == "ms" else -1)
    assert all(b"\x83" + time.to_bytes(8, "big", signed=True) in found[0] for time in expected)


@pytest.mark.parametrize("damage", ["offsets", "data", "validity"])
def test_buffers_that_are_too_short_are_not_read_beyond_their_end(damage: str) -> None:
    """Arrow trusts what it is given; this does not."""
    offsets = np.array([0, 3, 100 if damage == "data" else 6], np.int32).tobytes()
    buffers = [pa.py_buffer(b"\x03"), pa.py_buffer(offsets), pa.py_buffer(b"abcdef")]
    if damage == "offsets":
        buffers[1] = pa.py_buffer(offsets[:8])
    if damage == "validity":
        buffers[0] = pa.py_buffer(b"")
    native = native_encoder()
    assert native is not None
    column = (b"\xa1\x01k", 0xA1, 0, *buffers)
    assert native.encode(2, (), (), None, (), (), (column,), b"\xa1\x01m", 128) is None
