"""get-message-sessions and enumerate-rules as DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction
from spark_sb_mgmt.spark.reading.read_schema import KEEPS_ROWS_WITHOUT_COLUMNS, read_schema

counts_rows_without_columns = pytest.mark.skipif(not KEEPS_ROWS_WITHOUT_COLUMNS, reason="PySpark 4.0 loses rows without columns")
Read = Callable[..., DataFrame]
NewEntity = Callable[[str], str]


@pytest.fixture
def sessions(emulator: Emulator, sdk: ServiceBusClient, new_entity: NewEntity) -> str:
    """A queue with 250 sessions, s0 to s249, of which the first ten have a state, and s0 nothing else."""
    queue = new_entity("sessions")
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("body", session_id=f"s{at}") for at in range(1, 250)])
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        for at in range(10):
            entity.set_session_state(f"s{at}", b"state %d" % at)
    return queue


def test_sessions_and_their_states(spark: SparkSession, read: Read, sessions: str) -> None:
    df = read(operation="get-message-sessions", queue=sessions)
    assert df.rdd.getNumPartitions() > 1
    expected = [(sessions, f"s{at}", b"state %d" % at if at < 10 else None) for at in range(250)]
    expected_df = spark.createDataFrame(expected, read_schema("get-message-sessions"))
    assert_df_equality(df.orderBy("session_id"), expected_df.orderBy("session_id"))


def test_states_are_fetched_only_if_they_are_asked_for(read: Read, sessions: str, emulator: Emulator) -> None:
    before = emulator.requests.get("get-session-state", 0)
    rows = read("session_id string, entity string", operation="get-message-sessions", queue=sessions).collect()
    assert {(row.session_id, row.entity) for row in rows} == {(f"s{at}", sessions) for at in range(250)}
    assert emulator.requests.get("get-session-state", 0) == before
    states = read("session_state binary", operation="get-message-sessions", queue=sessions)
    assert states.where("session_state is not null").count() == 10
    assert emulator.requests["get-session-state"] == before + 250


@counts_rows_without_columns
def test_sessions_are_counted_without_columns(read: Read, sessions: str, emulator: Emulator) -> None:
    before = emulator.requests.get("get-session-state", 0)
    assert read(StructType(), operation="get-message-sessions", queue=sessions).count() == 250
    assert emulator.requests.get("get-session-state", 0) == before


def test_sessions_updated_since(read: Read, sessions: str) -> None:
    past = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    future = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
    updated = read(operation="get-message-sessions", queue=sessions, lastUpdatedSince=past).collect()
    assert {row.session_id for row in updated} == {f"s{at}" for at in range(10)}
    assert read(operation="get-message-sessions", queue=sessions, lastUpdatedSince=future).collect() == []


def test_sessions_of_several_entities_and_of_none(read: Read, sessions: str, new_entity: NewEntity) -> None:
    empty, plain = new_entity("sessions"), new_entity("queue")
    df = read(operation="get-message-sessions", entityPath=f"{empty},{sessions}")
    assert [(row.entity, row["count"]) for row in df.groupBy("entity").count().collect()] == [(sessions, 250)]
    assert read(operation="get-message-sessions", queue=empty).collect() == []
    with pytest.raises(Exception, match=rf"require sessions have any: check that '{plain}' does"):
        read(operation="get-message-sessions", queue=plain).collect()


def test_rules_of_several_subscriptions(spark: SparkSession, read: Read, emulator: Emulator, new_entity: NewEntity) -> None:
    topic = new_entity("topic")
    one, two = (f"{topic}/Subscriptions/{name}" for name in ("one", "two"))
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(one) as entity:
        entity.add_rule(Rule("large", SqlFilter("amount > 100"), SqlRuleAction("SET size = 'large'")))
        entity.add_rule(Rule("eu", CorrelationFilter(label="order", properties={"region": "eu", "level": Int(3)})))
        entity.add_rule(Rule("never", FalseFilter()))
        created = {rule.name: rule.created_at for rule in entity.enumerate_rules()}
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(two) as entity:
        [default] = entity.enumerate_rules()
    df = read(operation="enumerate-rules", entityPath=f"{one},{two}").drop("created_at")
    level = {"region": {"type": "string", "value": "eu"}, "level": {"type": "int", "value": "3"}}
    correlation = {"label": "order", "properties": level}
    expected = [
        (one, "$Default", "true", None, None, None, None),
        (one, "eu", "correlation", None, correlation, None, None),
        (one, "large", "sql", "amount > 100", None, "sql", "SET size = 'large'"),
        (one, "never", "sql", "1=0", None, None, None),
        (two, default.name, "true", None, None, None, None),
    ]
    schema = read_schema("enumerate-rules")
    expected_df = spark.createDataFrame(expected, type(schema)(schema.fields[:-1]))
    assert_df_equality(df.orderBy("entity", "rule_name"), expected_df)
    times = read("rule_name string, created_at timestamp", operation="enumerate-rules", entityPath=one).collect()
    assert {row.rule_name: row.created_at and row.created_at.astimezone(timezone.utc) for row in times} == created


def test_rules_are_a_subscriptions(read: Read, new_entity: NewEntity) -> None:
    topic = new_entity("topic")
    with pytest.raises(Exception, match="is no subscription: set topic and subscription"):
        read(operation="enumerate-rules", topic=topic)
    with pytest.raises(Exception, match="There is no entity"):
        read(operation="enumerate-rules", topic=topic, subscription="three").collect()
