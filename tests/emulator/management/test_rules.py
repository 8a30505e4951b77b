"""Rules: added as maps, listed as described lists, kept by the subscription."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Described, int32, timestamp, uint, ulong

from spark_sb_mgmt.amqp.types import Int
from tests.emulator.entities.broker import START
from tests.emulator.management.service import Reply, Service

ALL = "t/Subscriptions/all"
CORRELATION_KEYS = (
    *("correlation-id", "message-id", "to", "reply-to", "label", "session-id", "reply-to-session-id", "content-type"),
    "properties",
)


@pytest.fixture
def service() -> Service:
    return Service()


def add(service: Service, name: str, description: dict[str, Any], at: str = ALL) -> Reply:
    return service.ask("add-rule", {"rule-name": name, "rule-description": description}, at=at)


def remove(service: Service, name: str, at: str = ALL) -> Reply:
    return service.ask("remove-rule", {"rule-name": name}, at=at)


def enumerate_rules(service: Service, top: int = 100, skip: int = 0, at: str = ALL) -> Reply:
    return service.ask("enumerate-rules", {"top": int32(top), "skip": int32(skip)}, at=at)


def listed(reply: Reply) -> list[tuple[Any, Any, str, Any]]:
    """Filter, action, name and created-at of each rule."""
    assert reply.status == 200
    assert isinstance(reply.body["rules"], list)
    rules = []
    for entry in reply.body["rules"]:
        described = entry["rule-description"]
        assert isinstance(described, Described)
        assert described.descriptor == 0x0000013700000004
        rules.append(tuple(described.value))
    return rules


def names(service: Service, at: str = ALL) -> list[str]:
    return [name for _, _, name, _ in listed(enumerate_rules(service, at=at))]


def test_a_subscription_starts_with_the_default_rule(service: Service) -> None:
    ((rule_filter, action, name, created_at),) = listed(enumerate_rules(service))
    assert (rule_filter.descriptor, list(rule_filter.value)) == (0x000001370000007, [])
    assert (action.descriptor, list(action.value)) == (0x0000013700000005, [])
    # As old as the subscription.
    assert (name, created_at) == ("$Default", START)


def test_an_sql_rule_is_added_and_filters(service: Service) -> None:
    reply = add(service, "large", {"sql-filter": {"expression": "amount > 10"}, "sql-rule-action": {"expression": "SET size = 'L'"}})
    assert reply.said == (200, None)
    assert reply.body == {}
    assert remove(service, "$Default").said == (200, None)
    ((rule_filter, action, name, created_at),) = listed(enumerate_rules(service))
    # The descriptors as they are on the wire: the filter's has a digit less.
    assert (rule_filter.descriptor, list(rule_filter.value)) == (0x000001370000006, ["amount > 10", 20])
    assert (action.descriptor, list(action.value)) == (0x0000013700000006, ["SET size = 'L'", 20])
    assert {type(field) for field in (rule_filter.value[1], action.value[1])} == {int32}
    assert type(rule_filter.descriptor) is ulong
    assert (name, created_at) == ("large", START)
    assert type(created_at) is timestamp
    service.broker.send("small", to="t", properties={"amount": Int(1)})
    service.broker.send("large", to="t", properties={"amount": Int(11)})
    (message,) = service.peek(at=ALL).messages
    assert message.properties == {"amount": 11, "size": "L", "RuleName": "large"}


def test_a_correlation_rule_is_listed_with_its_nine_fields_in_order(service: Service) -> None:
    texts = {key: f"value of {key}" for key in CORRELATION_KEYS[:-1]}
    properties = {"a": "b", "n": uint(5), "t": timestamp(START)}
    assert add(service, "c", {"correlation-filter": {**texts, "properties": properties}}).status == 200
    rule_filter = listed(enumerate_rules(service, skip=1))[0][0]
    assert rule_filter.descriptor == 0x000001370000009
    assert list(rule_filter.value) == [*texts.values(), properties]
    assert {type(value) for value in rule_filter.value[8].values()} == {str, uint, timestamp}


def test_nulls_of_a_correlation_filter_are_absent(service: Service) -> None:
    given: dict[str, Any] = dict.fromkeys(CORRELATION_KEYS)
    assert add(service, "c", {"correlation-filter": {**given, "label": "red"}, "sql-filter": None, "sql-rule-action": None}).status == 200
    rule_filter = listed(enumerate_rules(service, skip=1))[0][0]
    assert list(rule_filter.value) == [None, None, None, None, "red", None, None, None, {}]


def test_a_rule_name_that_is_there_already_is_a_conflict(service: Service) -> None:
    assert add(service, "r", {"sql-filter": {"expression": "1=1"}}).status == 200
    for name in ("r", "R", "$default"):
        assert add(service, name, {"sql-filter": {"expression": "1=0"}}).said == (409, "com.microsoft:entity-already-exists")
    assert names(service) == ["$Default", "r"]


def test_a_rule_that_is_not_there_cannot_be_removed(service: Service) -> None:
    reply = remove(service, "none")
    assert reply.said == (404, "amqp:not-found")
    assert "'none'" in reply.description


@pytest.mark.parametrize(
    ("description", "place"),
    [
        ({"sql-filter": {"expression": "a = = b"}}, "the filter expression, line 1, column 5"),
        ({"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET a ="}}, "the action expression, line 1, column 8"),
        ({"correlation-filter": {}}, "the correlation filter"),
        ({"sql-filter": {"expression": ""}}, "the filter expression, line 1, column 1"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_with_the_place(service: Service, description: dict[str, Any], place: str) -> None:
    reply = add(service, "bad", description)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "'bad'" in reply.description
    assert place in reply.description
    assert names(service) == ["$Default"]


@pytest.mark.parametrize(
    "description",
    [{}, {"sql-filter": {"expression": "1=1"}, "correlation-filter": {"label": "x"}}, {"sql-rule-action": {"expression": "SET a = 1"}}],
    ids=["none", "both", "action alone"],
)
def test_a_rule_has_one_filter(service: Service, description: dict[str, Any]) -> None:
    reply = add(service, "r", description)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "one of `sql-filter` and `correlation-filter`" in reply.description


@pytest.mark.parametrize("name", ["", "x" * 51])
def test_a_rule_name_of_the_wrong_length_is_out_of_range(service: Service, name: str) -> None:
    assert add(service, name, {"sql-filter": {"expression": "1=1"}}).said == (400, "com.microsoft:argument-out-of-range")


@pytest.mark.parametrize(
    ("description", "named"),
    [
        ({"sql-filter": "1=1"}, "`sql-filter` in `rule-description`"),
        ({"sql-filter": {}}, "`expression` (AMQP string) is missing in `sql-filter`"),
        ({"sql-filter": {"expression": int32(1)}}, "`expression` in `sql-filter`"),
        ({"sql-filter": {"expression": "1=1"}, "sql-rule-action": {}}, "`expression` (AMQP string) is missing in `sql-rule-action`"),
        ({"correlation-filter": {"label": int32(1)}}, "`label` in `correlation-filter`"),
        ({"correlation-filter": {"properties": {"a": [1]}}}, "'a' of `properties`"),
    ],
)
def test_a_description_of_the_wrong_type_is_named(service: Service, description: dict[str, Any], named: str) -> None:
    reply = add(service, "r", description)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert named in reply.description


def test_rules_are_listed_page_by_page_until_a_page_is_empty(service: Service) -> None:
    for number in range(4):
        add(service, f"r{number}", {"sql-filter": {"expression": "1=1"}})
    found: list[str] = []
    while (reply := enumerate_rules(service, 2, len(found))).status == 200:
        found += [name for _, _, name, _ in listed(reply)]
    assert found == ["$Default", "r0", "r1", "r2", "r3"]
    assert reply.said == (204, None)
    assert reply.body == {"rules": []}
    # What the JavaScript client asks for when it wants them all.
    assert len(listed(enumerate_rules(service, 2**31 - 1))) == 5


@pytest.mark.parametrize(("skip", "top"), [(-1, 1), (0, -1)])
def test_a_page_that_cannot_be_is_out_of_range(service: Service, skip: int, top: int) -> None:
    assert enumerate_rules(service, top, skip).said == (400, "com.microsoft:argument-out-of-range")


def test_subscriptions_have_their_rules_each_for_itself(service: Service) -> None:
    add(service, "r", {"sql-filter": {"expression": "1=1"}})
    assert names(service, "t/Subscriptions/other") == ["$Default"]


@pytest.mark.parametrize("at", ["q", "t", "t/Subscriptions/all/$DeadLetterQueue"])
def test_what_is_no_subscription_has_no_rules(service: Service, at: str) -> None:
    for reply in (
        add(service, "r", {"sql-filter": {"expression": "1=1"}}, at),
        remove(service, "$Default", at),
        enumerate_rules(service, at=at),
    ):
        assert reply.said == (400, "amqp:not-allowed")
        assert "<topic>/Subscriptions/<name>" in reply.description
