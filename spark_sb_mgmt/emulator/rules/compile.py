"""Rules as a subscription evaluates them.

The one rule: what can be known to be wrong is refused here; what is left to a message fails with `RuleEvaluationError`, and never
otherwise.

A rule with an action marks its copy of the message with the user property `RuleName`, as the service does; the action sees it and
may change it.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from spark_sb_mgmt.amqp.message import Message
from spark_sb_mgmt.emulator.entities.rules import SubscriptionRule
from spark_sb_mgmt.emulator.rules.correlation import correlation
from spark_sb_mgmt.emulator.rules.evaluator import Evaluate, Statement
from spark_sb_mgmt.emulator.rules.parser import parse_action, parse_filter
from spark_sb_mgmt.emulator.rules.properties import Subject, with_user
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, TrueFilter

RULE_NAME_PROPERTY = "RuleName"


class CompiledRule:
    """Make it with `compile_rule`."""

    def __init__(self, rule: Rule, predicate: Evaluate, statements: list[Statement] | None, new_id: Callable[[], UUID]) -> None:
        self.name = rule.name
        self.description = rule
        self.has_action = statements is not None
        self._predicate = predicate
        self._statements = statements or []
        self._new_id = new_id

    def matches(self, message: Message) -> bool:
        # Unknown is not true.
        return self._predicate(Subject(message, self._new_id)) is True

    def apply(self, message: Message) -> Message:
        if not self.has_action:
            return message
        changed = with_user(message, RULE_NAME_PROPERTY, self.name)
        for statement in self._statements:
            changed = statement(Subject(changed, self._new_id))
        return changed

    def __repr__(self) -> str:
        return f"<CompiledRule {self.description!r}>"


def compile_rule(rule: Rule, *, new_id: Callable[[], UUID] = uuid4) -> SubscriptionRule:
    """The rule ready for messages, or a `RuleSyntaxError`. `new_id` is what `newid()` calls."""
    statements = None if rule.action is None else parse_action(rule.action.expression)
    return CompiledRule(rule, _predicate(rule.filter), statements, new_id)


def _predicate(rule_filter: RuleFilter) -> Evaluate:
    if isinstance(rule_filter, SqlFilter):
        return parse_filter(rule_filter.expression)
    if isinstance(rule_filter, CorrelationFilter):
        return correlation(rule_filter)
    constant = {TrueFilter: True, FalseFilter: False}[type(rule_filter)]
    return lambda subject: constant
