"""Rows that cannot be sent: found before any is, and named as their owner knows them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from spark_sb_mgmt.amqp.arrow_encode import encode_messages
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, check_rows, plain_batch, row_name, row_problems
from spark_sb_mgmt.spark.writing.write_schema import WRITE_COLUMNS

TOKEN = "03020100-0504-0706-0809-0a0b0c0d0e0f"
NEW_YORK = pa.timestamp("us", tz="America/New_York")


def batch(operation: str, **columns: list[Any]) -> pa.RecordBatch:
    """Rows with the types of the operation's columns; others as Arrow guesses."""
    known = WRITE_COLUMNS[operation]
    arrays = {name: pa.array(values, known[name][0]) if name in known else pa.array(values) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def problems(operation: str, option: str | None = None, **columns: list[Any]) -> list[tuple[int, str]]:
    return [(row, problem) for row, problem in row_problems(batch(operation, **columns), operation, disposition_status=option)]


@pytest.mark.parametrize(
    ("operation", "columns"),
    [
        ("schedule-message", {"message_id": ["x" * 128, None, ""], "body": [b"", None, b"x"], "body_type": ["data", None, "value"]}),
        ("schedule-message", {"session_id": ["ü" * 128], "time_to_live_ms": [0], "partition_key": [None]}),
        ("cancel-scheduled-message", {"sequence_number": [0, 2**63 - 1]}),
        ("update-disposition", {"lock_token": [TOKEN, TOKEN.upper(), TOKEN.replace("-", "")], "disposition_status": ["completed"] * 3}),
        (
            "update-disposition",
            {"sequence_number": [7, 8], "disposition_status": ["suspended", "deferred"], "deadletter_reason": ["x" * 4096, None]},
        ),
        ("set-session-state", {"session_id": ["s", ""], "session_state": [None, b"x"]}),
        ("renew-session-lock", {"session_id": ["s"]}),
        ("add-rule", {"rule_name": ["r" * 50], "sql_expression": ["x" * 1024], "action_expression": [None]}),
        ("batch-delete-messages", {"session_id": ["s"]}),
        ("batch-delete-messages", {"id": [None, 1]}),
    ],
)
def test_right_rows(operation: str, columns: dict[str, list[Any]]) -> None:
    assert problems(operation, **columns) == []


@pytest.mark.parametrize(
    ("operation", "columns", "expected"),
    [
        (
            "cancel-scheduled-message",
            {"sequence_number": [1, None]},
            [(1, "sequence_number is null, and cancel-scheduled-message needs it")],
        ),
        ("cancel-scheduled-message", {"sequence_number": [-47, 1]}, [(0, "sequence_number is -47: it must be 0 or more")]),
        (
            "schedule-message",
            {"scheduled_enqueue_time": [None, datetime(2030, 1, 1, tzinfo=timezone.utc)]},
            [(0, "scheduled_enqueue_time is null, and schedule-message needs it")],
        ),
        ("schedule-message", {"amqp_message": [None]}, [(0, "amqp_message is null, and schedule-message needs it")]),
        ("schedule-message", {"message_id": ["ok", "x" * 129]}, [(1, "message_id has 129 characters, 128 at most are allowed")]),
        ("schedule-message", {"via_partition_key": ["x" * 200]}, [(0, "via_partition_key has 200 characters, 128 at most are allowed")]),
        ("schedule-message", {"time_to_live_ms": [-1]}, [(0, "time_to_live_ms is -1: it must be 0 or more")]),
        ("schedule-message", {"body_type": ["text"]}, [(0, "body_type is text: it must be one of data, sequence, value")]),
        (
            "renew-lock",
            {"lock_token": ["abc", None]},
            [(0, "lock_token is abc, which is no UUID"), (1, "lock_token is null, and renew-lock needs it")],
        ),
        ("renew-lock", {"lock_token": [TOKEN + "0"]}, [(0, f"lock_token is {TOKEN}0, which is no UUID")]),
        ("renew-session-lock", {"session_id": [None]}, [(0, "session_id is null, and renew-session-lock needs it")]),
        (
            "set-session-state",
            {"session_id": ["x" * 129], "session_state": [b""]},
            [(0, "session_id has 129 characters, 128 at most are allowed")],
        ),
        ("batch-delete-messages", {"session_id": ["s", None]}, [(1, "session_id is null, and batch-delete-messages needs it")]),
        (
            "remove-rule",
            {"rule_name": ["", "r" * 51]},
            [(0, "rule_name is empty"), (1, "rule_name has 51 characters, 50 at most are allowed")],
        ),
        (
            "add-rule",
            {"rule_name": ["r"], "sql_expression": ["x" * 1025]},
            [(0, "sql_expression has 1025 characters, 1024 at most are allowed")],
        ),
        (
            "update-disposition",
            {"lock_token": [TOKEN] * 3, "disposition_status": ["done", None, "defered"]},
            [
                (0, "disposition_status is done: it must be one of completed, abandoned, suspended, deferred"),
                (1, "disposition_status is null, and update-disposition needs it"),
                (2, "disposition_status is defered: it must be one of completed, abandoned, suspended, deferred"),
            ],
        ),
        (
            "update-disposition",
            {"sequence_number": [1], "disposition_status": ["completed"], "deadletter_reason": ["why"]},
            [(0, "deadletter_reason is only for disposition_status suspended, not completed: make it null")],
        ),
    ],
)
def test_wrong_rows(operation: str, columns: dict[str, list[Any]], expected: list[tuple[int, str]]) -> None:
    assert problems(operation, **columns) == expected


def test_the_option_is_the_disposition_of_every_row() -> None:
    assert problems("update-disposition", "suspended", sequence_number=[1], deadletter_description=["why"]) == []
    assert problems("update-disposition", "deferred", sequence_number=[1], deadletter_description=["why"]) == [
        (0, "deadletter_description is only for disposition_status suspended, not deferred: make it null")
    ]
    modified = [[("k", "v")], None]
    assert problems("update-disposition", "abandoned", sequence_number=[1, 2], properties_to_modify=modified) == []
    assert [row for row, _ in problems("update-disposition", "completed", sequence_number=[1, 2], properties_to_modify=modified)] == [0]


def test_one_problem_for_each_row() -> None:
    found = problems("update-disposition", lock_token=[None, "x"], disposition_status=["done", "done"], session_id=["x" * 129, None])
    assert [row for row, _ in found] == [0, 1]


def test_a_time_that_is_too_early_in_any_time_zone() -> None:
    times = pa.array([999_999, 1_000_000, None], pa.int64()).cast(NEW_YORK)
    rows = pa.RecordBatch.from_pydict({"scheduled_enqueue_time": times, "message_id": ["a", "b", "c"]})
    assert row_problems(rows.slice(0, 2), "schedule-message") == []
    assert row_problems(rows, "schedule-message", not_before_ms=1000) == [
        RowProblem(0, "scheduled_enqueue_time is 1970-01-01T00:00:00.999000+00:00, which is before 1970-01-01T00:00:01+00:00"),
        RowProblem(2, "scheduled_enqueue_time is null, and schedule-message needs it"),
    ]


def test_a_batch_without_rows_and_a_slice_of_one() -> None:
    rows = batch("cancel-scheduled-message", sequence_number=[1, None, 3])
    assert row_problems(rows.slice(0, 0), "cancel-scheduled-message") == []
    assert [row for row, _ in row_problems(rows.slice(1), "cancel-scheduled-message")] == [0]


def test_a_row_key_is_not_checked_whatever_its_name() -> None:
    assert problems("cancel-scheduled-message", sequence_number=[1], message_id=["x" * 500]) == []


# --- names of rows ----------------------------------------------------------------------------------------------------------


def test_a_row_is_named_by_its_key_else_by_what_tells_it_apart() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"x", b"y"]),
            "session_id": ["s", None],
            "message_id": ["m", None],
            "order": [17, 18],
            "country": ["PT", "NO"],
            "city": ["Porto", "Oslo"],
        }
    )
    assert row_name(rows, 0, "order") == "row with order=17"
    assert row_name(rows, 0) == "row with message_id=m, session_id=s, order=17"
    assert row_name(rows, 1) == "row with order=18, country=NO, city=Oslo"
    assert row_name(rows.select(["body"]), 1) == "row 1 of its batch"
    assert row_name(pa.RecordBatch.from_pydict({"message_id": ["x" * 500]}), 0) == f"row with message_id={'x' * 60}..."


