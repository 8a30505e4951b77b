"""Columns of reads: what there is, what `.schema(...)` may ask for, and what it is told if it may not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, MapType, StringType, StructField, StructType

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.reading import read_schema as read_schema_module
from spark_sb_mgmt.spark.reading.read_schema import read_columns, read_schema
from spark_sb_mgmt.spark.schema import arrow_type, message_schema, spark_schema
from tests.amqp import shapes

TYPED = MapType(StringType(), StructType([StructField("type", StringType()), StructField("value", StringType())]))


def schema(text: str) -> StructType:
    """A schema from `name type` pairs without a JVM."""
    simple = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return spark_schema(pa.schema([(name, simple[kind]) for name, kind in (part.split() for part in text.split(","))]))


def test_without_a_schema_all_columns_but_those_on_request() -> None:
    assert read_schema("peek-message") == message_schema(DEFAULT_COLUMNS)
    assert read_schema("receive-by-sequence-number", "fail") == message_schema(DEFAULT_COLUMNS)


def test_status_is_there_when_missing_messages_are_reported() -> None:
    assert read_schema("receive-by-sequence-number", "report").names == [*DEFAULT_COLUMNS, "status"]
    found = read_columns(schema("status string, sequence_number long"), "receive-by-sequence-number", "report")
    assert (found.names, found.message_columns) == (("status", "sequence_number"), ("sequence_number",))
    with pytest.raises(
        InvalidArgumentError, match=r"column status of \.schema\(\.\.\.\) is unknown .*; it is there when option onMissing is report"
    ):
        read_columns(schema("status string"), "receive-by-sequence-number", "skip")


def test_the_columns_of_sessions_and_rules() -> None:
    assert read_schema("get-message-sessions") == schema("entity string, session_id string, session_state binary")
    rules = read_schema("enumerate-rules")
    assert rules.names == [
        "entity",
        "rule_name",
        "filter_type",
        "sql_expression",
        "correlation_filter",
        "action_type",
        "action_expression",
        "created_at",
    ]
    assert rules["correlation_filter"].dataType == StructType(
        [
            *(
                StructField(name, StringType())
                for name in (
                    "correlation_id",
                    "message_id",
                    "to",
                    "reply_to",
                    "label",
                    "session_id",
                    "reply_to_session_id",
                    "content_type",
                )
            ),
            StructField("properties", TYPED),
        ]
    )


def test_session_state_is_asked_for_only_by_its_column() -> None:
    assert "session_state" not in read_columns(schema("session_id string"), "get-message-sessions")
    assert "session_state" in read_columns(schema("session_state binary"), "get-message-sessions")


@given(st.lists(st.sampled_from(list(COLUMNS)), unique=True))
def test_any_columns_in_any_order_are_decoded_as_asked(names: list[str]) -> None:
    """The batch has exactly the schema that PySpark compares it with, the empty one included."""
    found = read_columns(message_schema(names), "peek-message")
    batch = decode_responses([shapes.response([])], found.message_columns)
    assert (found.names, found.message_columns) == (tuple(names), tuple(names))
    assert batch.schema.equals(found.arrow)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (schema("bodi binary"), "column bodi of .schema(...) is unknown to peek-message, did you mean body. There are entity string, "),
        (schema("Body binary"), "column Body of .schema(...) is unknown to peek-message, did you mean body."),
        (schema("messageid string"), "did you mean message_id. There are"),
        (schema("xyzzy string"), "column xyzzy of .schema(...) is unknown to peek-message. There are"),
        (schema("status string"), "column status of .schema(...) is unknown to peek-message"),
        (schema("body string"), "column body of .schema(...) is string: it must be binary; cast it after reading. There are"),
        (schema("delivery_count long"), "column delivery_count of .schema(...) is bigint: it must be int"),
        (schema("enqueued_time timestamp_ntz"), "column enqueued_time of .schema(...) is timestamp_ntz: it must be timestamp"),
        (schema("body binary, entity string, body binary"), "column body of .schema(...) is named twice"),
        (StructType([StructField("entity", StringType(), False)]), "column entity of .schema(...) is NOT NULL, but it may be null"),
        (
            StructType([StructField("application_properties", MapType(StringType(), StringType(), False))]),
            "is map<string,string> with a part that is NOT NULL: every part may be null",
        ),
    ],
)
def test_a_wrong_column_is_named_with_all_there_are(asked: StructType, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_columns(asked, "peek-message")
    assert expected in str(caught.value)
    # On request or not, each is listed with its type.
    assert "amqp_message binary" in str(caught.value)
    assert "typed_properties map<string,struct<type:string,value:string>>" in str(caught.value)


def test_no_columns_are_refused_where_their_rows_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_schema_module, "KEEPS_ROWS_WITHOUT_COLUMNS", True)
    assert read_columns(StructType(), "peek-message").names == ()
    monkeypatch.setattr(read_schema_module, "KEEPS_ROWS_WITHOUT_COLUMNS", False)
    with pytest.raises(
        InvalidArgumentError, match=r"\.schema\(\.\.\.\) has no columns.* name one of entity string, sequence_number bigint"
    ):
        read_columns(StructType(), "peek-message")


def test_scalars_have_an_arrow_type() -> None:
    assert arrow_type(DecimalType(12, 3)) == pa.decimal128(12, 3)
    assert arrow_type(StringType()) == pa.string()
    assert arrow_type(TYPED) is None
