"""How the tests of the rule language ask it: by a filter's answer, and by what an action leaves in a property."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from spark_sb_mgmt.amqp.message import Header, Message, Properties
from spark_sb_mgmt.amqp.types import Int, Map, Symbol, Timestamp
from spark_sb_mgmt.emulator.entities.rules import SubscriptionRule
from spark_sb_mgmt.emulator.rules import RULE_NAME_PROPERTY, compile_rule
from spark_sb_mgmt.model import Rule, RuleFilter, SqlFilter, SqlRuleAction

NEW_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
START = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def message(**properties: Any) -> Message:
    """A message as a topic shows it to its rules."""
    return Message(
        header=Header(ttl=60_000),
        message_annotations=Map(
            {
                Symbol("x-opt-sequence-number"): Int(7),
                Symbol("x-opt-enqueued-time"): Timestamp(START),
                Symbol("x-opt-partition-key"): "key",
            }
        ),
        properties=Properties(message_id="m-1", subject="order", content_type=Symbol("text/plain"), group_id="s-1"),
        application_properties=Map(properties),
    )


def rule(rule_filter: RuleFilter | str = "1=1", action: str | None = None) -> SubscriptionRule:
    return compile_rule(
        Rule(
            "r", SqlFilter(rule_filter) if isinstance(rule_filter, str) else rule_filter, None if action is None else SqlRuleAction(action)
        ),
        new_id=lambda: NEW_ID,
    )


def truth(predicate: str, **properties: Any) -> bool | None:
    """True, false or unknown: what is neither true nor, negated, true is unknown."""
    given = message(**properties)
    if rule(predicate).matches(given):
        assert not rule(f"NOT ({predicate})").matches(given)
        return True
    return False if rule(f"NOT ({predicate})").matches(given) else None


def after(action: str, given: Message | None = None, **properties: Any) -> Message:
    """The message after an action."""
    return rule(action=action).apply(message(**properties) if given is None else given)


def user(changed: Message) -> dict[str, Any]:
    """The user properties, without the mark of the rule."""
    assert changed.application_properties is not None
    return {key: value for key, value in changed.application_properties if key != RULE_NAME_PROPERTY}


def value(expression: str, **properties: Any) -> Any:
    """The value of an expression."""
    return user(after(f"SET result_ = {expression}", **properties))["result_"]