def test_the_error_of_a_job_names_row_problem_and_how_many_more() -> None:
    rows = batch("cancel-scheduled-message", sequence_number=[5, -1, None], order=["a", "b", "c"])
    found = row_problems(rows, "cancel-scheduled-message")
    with pytest.raises(InvalidArgumentError) as caught:
        check_rows(rows, "cancel-scheduled-message", "order", found)
    assert str(caught.value) == (
        "row with order=b: sequence_number is -1: it must be 0 or more (2 rows of this batch cannot be sent) (cancel-scheduled-message)"
    )
    check_rows(rows, "cancel-scheduled-message", "order", [])


def test_a_secret_in_a_value_is_not_shown() -> None:
    rows = batch("schedule-message", message_id=["SharedAccessKey=c2VjcmV0"], time_to_live_ms=[-1])
    with pytest.raises(InvalidArgumentError) as caught:
        check_rows(rows, "schedule-message", None, row_problems(rows, "schedule-message"))
    assert "c2VjcmV0" not in str(caught.value)


# --- types ------------------------------------------------------------------------------------------------------------------


def test_large_types_become_those_that_the_encoder_knows() -> None:
    large = pa.large_string()
    rows = pa.RecordBatch.from_pydict(
        {
            "message_id": pa.array(["m"], large),
            "body": pa.array([b"x"], pa.large_binary()),
            "time_to_live_ms": pa.array([5]),
            "application_properties": pa.array([[("k", None)]], pa.map_(large, large)),
            "typed_properties": pa.array(
                [[("t", {"type": "int", "value": "1"})]], pa.map_(large, pa.struct([("type", large), ("value", large)]))
            ),
        }
    )
    plain = plain_batch(rows, "schedule-message")
    assert {field.name: field.type for field in plain.schema} == {
        name: WRITE_COLUMNS["schedule-message"][name][0] for name in rows.schema.names
    }
    assert plain.to_pylist() == rows.to_pylist()
    assert len(encode_messages(plain, now_ms=0)) == 1
    assert plain_batch(plain, "schedule-message") is plain


@pytest.mark.parametrize(
    ("operation", "name", "given", "sent"),
    [
        ("schedule-message", "body", pa.array(["ü", None]), pa.array([b"\xc3\xbc", None])),
        ("schedule-message", "body", pa.array(["ü", None], pa.large_string()), pa.array([b"\xc3\xbc", None])),
        ("schedule-message", "time_to_live_ms", pa.array([5, None], pa.int32()), pa.array([5, None], pa.int64())),
        ("set-session-state", "session_state", pa.array(["ü", None]), pa.array([b"\xc3\xbc", None])),
        ("cancel-scheduled-message", "sequence_number", pa.array([5, None], pa.int8()), pa.array([5, None], pa.int64())),
        # A property of that name keeps its type, and so does what is only a row key.
        ("schedule-message", "sequence_number", pa.array([5, None], pa.int32()), pa.array([5, None], pa.int32())),
        ("remove-rule", "body", pa.array(["ü", None]), pa.array(["ü", None])),
    ],
)
def test_what_else_is_taken_for_a_column_is_sent_as_the_column(operation: str, name: str, given: pa.Array, sent: pa.Array) -> None:
    assert plain_batch(pa.RecordBatch.from_pydict({name: given}), operation).column(name).equals(sent)
