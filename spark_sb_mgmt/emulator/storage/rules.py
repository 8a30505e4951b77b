"""Rules as bytes on disk, and back.

The one rule: in the AMQP encoding, because the values that a correlation filter compares know their AMQP type and must keep it.
A filter is a described list of its fields in their order in `model`; fields that are added there later need a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from spark_sb_mgmt.amqp.decode import decode_single
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Described, Map, Symbol, Timestamp, Value
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.times import to_datetime, to_milliseconds

_FILTERS: dict[str, Callable[..., RuleFilter]] = {
    "sql-filter": SqlFilter,
    "true-filter": TrueFilter,
    "false-filter": FalseFilter,
    "correlation-filter": CorrelationFilter,
}
_DESCRIPTORS = {kind: Symbol(name) for name, kind in _FILTERS.items()}


def encode_rule(rule: Rule) -> bytes:
    action = None if rule.action is None else rule.action.expression
    created_at = None if rule.created_at is None else Timestamp(to_milliseconds(rule.created_at))
    return encode_value((rule.name, _describe(rule.filter), action, created_at))


def decode_rule(encoded: bytes) -> Rule:
    name, described, action, created_at = decode_single(encoded)
    given = [dict(value.pairs) if isinstance(value, Map) else value for value in described.value]
    return Rule(
        name=name,
        filter=_FILTERS[described.descriptor](*given),
        action=None if action is None else SqlRuleAction(action),
        created_at=None if created_at is None else to_datetime(created_at),
    )


def _describe(rule_filter: RuleFilter) -> Described:
    values: list[Value] = [getattr(rule_filter, field.name) for field in fields(rule_filter)]
    return Described(_DESCRIPTORS[type(rule_filter)], tuple(Map(value) if isinstance(value, Mapping) else value for value in values))
