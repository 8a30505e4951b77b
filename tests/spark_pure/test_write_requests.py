"""Rows of schedule-message as entries of requests: what goes into one request, and what follows from a row's place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.columns import COLUMNS, TIMESTAMP
from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.message import Data, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.operations.schedule import EncodedEntries
from spark_sb_mgmt.spark.options.objects import ScheduleOptions
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.writing.job_stamp import KEY
from spark_sb_mgmt.spark.writing.schedule_rows import ENVELOPE_BYTES, Entries, RowEncoder, check_time, pieces, problem_of, requests_of
from spark_sb_mgmt.spark.writing.write_operation import Job, TaskAttempt

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=timezone.utc)
JOB = Job("0123456789abcdef", int(NOW.timestamp() * 1000))
CONNECTION = "Endpoint=sb://ns/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
TIME = "2026-07-02T00:00:00Z"


def options(**given_options: str) -> ScheduleOptions:
    made = write_options(
        {"connectionString": "Endpoint=sb://ns/;SharedAccessKeyName=n;SharedAccessKey=a2V5", "queue": "q", **given_options}, {}
    )
    assert isinstance(made, ScheduleOptions)
    return made


def encoder(partition: int = 0, number: int = 0, job: Job = JOB, **given_options: str) -> RowEncoder:
    return RowEncoder(options(scheduledEnqueueTime=TIME, **given_options), job, TaskAttempt(partition, number, f"attempt-{number}"))


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values, COLUMNS[name].type) for name, values in columns.items()})


def encoded(rows: pa.RecordBatch, encode: RowEncoder, first: int = 0) -> list[tuple[Map, Message]]:
    """Entries and the messages in them."""
    entries = encode.encoded(encode.timed(rows), np.arange(first, first + rows.num_rows))
    maps = [decode_value(bytes(entries.encoded.cut(at, at + 1).joined))[0] for at in range(len(entries))]
    assert all(isinstance(entry, Map) for entry in maps)
    return [(entry, decode_message(entry["message"])) for entry in maps]


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 20), st.none() | st.integers(ENVELOPE_BYTES + 1, ENVELOPE_BYTES + 900))
def test_requests_have_all_entries_in_order_within_their_bounds(sizes: list[int], most: int, most_bytes: int | None) -> None:
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(len(sizes)), pa.int64())})
    ids = pa.array([str(at) for at in range(len(sizes))], pa.string())
    entries = Entries(rows, np.arange(len(sizes)), EncodedEntries.of([bytes(size) for size in sizes]), ids)
    requests = list(requests_of(entries, most, most_bytes))
    assert [place for request in requests for place in request.places.tolist()] == list(range(len(sizes)))
    for request in requests:
        assert request.rows.column("n").to_pylist() == request.places.tolist() == [int(one) for one in request.ids.to_pylist()]
        assert len(request) <= most
        size = request.encoded.size + ENVELOPE_BYTES
        assert len(request.encoded.joined) == request.encoded.size
        assert most_bytes is None or size <= most_bytes or len(request) == 1


@pytest.mark.parametrize("size", [0, 1, 5_000])
def test_pieces_are_all_rows(size: int) -> None:
    rows = pa.RecordBatch.from_pydict({"body": pa.array([bytes(size)] * 3_000, pa.binary())})
    found = list(pieces(rows, 500))
    assert [start for start, _ in found] == [sum(piece.num_rows for _, piece in found[:at]) for at in range(len(found))]
    assert sum(piece.num_rows for _, piece in found) == 3_000
    assert all(piece.num_rows * size <= 5 * 1024 * 1024 for _, piece in found)


def test_an_entry_repeats_what_the_service_routes_by() -> None:
    [(entry, message)] = encoded(
        batch(message_id=["id"], session_id=["s"], partition_key=["s"], via_partition_key=["v"], body=[b"x"]), encoder()
    )
    assert {key: entry[key] for key, _ in entry if key != "message"} == {
        "message-id": "id",
        "session-id": "s",
        "partition-key": "s",
        "via-partition-key": "v",
    }
    assert message.properties == Properties(message_id="id", group_id="s")


@pytest.mark.parametrize(
    "rows",
    [
        batch(body=[b"x", b"y"]),
        batch(message_id=[None, None], body=[b"x", b"y"]),
        batch(properties=[[("subject", {"type": "string", "value": "s"})], None], body=[b"x", b"y"]),
        batch(amqp_message=[encode_message(Message(body=Data((b"x",)))), encode_message(Message(properties=Properties(to="t")))]),
    ],
)
def test_a_message_without_an_id_gets_one_from_its_place(rows: pa.RecordBatch) -> None:
    for number in (0, 1):
        found = encoded(rows, encoder(partition=3, number=number), first=7)
        assert [entry["message-id"] for entry, _ in found] == [f"{JOB.id}-3-7", f"{JOB.id}-3-8"]
        assert [(message.properties or Properties()).message_id for _, message in found] == [f"{JOB.id}-3-7", f"{JOB.id}-3-8"]


def test_an_id_that_is_in_a_typed_section_stays() -> None:
    typed = [("message-id", {"type": "uuid", "value": "01234567-89ab-cdef-0123-456789abcdef"})]
    [(entry, message)] = encoded(batch(properties=[typed], body=[b"x"]), encoder())
    assert entry["message-id"] == "01234567-89ab-cdef-0123-456789abcdef"
    assert str((message.properties or Properties()).message_id) == "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    "rows",
    [
        batch(body=[b"x"]),
        batch(message_annotations=[[(KEY, {"type": "string", "value": "old"})]], body=[b"x"]),
        batch(amqp_message=[encode_message(Message(message_annotations=Map([(KEY, "old")]), body=Data((b"x",))))]),
    ],
)
def test_each_message_has_the_stamp_of_its_own_attempt_and_no_other(rows: pa.RecordBatch) -> None:
    [(_, message)] = encoded(rows, encoder(partition=2), first=5)
    stamps = [value for key, value in message.message_annotations or () if key == KEY]
    assert stamps == [f"{JOB.id}/2/attempt-0/5"]


def test_times_are_spread_the_same_way_by_each_attempt_and_another_way_by_each_partition() -> None:
    rows = batch(scheduled_enqueue_time=[NOW + timedelta(days=1)] * 50, body=[b"x"] * 50)

    def times(partition: int, number: int) -> list[datetime]:
        found = RowEncoder(options(spreadSeconds="60"), JOB, TaskAttempt(partition, number)).timed(rows)
        assert found.column("scheduled_enqueue_time").type == TIMESTAMP
        return list(found.column("scheduled_enqueue_time").to_pylist())

    assert times(0, 0) == times(0, 1) != times(1, 0)
    late = [time - NOW - timedelta(days=1) for time in times(0, 0)]
    assert timedelta(0) <= min(late) < max(late) <= timedelta(seconds=60)


def test_a_time_that_is_past_is_a_problem_of_its_row_but_not_in_a_stream() -> None:
    rows = batch(scheduled_enqueue_time=[NOW - timedelta(minutes=2), NOW + timedelta(seconds=1)], body=[b"x", b"x"])
    assert [problem.row for problem in encoder().problems(rows)] == [0]
    again = Job(JOB.id, JOB.started_ms, is_replayable=True)
    assert encoder(job=again).problems(rows) == []
    late = options(scheduledEnqueueTime="2026-07-01T11:58:00Z")
    with pytest.raises(InvalidArgumentError, match="option scheduledEnqueueTime is 2026-07-01T11:58:00"):
        check_time(late, JOB)
    check_time(late, again)


def test_a_time_that_passed_while_spark_got_ready_is_none() -> None:
    """`current_timestamp()` is before the job, and so is what a cold session is given for the next seconds."""
    assert encoder().problems(batch(scheduled_enqueue_time=[NOW - timedelta(seconds=30)], body=[b"x"])) == []
    check_time(options(scheduledEnqueueTime="2026-07-01T11:59:30Z"), JOB)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda: batch(body=[b"x", b"\xff"], body_type=["data", "value"]), "body is no encoded AMQP value"),
        (lambda: batch(amqp_message=[encode_message(Message(body=Data((b"x",)))), b"?"]), "amqp_message is no encoded AMQP message"),
    ],
)
def test_a_row_that_cannot_be_encoded_is_told_by_its_place(made: Callable[[], pa.RecordBatch], problem: str) -> None:
    with pytest.raises(EncodeError, match=problem) as caught:
        encoded(made(), encoder())
    assert caught.value.row == 1


def test_an_id_in_a_section_that_is_too_long_is_told_without_the_rows_place_in_its_piece() -> None:
    typed = [("message-id", {"type": "string", "value": "x" * 129})]
    with pytest.raises(InvalidArgumentError) as caught:
        encoded(batch(properties=[None, typed], body=[b"x", b"y"]), encoder())
    assert caught.value.row == 1
    assert problem_of(caught.value).startswith("message_id has 129 characters, 128 at most are allowed")
