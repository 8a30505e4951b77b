"""The configuration file: what it means, and that what is wrong is said once, with its place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from spark_sb_mgmt.amqp.types import Long
from spark_sb_mgmt.emulator.config import ConfigError, EmulatorConfig, load_config, parse_config
from spark_sb_mgmt.emulator.durations import parse_duration
from spark_sb_mgmt.emulator.rules import compile_rule
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter

EXAMPLE = Path(__file__).parents[2] / "conf" / "emulator.json"


def parsed(**namespace: Any) -> EmulatorConfig:
    return parse_config({"UserConfig": {"Namespaces": [namespace]}}, compile_rule)


def queue(**properties: Any) -> dict[str, Any]:
    return {"Name": "q", "Properties": properties}


def rule(**properties: Any) -> dict[str, Any]:
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
    return {"Topics": [{"Name": "t", "Subscriptions": [subscription]}]}


def only_rule(config: EmulatorConfig) -> Rule:
    ((compiled,),) = (each.rules or () for each in config.topics["t"].subscriptions)
    assert isinstance(compiled.description, Rule)
    return compiled.description


def test_the_example_of_the_repository_is_right() -> None:
    config = load_config(EXAMPLE, compile_rule)
    assert config.queues["orders"].dead_lettering_on_message_expiration
    assert config.queues["orders"].default_message_time_to_live == 14 * 24 * 3_600_000
    assert config.queues["orders"].forward_to is None
    assert config.queues["orders.sessions"].requires_session
    assert config.queues["orders.sessions"].lock_duration == 30_000
    assert config.queues["orders.partitioned"].enable_partitioning
    assert config.queues["orders.once"].duplicate_detection_window == 300_000
    assert config.queues["orders.inbox"].forward_to == "orders"
    subscriptions = {each.name: each for each in config.topics["events"].subscriptions}
    assert subscriptions["all"].rules is None
    (large,) = subscriptions["large"].rules or ()
    filtered = SqlFilter("amount >= 1000 AND sys.Label = 'order'")
    assert large.description == Rule("large", filtered, SqlRuleAction("SET priority = 'high'"))
    (eu,) = subscriptions["eu"].rules or ()
    assert eu.description == Rule("eu", CorrelationFilter(content_type="application/json", properties={"region": "eu"}))


def test_an_entity_that_says_nothing_has_the_services_defaults() -> None:
    settings = parsed(Queues=[{"Name": "q"}]).queues["q"]
    assert (settings.lock_duration, settings.max_delivery_count) == (60_000, 10)
    assert (settings.default_message_time_to_live, settings.duplicate_detection_window) == (None, None)
    assert not settings.requires_session


def test_a_file_without_policies_has_the_emulators_well_known_one() -> None:
    (policy,) = parsed().authorization_rules
    assert (policy.key_name, policy.primary_key) == ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    assert policy.rights == {"Listen", "Send", "Manage"}


def test_policies_have_their_rights_and_manage_means_all() -> None:
    reader, owner = parsed(
        AuthorizationRules=[
            {"KeyName": "reader", "PrimaryKey": "k1", "Rights": ["Listen"]},
            {"KeyName": "owner", "PrimaryKey": "k2", "Rights": ["Manage"]},
        ]
    ).authorization_rules
    assert reader.rights == {"Listen"}
    assert owner.rights == {"Listen", "Send", "Manage"}


def test_a_key_is_in_no_repr() -> None:
    config = parsed(AuthorizationRules=[{"KeyName": "reader", "PrimaryKey": "tOpSecret", "Rights": ["Listen"]}])
    assert "tOpSecret" not in repr(config)


@pytest.mark.parametrize(("kind", "expected"), [("True", TrueFilter()), ("FalseFilter", FalseFilter())])
def test_constant_filters(kind: str, expected: RuleFilter) -> None:
    assert only_rule(parsed(**rule(FilterType=kind))) == Rule("r", expected)


def test_what_editors_and_templates_add_is_no_error() -> None:
    added = {"RequiresPreprocessing": False, "CompatibilityLevel": 20}
    sql = rule(FilterType="Sql", SqlFilter={"SqlExpression": "a = 1", **added}, Action={"SqlExpression": "SET b = 2", **added})
    document = {"$schema": "https://example.org/Config-schema.json", "UserConfig": {"Namespaces": [sql]}}
    assert only_rule(parse_config(document, compile_rule)) == Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2"))
    correlation = rule(FilterType="Correlation", CorrelationFilter={"Label": "x", "RequiresPreprocessing": False}, Action={})
    assert only_rule(parsed(**correlation)) == Rule("r", CorrelationFilter(label="x"))


def test_numbers_that_a_correlation_filter_compares_have_an_amqp_type() -> None:
    given = only_rule(parsed(**rule(FilterType="Correlation", CorrelationFilter={"Properties": {"a": 7, "b": 0.5, "c": True}})))
    assert isinstance(given.filter, CorrelationFilter)
    assert {name: type(value) for name, value in given.filter.properties.items()} == {"a": Long, "b": float, "c": bool}


NAMESPACE = "UserConfig.Namespaces[0]"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"Queues": [{}]}, f"{NAMESPACE}.Queues[0].Name", "missing"),
    ({"Queues": {}}, f"{NAMESPACE}.Queues", "a list, not an object"),
    ({"Queues": [{"Name": 7}]}, f"{NAMESPACE}.Queues[0].Name", "a string, not a number"),
    ({"Queues": [{"Name": ""}]}, f"{NAMESPACE}.Queues[0].Name", "1 to 260"),
    ({"Queues": [{"Name": "a//b"}]}, f"{NAMESPACE}.Queues[0].Name", "slash"),
    ({"Queues": [{"Name": "a/$management"}]}, f"{NAMESPACE}.Queues[0].Name", "service's own"),
    ({"Queues": [{"Name": "Q"}, {"Name": "q"}]}, f"{NAMESPACE}.Queues[1].Name", f"{NAMESPACE}.Queues[0] already"),
    ({"Queues": [{"Name": "q"}], "Topics": [{"Name": "q"}]}, f"{NAMESPACE}.Topics[0].Name", "already"),
    ({"Queues": [queue(LockDuration="1 minute")]}, f"{NAMESPACE}.Queues[0].Properties.LockDuration", "ISO 8601"),
    ({"Queues": [queue(LockDuration="PT6M")]}, f"{NAMESPACE}.Queues[0].Properties.LockDuration", "at most 300 seconds"),
    ({"Queues": [queue(LockDuration="PT0S")]}, f"{NAMESPACE}.Queues[0].Properties.LockDuration", "more than nothing"),
    ({"Queues": [queue(MaxDeliveryCount=0)]}, f"{NAMESPACE}.Queues[0].Properties.MaxDeliveryCount", "from 1 to 2000, not 0"),
    ({"Queues": [queue(MaxDeliveryCount=True)]}, f"{NAMESPACE}.Queues[0].Properties.MaxDeliveryCount", "whole number"),
    ({"Queues": [queue(RequiresSession="yes")]}, f"{NAMESPACE}.Queues[0].Properties.RequiresSession", "true or false"),
    ({"Queues": [queue(RequiresSesion=True)]}, f"{NAMESPACE}.Queues[0].Properties.RequiresSesion", "RequiresSession?"),
    ({"Queues": [queue(lockduration="PT1M")]}, f"{NAMESPACE}.Queues[0].Properties.lockduration", "LockDuration?"),
    ({"Queues": [queue(ForwardTo="nowhere")]}, f"{NAMESPACE}.Queues[0].Properties.ForwardTo", "no queue or topic 'nowhere'"),
    ({"Queues": [queue(ForwardTo="Q")]}, f"{NAMESPACE}.Queues[0].Properties.ForwardTo", "itself"),
    (
        {"Queues": [queue(ForwardTo="p", RequiresSession=True), {"Name": "p"}]},
        f"{NAMESPACE}.Queues[0].Properties.ForwardTo",
        "RequiresSession",
    ),
    ({"Topic": []}, f"{NAMESPACE}.Topic", "Topics?"),
    (rule(FilterType="Regex"), f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.FilterType", "not one of"),
    (rule(FilterType="Sql"), f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.SqlFilter", "missing"),
    (
        rule(FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}, CorrelationFilter={"To": "x"}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.CorrelationFilter",
        "has no CorrelationFilter",
    ),
    (
        rule(FilterType="Correlation", CorrelationFilter={}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.CorrelationFilter",
        "at least one",
    ),
    (
        rule(FilterType="Correlation", CorrelationFilter={"Properties": {"a": []}}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.CorrelationFilter.Properties.a",
        "not a list",
    ),
    (
        rule(FilterType="Correlation", CorrelationFilter={"Properties": {"a": 2**63}}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties.CorrelationFilter.Properties.a",
        "outside AMQP long",
    ),
    (
        rule(FilterType="Sql", SqlFilter={"SqlExpression": "a = 1 AND"}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties",
        "the filter expression, line 1, column 10: the expression ends here",
    ),
    (
        rule(FilterType="True", Action={"SqlExpression": "SET sys.SequenceNumber = 1"}),
        f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules[0].Properties",
        "the action expression, line 1, column 5: sys.SequenceNumber",
    ),
    (
        {"AuthorizationRules": [{"KeyName": "a", "PrimaryKey": "k", "Rights": ["Read"]}]},
        f"{NAMESPACE}.AuthorizationRules[0].Rights[0]",
        "Listen, Send, Manage",
    ),
]


@pytest.mark.parametrize(("namespace", "path", "text"), WRONG, ids=[path.rpartition("].")[2] for _, path, _ in WRONG])
def test_what_is_wrong_is_said_with_its_place(namespace: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(**copy.deepcopy(namespace))
    assert caught.value.path == path
    assert text in str(caught.value)


def test_there_is_exactly_one_namespace() -> None:
    with pytest.raises(ConfigError, match="exactly one namespace, not 2"):
        parse_config({"UserConfig": {"Namespaces": [{}, {}]}}, compile_rule)


def test_a_file_that_is_no_json_is_said_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"UserConfig":\n {,}}')
    with pytest.raises(ConfigError, match="line 2, column 3"):
        load_config(file, compile_rule)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.json", compile_rule)


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{}]}}), encoding="utf-8-sig")
    assert load_config(file, compile_rule).queues == {}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1M", 60_000),
        ("PT0.5S", 500),
        ("P1DT2H3M4S", 93_784_000),
        ("P14D", 1_209_600_000),
        ("P10675199DT2H48M5.4775807S", 922_337_203_685_477),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "P1M", "PT1", "PT-1S", "P1DT", "pt1m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration(text)


def test_the_longest_time_span_means_never() -> None:
    settings = parsed(Queues=[queue(DefaultMessageTimeToLive="P10675199DT2H48M5.4775807S")]).queues["q"]
    assert settings.default_message_time_to_live is None
