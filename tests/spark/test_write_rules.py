"""add-rule and remove-rule: the rules that stand afterwards, what they let through, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import DataFrame, SparkSession

from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.spark.rule_rows import rules_to_batch
from spark_sb_mgmt.spark.writing.rules_writer import AddRuleTask, RemoveRuleTask
from tests.spark.conftest import NewEntity, Write
from tests.spark.task_harness import rows_of, running, written

Read = Callable[..., DataFrame]
ADD, REMOVE = "add-rule", "remove-rule"
RULES = [
    Rule("sql", SqlFilter("amount > 5"), SqlRuleAction("SET large = true")),
    Rule("correlation", CorrelationFilter(label="urgent", properties={"times": Int(2)})),
    Rule("always", TrueFilter()),
    Rule("never", FalseFilter()),
]


def names(emulator: Emulator, subscription: str) -> list[str]:
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(subscription) as entity:
        return sorted(rule.name for rule in entity.enumerate_rules())


def one(new_entity: NewEntity) -> str:
    return f"{new_entity('topic')}/Subscriptions/one"


def rows(*rules: Rule) -> pa.RecordBatch:
    columns = ["rule_name", "filter_type", "sql_expression", "correlation_filter", "action_type", "action_expression"]
    return rules_to_batch("", rules, columns)


def test_rules_of_one_subscription_are_added_to_another(
    spark: SparkSession, read: Read, write: Write, new_entity: NewEntity, emulator: Emulator, sdk: ServiceBusClient
) -> None:
    """As they are read, all columns of them; then the default rule is removed, and the SDK sees what comes through."""
    topic = new_entity("topic")
    source = f"{topic}/Subscriptions/one"
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(source) as entity:
        for rule in RULES[:2]:
            entity.add_rule(rule)
    rules = read(operation="enumerate-rules", topic=topic, subscription="one").where("rule_name <> '$Default'")
    where = {"topic": topic, "subscription": "two"}
    write(rules, operation=ADD, **where)
    write(spark.createDataFrame([("$Default",)], "rule_name string"), operation=REMOVE, **where)
    assert names(emulator, f"{topic}/Subscriptions/two") == ["correlation", "sql"]
    with sdk.get_topic_sender(topic) as sender:
        sender.send_messages(
            [
                ServiceBusMessage("large", application_properties={"amount": 7}),
                ServiceBusMessage("small", application_properties={"amount": 3}),
            ]
        )
    with sdk.get_subscription_receiver(topic, "two") as receiver:
        [message] = receiver.peek_messages(9)
    assert str(message) == "large"
    assert message.application_properties == {b"amount": 7, b"large": True, b"RuleName": b"sql"}


def test_each_kind_of_rule_from_plain_columns(spark: SparkSession, write: Write, new_entity: NewEntity, emulator: Emulator) -> None:
    topic = new_entity("topic")
    given = [("a", "true", None, None), ("b", "false", None, None), ("c", None, "x = 1", "SET y = 2"), ("d", None, None, None)]
    df = spark.createDataFrame(given, "rule_name string, filter_type string, sql_expression string, action_expression string")
    write(df.repartition(2), operation=ADD, topic=topic, subscription="one")
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(f"{topic}/Subscriptions/one") as e:
        found = {rule.name: (rule.filter, rule.action) for rule in e.enumerate_rules() if rule.name != "$Default"}
    assert found == {
        "a": (SqlFilter("1=1"), None),
        "b": (SqlFilter("1=0"), None),
        "c": (SqlFilter("x = 1"), SqlRuleAction("SET y = 2")),
        "d": (SqlFilter("1=1"), None),
    }


def test_a_rule_that_is_there_and_one_that_is_wrong_fail_each_for_itself(new_entity: NewEntity, emulator: Emulator) -> None:
    subscription = one(new_entity)
    given = rows(Rule("$default", SqlFilter("a = 1")), Rule("bad", SqlFilter("a ==== 1")), Rule("good", SqlFilter("a = 1")))
    exists, bad, good = sorted(written(emulator, subscription, given, ADD), key=lambda row: row["status_code"], reverse=True)
    assert (exists["status_code"], exists["error_condition"]) == (409, "com.microsoft:entity-already-exists")
    assert exists["status_description"].startswith("there is a rule '$default' already, and it is left as it is: remove it")
    assert (bad["status_code"], bad["status"]) == (400, "failed")
    assert "Rule 'bad' cannot be used: " in bad["status_description"]
    assert good["status"] == "ok"
    assert names(emulator, subscription) == ["$Default", "good"]


def test_a_name_that_is_there_twice_and_a_rule_that_cannot_be_sent_are_mistakes(new_entity: NewEntity, emulator: Emulator) -> None:
    subscription = one(new_entity)
    long = CorrelationFilter(label="x" * 2000)
    receipts = written(emulator, subscription, rows(Rule("a", TrueFilter()), Rule("A", TrueFilter()), Rule("b", long)), ADD)
    assert [row["status"] for row in receipts] == ["failed", "failed", "ok"]
    assert "rule_name 'a' stands in an earlier row too" in receipts[0]["status_description"]
    assert "its rule cannot be sent: label has 2000 characters" in receipts[1]["status_description"]
    assert names(emulator, subscription) == ["$Default", "a"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_lost_answer_of_an_addition_is_looked_into(new_entity: NewEntity, emulator: Emulator, when: Any, rule: Rule) -> None:
    subscription = one(new_entity)
    emulator.faults.add(Fault("drop-connection", ADD, subscription, when=when))
    [receipt] = written(emulator, subscription, rows(rule), ADD)
    assert receipt["status"] == "ok"
    assert names(emulator, subscription) == sorted(["$Default", rule.name])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_of_a_removal_is_looked_into(new_entity: NewEntity, emulator: Emulator, when: Any) -> None:
    subscription = one(new_entity)
    emulator.faults.add(Fault("drop-connection", REMOVE, subscription, when=when))
    [receipt] = written(emulator, subscription, rows_of(REMOVE, rule_name=["$Default"]), REMOVE)
    assert receipt["status"] == "ok"
    assert names(emulator, subscription) == []


@pytest.mark.parametrize(("operation", "task"), [(ADD, AddRuleTask), (REMOVE, RemoveRuleTask)])
def test_a_request_that_is_carried_out_after_it_was_given_up_is_no_failure(
    new_entity: NewEntity, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, operation: str, task: Any
) -> None:
    """The look says that it was not carried out, so that it is sent again; then it is done already."""
    subscription = one(new_entity)
    looks = iter([False])
    is_done = task.is_done
    monkeypatch.setattr(task, "is_done", lambda self, row: next(looks, None) is not False and is_done(self, row))
    emulator.faults.add(Fault("drop-connection", operation, subscription, when="after"))
    [receipt] = written(emulator, subscription, rows_of(operation, rule_name=["a" if operation == ADD else "$Default"]), operation)
    assert receipt["status"] == "ok"
    assert names(emulator, subscription) == (["$Default", "a"] if operation == ADD else [])


def test_a_repeated_attempt_takes_an_equal_rule_for_its_own_and_no_other(new_entity: NewEntity, emulator: Emulator) -> None:
    subscription = one(new_entity)
    given = rows(*RULES)
    written(emulator, subscription, given, ADD)
    assert [row["status"] for row in written(emulator, subscription, given, ADD)] == ["failed"] * 4
    assert [row["status"] for row in written(emulator, subscription, given, ADD, attempt=1)] == ["ok"] * 4
    other = rows(Rule("sql", SqlFilter("amount > 6")))
    assert [row["status"] for row in written(emulator, subscription, other, ADD, attempt=1)] == ["failed"]


def test_a_rule_that_is_not_there_to_be_removed(new_entity: NewEntity, emulator: Emulator) -> None:
    subscription = one(new_entity)
    given = rows_of(REMOVE, rule_name=["$Default", "nobody"])
    receipts = written(emulator, subscription, given, REMOVE)
    assert [(row["status"], row["status_code"]) for row in receipts] == [("ok", 200), ("failed", 404)]
    assert receipts[1]["status_description"] == "there is no rule 'nobody': it was removed before, or never there"
    with running(emulator, subscription, given.schema, attempt=1, operation=REMOVE) as task:
        assert [row["status"] for row in task.run([given])] == ["unknown"] * 2
        assert task.failures == 0


def test_a_subscription_that_is_not_there_fails_the_job(spark: SparkSession, write: Write, new_entity: NewEntity) -> None:
    df = spark.createDataFrame([("a",)], "rule_name string")
    with pytest.raises(Exception, match=r"There is no entity .*/Subscriptions/three' in this namespace"):
        write(df, operation=REMOVE, topic=new_entity("topic"), subscription="three")
