"""Columns of writes: what each operation takes, and what it says of anything else before a byte is sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_sb_mgmt.amqp.arrow_encode import SENDER_COLUMNS
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options.parsing import write_options
from spark_sb_mgmt.spark.options.table import WRITE_OPERATIONS
from spark_sb_mgmt.spark.reading.read_schema import read_schema
from spark_sb_mgmt.spark.schema import message_schema
from spark_sb_mgmt.spark.writing.write_schema import REQUIRED, WRITE_COLUMNS, WriteColumns, write_columns

CONNECTION = "Endpoint=sb://ns/;SharedAccessKeyName=root;SharedAccessKey=a2V5"
STRING, LONG, TIME, BINARY = StringType(), LongType(), TimestampType(), BinaryType()
TEXT_MAP = MapType(STRING, STRING)
TYPED_MAP = MapType(STRING, StructType([StructField("type", STRING), StructField("value", STRING)]))


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check(schema: StructType, operation: str = "schedule-message", **options: str) -> WriteColumns:
    rule = operation in ("add-rule", "remove-rule")
    where = {"topic": "t", "subscription": "s"} if rule else {"queue": "q"}
    given = {"connectionString": CONNECTION, "operation": operation, **where, **options}
    return write_columns(schema, write_options({key.lower(): value for key, value in given.items()}, {}))


def problem(schema: StructType, operation: str = "schedule-message", **options: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        check(schema, operation, **options)
    return str(caught.value)


def test_every_operation_says_its_columns() -> None:
    assert set(WRITE_COLUMNS) == set(REQUIRED) == set(WRITE_OPERATIONS)
    assert set(WRITE_COLUMNS["schedule-message"]) == SENDER_COLUMNS
    assert list(WRITE_COLUMNS["add-rule"]) == read_schema("enumerate-rules").names


RIGHT: list[tuple[str, StructType, dict[str, str]]] = [
    ("schedule-message", struct(scheduled_enqueue_time=TIME, body=BINARY), {}),
    ("schedule-message", struct(body=BINARY), {"scheduledEnqueueTime": "2030-01-01"}),
    ("schedule-message", struct(amqp_message=BINARY), {"scheduledEnqueueTime": "2030-01-01"}),
    ("schedule-message", struct(amqp_message=BINARY, scheduled_enqueue_time=TIME), {}),
    ("schedule-message", message_schema(sorted(SENDER_COLUMNS - {"amqp_message"})), {}),
    ("cancel-scheduled-message", struct(sequence_number=LONG), {}),
    ("update-disposition", struct(lock_token=STRING, disposition_status=STRING), {}),
    ("update-disposition", struct(sequence_number=LONG), {"dispositionStatus": "completed"}),
    (
        "update-disposition",
        struct(sequence_number=LONG, session_id=STRING, deadletter_reason=STRING, deadletter_description=STRING),
        {"dispositionStatus": "suspended"},
    ),
    ("update-disposition", struct(lock_token=STRING, properties_to_modify=TEXT_MAP), {"dispositionStatus": "abandoned"}),
    ("update-disposition", struct(lock_token=STRING, properties_to_modify=TYPED_MAP), {"dispositionStatus": "abandoned"}),
    ("renew-lock", struct(lock_token=STRING), {}),
    ("renew-session-lock", struct(session_id=STRING), {}),
    ("set-session-state", struct(session_id=STRING, session_state=BINARY), {}),
    # What loses nothing need not be cast: text as UTF-8, and smaller integers.
    ("schedule-message", struct(body=STRING, time_to_live_ms=IntegerType(), scheduled_enqueue_time=TIME), {}),
    ("cancel-scheduled-message", struct(sequence_number=IntegerType()), {}),
    ("set-session-state", struct(session_id=STRING, session_state=STRING), {}),
    ("add-rule", struct(rule_name=STRING), {}),
    ("add-rule", struct(rule_name=STRING, correlation_filter=struct(properties=TEXT_MAP, label=STRING)), {}),
    ("remove-rule", struct(rule_name=STRING), {}),
    ("batch-delete-messages", struct(session_id=STRING), {}),
]


@pytest.mark.parametrize(("operation", "schema", "options"), RIGHT)
def test_what_an_operation_takes(operation: str, schema: StructType, options: dict[str, str]) -> None:
    assert check(schema, operation, **options) == WriteColumns(operation, tuple(schema.names))


def test_rules_that_were_read_can_be_written_as_they_are() -> None:
    found = check(read_schema("enumerate-rules"), "add-rule")
    assert set(read_schema("enumerate-rules").names) - set(found.sent) == {"entity", "created_at"}


def test_nullability_does_not_matter() -> None:
    assert check(StructType([StructField("sequence_number", LONG, False)]), "cancel-scheduled-message").sent == ("sequence_number",)
    schema = StructType(
        [StructField("scheduled_enqueue_time", TIME, False), StructField("application_properties", MapType(STRING, STRING, False))]
    )
    assert check(schema).sent == ("scheduled_enqueue_time", "application_properties")


@pytest.mark.parametrize("operation", [operation for operation in WRITE_OPERATIONS if REQUIRED[operation]])
def test_a_missing_column_is_named(operation: str) -> None:
    for name in REQUIRED[operation]:
        rest = struct(**{other: {"session_state": BINARY}.get(other, STRING) for other in REQUIRED[operation] if other != name})
        assert problem(rest, operation) == f"column {name} is missing: {operation} needs {' and '.join(REQUIRED[operation])}"


@pytest.mark.parametrize(
    ("operation", "schema", "options", "expected"),
    [
        (
            "schedule-message",
            struct(body=BINARY),
            {},
            "column scheduled_enqueue_time is missing: add it, or set option scheduledEnqueueTime",
        ),
        (
            "schedule-message",
            struct(scheduled_enqueue_time=TIME),
            {"scheduledEnqueueTime": "2030-01-01"},
            "column scheduled_enqueue_time is there, and option scheduledEnqueueTime is given: leave one of the two out",
        ),
        (
            "update-disposition",
            struct(lock_token=STRING),
            {},
            "column disposition_status is missing: add it, or set option dispositionStatus",
        ),
        (
            "update-disposition",
            struct(lock_token=STRING, disposition_status=STRING),
            {"dispositionStatus": "completed"},
            "column disposition_status is there, and option dispositionStatus is given",
        ),
        (
            "update-disposition",
            struct(lock_token=STRING, sequence_number=LONG),
            {"dispositionStatus": "completed"},
            "column lock_token is there, and sequence_number too",
        ),
        (
            "update-disposition",
            struct(session_id=STRING),
            {"dispositionStatus": "completed"},
            "column lock_token is missing: add it, or sequence",
        ),
    ],
)
def test_both_and_neither_of_two_alternatives(operation: str, schema: StructType, options: dict[str, str], expected: str) -> None:
    assert problem(schema, operation, **options).startswith(expected)


@pytest.mark.parametrize(
    ("operation", "schema", "expected"),
    [
        (
            "cancel-scheduled-message",
            struct(sequence_number=DoubleType()),
            "is double: it must be bigint, so cast it, as in CAST(sequence_number AS B",
        ),
        ("schedule-message", struct(body=LONG), "column body is bigint: it must be binary, so cast it, as in CAST(body AS BINARY)"),
        ("schedule-message", struct(amqp_message=STRING), "column amqp_message is string: it must be binary"),
        ("schedule-message", struct(scheduled_enqueue_time=STRING), "is string: it must be timestamp"),
        ("schedule-message", struct(scheduled_enqueue_time=TimestampNTZType()), "is timestamp_ntz: it must be timestamp, so cast it"),
        ("schedule-message", struct(application_properties=MapType(STRING, LONG)), "is map<string,bigint>: it must be map<string,string>"),
        ("set-session-state", struct(session_id=STRING, session_state=LONG), "column session_state is bigint: it must be binary"),
        ("update-disposition", struct(properties_to_modify=STRING), "is string: it must be map<string,string> or map<string,struct<"),
        (
            "add-rule",
            struct(rule_name=STRING, correlation_filter=STRING),
            "is string: it must be a struct of any of correlation_id, message_id",
        ),
        ("add-rule", struct(correlation_filter=struct(labell=STRING)), "has the field 'labell', did you mean label: there are"),
        ("add-rule", struct(correlation_filter=struct(label=LONG)), "has label as bigint: it must be string"),
        ("add-rule", struct(correlation_filter=struct(properties=STRING)), "has properties as string: it must be map<string,struct<"),
    ],
)
def test_a_wrong_type_is_named_with_the_right_one(operation: str, schema: StructType, expected: str) -> None:
    assert expected in problem(schema, operation)


@pytest.mark.parametrize(
    ("operation", "schema", "expected"),
    [
        ("schedule-message", struct(sequence_number=LONG), "column sequence_number is set by the broker, not by a sender: drop it"),
        (
            "schedule-message",
            struct(country=STRING),
            "column country is unknown to schedule-message: drop it, or name it in option propertyC",
        ),
        ("schedule-message", struct(messageId=STRING), "column messageId is unknown to schedule-message, did you mean message_id: drop it"),
        (
            "cancel-scheduled-message",
            struct(sequence_number=LONG, x=LONG),
            "column x is unknown to cancel-scheduled-message: drop it. There are s",
        ),
        (
            "cancel-scheduled-message",
            struct(sequenceNumber=LONG),
            "column sequenceNumber is unknown to cancel-scheduled-message, did you mean",
        ),
        ("remove-rule", struct(rule_name=STRING, filter_type=STRING), "column filter_type is unknown to remove-rule"),
        ("batch-delete-messages", struct(session_id=STRING, x=LONG), "column x is unknown to batch-delete-messages"),
        ("remove-rule", read_schema("enumerate-rules"), "columns entity, filter_type, sql_expression, correlation_filter, "),
        (
            "schedule-message",
            struct(entity=STRING, a=LONG, state=STRING, b=LONG),
            "columns entity, state are set by the broker, not by a sender: drop them; columns a, b are unknown to schedule-message: drop "
            "them, or name them in option propertyColumns. There are message_id",
        ),
    ],
)
def test_an_unknown_column_is_named(operation: str, schema: StructType, expected: str) -> None:
    assert problem(schema, operation).startswith(expected)


def test_rows_without_columns_would_be_lost_on_the_way() -> None:
    assert problem(struct(), scheduledEnqueueTime="2030-01-01").startswith("DataFrame has no columns")


def test_the_same_name_twice() -> None:
    twice = StructType([StructField("body", BINARY), StructField("body", BINARY)])
    assert problem(twice) == "column body is there twice: rename or drop one"


def test_amqp_message_stands_alone() -> None:
    text = problem(struct(amqp_message=BINARY, body=BINARY), scheduledEnqueueTime="2030-01-01")
    assert "amqp_message is the whole message: drop it, or drop body" in text


# --- a purge ----------------------------------------------------------------------------------------------------------------


def test_a_purge_needs_no_columns() -> None:
    assert check(struct(), "batch-delete-messages").sent == ()
    assert check(struct(id=LONG), "batch-delete-messages").sent == ()


@pytest.mark.parametrize("name", ["sessionId", "session", "sesion_id", "SESSION_ID"])
def test_a_purge_by_a_column_that_is_nearly_right_does_not_purge_everything(name: str) -> None:
    assert f"column {name} is unknown to batch-delete-messages, did you mean session_id" in problem(
        struct(**{name: STRING}), "batch-delete-messages"
    )


# --- property columns, row keys, receipts -----------------------------------------------------------------------------------

SCALARS: dict[str, DataType] = {
    "a": BooleanType(),
    "b": ByteType(),
    "c": ShortType(),
    "d": IntegerType(),
    "e": LONG,
    "f": FloatType(),
    "g": DoubleType(),
    "h": STRING,
    "i": BINARY,
    "j": DateType(),
    "k": TIME,
    "l": DecimalType(10, 2),
}


def test_property_columns_of_every_type_that_amqp_has() -> None:
    found = check(struct(body=BINARY, **SCALARS), scheduledEnqueueTime="2030-01-01", propertyColumns=",".join(SCALARS))
    assert found.property_columns == tuple(SCALARS)
    assert found.sent == ("body", *SCALARS)


@pytest.mark.parametrize(
    ("schema", "columns", "expected"),
    [
        (struct(body=BINARY), "country", "option propertyColumns names 'country': the DataFrame has body"),
        (struct(contry=STRING), "country", "option propertyColumns names 'country', did you mean contry: the DataFrame has contry"),
        (struct(body=BINARY), "body", "option propertyColumns names 'body', which has a meaning of its own: rename the column"),
        (struct(x=ArrayType(STRING)), "x", "column x is array<string>, which no application property can be"),
        (struct(x=TimestampNTZType()), "x", "column x is timestamp_ntz, which says no time zone"),
    ],
)
def test_a_property_column_that_cannot_be_one(schema: StructType, columns: str, expected: str) -> None:
    assert problem(schema, propertyColumns=columns).startswith(expected)


def test_a_row_key_goes_to_the_receipts_and_not_to_the_service() -> None:
    found = check(struct(sequence_number=LONG, order=DecimalType(8, 0)), "cancel-scheduled-message", rowKey="order")
    assert (found.sent, found.row_key) == (("sequence_number",), "order")
    assert found.receipts.field("row_key").type == pa.decimal128(8, 0)


def test_a_row_key_may_be_a_column_that_is_sent() -> None:
    found = check(struct(sequence_number=LONG), "cancel-scheduled-message", rowKey="sequence_number")
    assert (found.sent, found.receipts.names[0]) == (("sequence_number",), "row_key")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "option rowKey is 'order': the DataFrame has sequence_number"),
        ({"orders": LONG}, "option rowKey is 'order', did you mean orders: the DataFrame has sequence_number, orders"),
        ({"order": ArrayType(LONG)}, "option rowKey is 'order', a array<bigint>: it must be a scalar"),
    ],
)
def test_a_row_key_that_is_none(columns: dict[str, Any], expected: str) -> None:
    assert problem(struct(sequence_number=LONG, **columns), "cancel-scheduled-message", rowKey="order") == expected


def test_receipts_have_the_columns_of_the_contract() -> None:
    assert check(struct(lock_token=STRING), "renew-lock").receipts == pa.schema(
        [
            ("message_id", pa.string()),
            ("sequence_number", pa.int64()),
            ("lock_token", pa.string()),
            ("status", pa.string()),
            ("status_code", pa.int32()),
            ("error_condition", pa.string()),
            ("status_description", pa.string()),
            ("expiration", pa.timestamp("us", tz="UTC")),
        ]
    )
