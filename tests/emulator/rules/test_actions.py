"""SQL actions: what they leave of a message, and that it can be encoded again."""

from __future__ import annotations

from typing import Any

import pytest

from spark_sb_mgmt.amqp.message import Data, Header, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Byte, Described, Float, Int, Long, Map, Symbol, Timestamp, UInt
from spark_sb_mgmt.emulator.entities.message import read_message
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from tests.emulator.rules.evaluation import NEW_ID, START, after, message, rule, user

USER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SET a = 1", {}, {"a": Long(1)}),
    ("SET a = 'x'", {"b": "y"}, {"b": "y", "a": "x"}),
    ("set user.a = 0.5;", {}, {"a": 0.5}),
    ("SET [a b] = TRUE", {}, {"a b": True}),
    ("SET a = NULL", {"a": "x"}, {"a": None}),
    ("SET a = missing", {"a": "x"}, {"a": None}),
    ("SET a = newid()", {}, {"a": NEW_ID}),
    ("SET a = b + 1", {"b": Long(1)}, {"b": Long(1), "a": Long(2)}),
    ("SET a = 1; SET b = a + 1; REMOVE a", {}, {"b": Long(2)}),
    ("SET a = 1, SET b = 2", {}, {"a": Long(1), "b": Long(2)}),
    ("SET a = 1 SET b = 2 REMOVE a", {}, {"b": Long(2)}),
    ("SET EventType = Original; REMOVE Original;", {"Original": "x"}, {"EventType": "x"}),
    ("REMOVE A", {"a": Int(1), "b": Int(2)}, {"b": Int(2)}),
    ("REMOVE missing", {"a": Int(1)}, {"a": Int(1)}),
    ("SET COLOR = 'x'", {"Color": "y"}, {"Color": "x"}),
    ("SET color = 'x'", {"Color": "y", "color": "z"}, {"Color": "y", "color": "x"}),
    # The type that a property has is kept where that is possible.
    ("SET a = a / 2", {"a": Int(7)}, {"a": Int(3)}),
    ("SET a = 300", {"a": Byte(1)}, {"a": Long(300)}),
    ("SET a = 1", {"a": 0.5}, {"a": 1.0}),
    ("SET a = 0.5", {"a": Float(2.0)}, {"a": Float(0.5)}),
    ("SET a = 0.5", {"a": Int(2)}, {"a": 0.5}),
    ("SET a = '5'", {"a": Int(2)}, {"a": Int(5)}),
    ("SET a = 'five'", {"a": Int(2)}, {"a": "five"}),
    ("SET a = '0.5'", {"a": 2.0}, {"a": 0.5}),
    ("SET a = 'False'", {"a": True}, {"a": False}),
    ("SET a = 'no'", {"a": True}, {"a": "no"}),
    ("SET a = 5", {"a": "x"}, {"a": "5"}),
    ("SET a = 'x'", {"a": Symbol("y")}, {"a": Symbol("x")}),
    ("SET a = '2026-01-01T00:00:00Z'", {"a": Timestamp(0)}, {"a": Timestamp(START)}),
    ("SET a = 'later'", {"a": Timestamp(0)}, {"a": "later"}),
    (f"SET a = '{NEW_ID}'", {"a": NEW_ID}, {"a": NEW_ID}),
    ("SET a = TRUE", {"a": Int(2)}, {"a": True}),
    (
        "SET a = a + a",
        {"a": Described(Symbol("com.microsoft:timespan"), Long(10))},
        {"a": Described(Symbol("com.microsoft:timespan"), Long(20))},
    ),
]


@pytest.mark.parametrize(("action", "before", "expected"), USER, ids=[f"{action} {before}" for action, before, _ in USER])
def test_user_properties(action: str, before: dict[str, Any], expected: dict[str, Any]) -> None:
    changed = after(action, **before)
    found = user(decode_message(encode_message(changed)))
    assert [(key, value, type(value)) for key, value in found.items()] == [(key, value, type(value)) for key, value in expected.items()]


SYSTEM: list[tuple[str, str, Any]] = [
    ("SET sys.Label = 'x'", "subject", "x"),
    ("SET sys.Subject = 'x' + 1", "subject", "x1"),
    ("SET sys.To = 'Entity'", "to", "Entity"),
    ("SET sys.ReplyTo = 'x'", "reply_to", "x"),
    ("SET sys.ReplyToSessionId = 'x'", "reply_to_group_id", "x"),
    ("SET sys.SessionId = 's-2'", "group_id", "s-2"),
    ("SET sys.MessageId = newid()", "message_id", str(NEW_ID)),
    ("SET sys.CorrelationId = sys.MessageId", "correlation_id", "m-1"),
    ("SET sys.CorrelationId = 5", "correlation_id", "5"),
    ("SET sys.ContentType = 'a/b'", "content_type", Symbol("a/b")),
    ("SET sys.Label = NULL", "subject", None),
    ("REMOVE sys.Label", "subject", None),
    ("REMOVE sys.To", "to", None),
]


