"""The data source as Spark sees it. Runs on the newest and on the oldest supported PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyspark
from chispa.schema_comparer import assert_schema_equality
from packaging.requirements import Requirement
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.types import StructType

import spark_sb_mgmt
from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.message import Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, Timestamp
from spark_sb_mgmt.spark.schema import message_schema
from tests.amqp import shapes

# CONTRACT section 2, in Spark's words.
MESSAGE_COLUMNS = (
    "entity string, sequence_number long, enqueued_sequence_number long, message_id string, session_id string, partition_key string, "
    "via_partition_key string, correlation_id string, subject string, to string, reply_to string, reply_to_session_id string, "
    "content_type string, time_to_live_ms long, enqueued_time timestamp, scheduled_enqueue_time timestamp, expires_at timestamp, "
    "locked_until timestamp, delivery_count int, state string, dead_letter_source string, dead_letter_reason string, "
    "dead_letter_error_description string, lock_token string, application_properties map<string,string>, body binary, body_type string"
)
TYPED = "map<string,struct<type:string,value:string>>"
ON_REQUEST = "amqp_message binary, " + ", ".join(
    f"{name} {TYPED}" for name in ("typed_properties", "properties", "message_annotations", "delivery_annotations", "header", "footer")
)


def named(spark: SparkSession, name: str = "sbmgmt") -> DataFrameReader:
    """A source that is complete enough to have a schema; nothing is connected to for that."""
    string = "Endpoint=sb://nowhere.invalid/;SharedAccessKeyName=n;SharedAccessKey=k"
    return spark.read.format(name).option("connectionString", string).option("queue", "orders")


def test_these_are_the_releases_that_were_asked_for() -> None:
    """Each as it is imported here; proton and lark as they are installed."""
    imported = {"pyspark": pyspark.__version__, "pyarrow": pa.__version__, "numpy": np.__version__}
    asked = [Requirement(line) for line in os.environ.get("SBMGMT_EXPECT", "").splitlines()]
    assert [str(one) for one in asked if not one.specifier.contains(imported.get(one.name) or version(one.name))] == []


def test_spark_finds_the_format_by_itself(spark: SparkSession) -> None:
    """No register(): the installed `pyspark_sbmgmt` is found by PySpark's own search."""
    assert_schema_equality(named(spark).load().schema, StructType.fromDDL(MESSAGE_COLUMNS))


def test_register_makes_the_format_known(spark: SparkSession) -> None:
    other = spark.newSession()
    spark_sb_mgmt.register(other)
    assert named(other, "SBMGMT").load().columns == list(DEFAULT_COLUMNS)


def test_on_request_columns_have_the_types_of_the_contract() -> None:
    assert_schema_equality(message_schema(name for name in COLUMNS if COLUMNS[name].on_request), StructType.fromDDL(ON_REQUEST))


def test_decoded_batches_are_exactly_what_spark_accepts(spark: SparkSession) -> None:
    """PySpark 4.2+ compares the schema of a batch field by field; mapInArrow brings one of ours there."""
    message = Message(
        header=Header(ttl=1000, delivery_count=1),
        message_annotations=Map(
            [
                (Symbol("x-opt-sequence-number"), Long(5)),
                (Symbol("x-opt-enqueued-time"), Timestamp(1_700_000_000_123)),
                (Symbol("x-opt-message-state"), Int(2)),
            ]
        ),
        properties=Properties(message_id="m", group_id="s"),
        application_properties=Map([("k", Int(1)), ("z", None)]),
        body=Data((b"\x00\xff",)),
    )
    response = shapes.response([encode_message(message)] * 100)

    def decode(batches):  # type: ignore[no-untyped-def]
        for _ in batches:
            yield decode_responses([response], tuple(COLUMNS), entity="orders")

    rows = spark.range(1, numPartitions=1).mapInArrow(decode, message_schema(tuple(COLUMNS))).collect()
    assert len(rows) == 100
    row = rows[0]
    assert (row.entity, row.sequence_number, row.message_id, row.state, bytes(row.body)) == ("orders", 5, "m", "scheduled", b"\x00\xff")
    assert row.enqueued_time.timestamp() == 1_700_000_000.123
    assert row.application_properties == {"k": "1", "z": None}
    assert row.typed_properties["k"].asDict() == {"type": "int", "value": "1"}
    assert row.header["ttl"].value == "1000"


def test_importing_the_package_does_not_import_spark_or_proton() -> None:
    """`pyspark_*` modules are imported in every user's search for sources: ours must cost nothing and cannot break it."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, pyspark_sbmgmt, spark_sb_mgmt; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"pyspark", "proton", "numpy", "pyarrow"})