@pytest.mark.parametrize(("action", "field", "expected"), SYSTEM, ids=[action for action, _, _ in SYSTEM])
def test_system_properties(action: str, field: str, expected: Any) -> None:
    properties = decode_message(encode_message(after(action))).properties
    assert properties is not None
    found = getattr(properties, field)
    assert (found, type(found)) == (expected, type(expected))


def test_system_properties_that_are_annotations() -> None:
    changed = decode_message(encode_message(after("SET sys.PartitionKey = 'k2'; SET sys.ViaPartitionKey = 7; REMOVE user.a")))
    assert changed.message_annotations is not None
    assert (changed.message_annotations["x-opt-partition-key"], changed.message_annotations["x-opt-via-partition-key"]) == ("k2", "7")
    assert all(isinstance(key, Symbol) for key, _ in changed.message_annotations)
    removed = after("REMOVE sys.PartitionKey").message_annotations
    assert removed is not None
    assert "x-opt-partition-key" not in removed
    assert "x-opt-sequence-number" in removed


def test_the_scheduled_time_is_a_timestamp() -> None:
    changed = after("SET sys.ScheduledEnqueueTimeUtc = '2026-01-01T01:00:00+01:00'").message_annotations
    assert changed is not None
    assert changed["x-opt-scheduled-enqueue-time"] == Timestamp(START)
    assert type(changed["x-opt-scheduled-enqueue-time"]) is Timestamp


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [("PT30S", 30_000), ("P49D", 49 * 86_400_000), ("P100D", 100 * 86_400_000), ("P10675199DT2H48M5.4775807S", None)],
)
def test_the_time_to_live_is_what_the_broker_then_reads(duration: str, milliseconds: int | None) -> None:
    changed = after(f"SET sys.TimeToLive = '{duration}'")
    assert read_message(encode_message(changed)).ttl == milliseconds
    assert rule(f"sys.TimeToLive >= '{duration}'").matches(changed)


def test_a_time_to_live_that_is_removed_is_gone() -> None:
    assert read_message(encode_message(after("REMOVE sys.TimeToLive"))).ttl is None


def test_a_time_to_live_can_be_computed() -> None:
    changed = after("SET sys.TimeToLive = sys.TimeToLive + sys.TimeToLive")
    assert changed.header == Header(ttl=UInt(120_000))


def test_a_message_without_sections_gets_those_that_it_needs() -> None:
    changed = after("SET a = 1; SET sys.Label = 'x'; SET sys.PartitionKey = 'k'", Message())
    assert changed.properties == Properties(subject="x")
    assert changed.message_annotations == Map({Symbol("x-opt-partition-key"): "k"})
    assert user(changed) == {"a": Long(1)}


def test_the_rest_of_the_message_stays() -> None:
    given = Message(body=Data((b"body",)), footer=Map({Symbol("f"): Int(1)}), delivery_annotations=Map({Symbol("d"): Int(2)}))
    changed = after("SET a = 1", given)
    assert (changed.body, changed.footer, changed.delivery_annotations) == (given.body, given.footer, given.delivery_annotations)
    assert given.application_properties is None


def test_a_rule_with_an_action_marks_its_copy() -> None:
    changed = after("SET a = 1").application_properties
    assert changed is not None
    assert changed["RuleName"] == "r"
    removed = after("REMOVE RuleName").application_properties
    assert removed is not None
    assert "RuleName" not in removed


def test_a_rule_without_an_action_leaves_the_message_as_it_is() -> None:
    plain, given = rule("1=1"), message()
    assert not plain.has_action
    assert plain.apply(given) is given
    assert rule(action="REMOVE a").has_action


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("SET a = 1 / 0", "divides an integer by zero"),
        ("SET sys.MessageId = long", "sys.MessageId has at most 128 characters, not 129"),
        ("SET sys.SessionId = long", "sys.SessionId has at most"),
        ("SET sys.PartitionKey = long", "sys.PartitionKey has at most"),
        ("SET sys.ContentType = 'ä'", "ASCII"),
        ("SET sys.Label = list", "an AMQP list has no text"),
        ("SET sys.TimeToLive = 5", "a duration is needed, such as 'PT1M', not an integer"),
        ("SET sys.TimeToLive = 'soon'", "cannot be read as a duration"),
        ("SET sys.TimeToLive = sys.EnqueuedTimeUtc - late", "less than nothing"),
        ("SET sys.ScheduledEnqueueTimeUtc = 5", "a timestamp is needed"),
        ("SET span = late - early", "longer than a property can have"),
    ],
)
def test_an_action_that_cannot_be_done_is_an_error(action: str, text: str) -> None:
    late, early = Timestamp(START + 10**15), Timestamp(START - 10**15)
    with pytest.raises(RuleEvaluationError, match=text):
        after(action, long="x" * 129, list=(Int(1),), late=late, early=early)
