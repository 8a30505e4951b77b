"""add-rule, remove-rule and enumerate-rules (wire-facts.md section 1.3).

The one rule: rules come as maps and go as described lists. Descriptors of filters have a digit less than those of rules and actions; so it
is on the wire, and clients refuse what is mended.
"""

from __future__ import annotations

from typing import Final

from spark_sb_mgmt.amqp.encode import encode_list, encode_map, encode_value
from spark_sb_mgmt.amqp.types import Described, Int, Map, Timestamp, ULong, Value
from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.management.bodies import Body
from spark_sb_mgmt.emulator.management.call import DONE, Answer, Call, nothing
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.times import to_datetime, to_milliseconds

_RULES, _RULE_DESCRIPTION = encode_value(names.RULES), encode_value(names.RULE_DESCRIPTION)
# Of the SQL language: the only one there has been for many years.
_COMPATIBILITY_LEVEL: Final = Int(20)


def add_rule(call: Call) -> Answer:
    subscription = call.subscription
    name = call.body.text(names.RULE_NAME)
    description = call.body.map(names.RULE_DESCRIPTION)
    action = description.optional_map(names.SQL_RULE_ACTION)
    rule = Rule(
        name,
        _read_filter(description),
        None if action is None else SqlRuleAction(action.text(names.EXPRESSION)),
        to_datetime(subscription.catch_up()),
    )
    try:
        compiled = call.compile_rule(rule)
    except SbMgmtError as error:
        raise faults.argument_error(f"Rule '{name:.50}' cannot be used: {error}.") from error
    subscription.add_rule(compiled)
    return DONE


def _read_filter(description: Body) -> RuleFilter:
    sql, correlation = description.optional_map(names.SQL_FILTER), description.optional_map(names.CORRELATION_FILTER)
    if (sql is None) == (correlation is None):
        raise faults.argument_error(
            f"There must be one of `{names.SQL_FILTER}` and `{names.CORRELATION_FILTER}` in {description.place}; "
            f"for a filter that is always true or false, an SQL filter 1=1 or 1=0."
        )
    if sql is not None:
        return SqlFilter(sql.text(names.EXPRESSION))
    assert correlation is not None, "one of the two is there"
    texts = {_attribute(key): correlation.optional_text(key) for key in names.CORRELATION_FIELDS}
    properties = {str(key): item for key, item in correlation.properties(names.PROPERTIES)}
    return CorrelationFilter(**texts, properties=properties)


def _attribute(key: str) -> str:
    return key.replace("-", "_")


def remove_rule(call: Call) -> Answer:
    call.subscription.remove_rule(call.body.text(names.RULE_NAME))
    return DONE


def enumerate_rules(call: Call) -> Answer:
    subscription = call.subscription
    rules = subscription.rules(call.body.integer(names.SKIP, "int"), call.body.integer(names.TOP, "int"))
    entries = [encode_map((_RULE_DESCRIPTION, encode_value(_describe(rule.description, subscription.created_at)))) for rule in rules]
    listed = _RULES, encode_list(entries)
    return Answer(listed) if rules else nothing("There are no more rules.", None, *listed)


def _describe(rule: Rule, subscription_created_at: int) -> Described:
    created_at = Timestamp(subscription_created_at if rule.created_at is None else to_milliseconds(rule.created_at))
    return _list(names.RULE_DESCRIPTION_CODE, _describe_filter(rule.filter), _describe_action(rule.action), rule.name, created_at)


def _describe_filter(rule_filter: RuleFilter) -> Described:
    if isinstance(rule_filter, SqlFilter):
        return _list(names.SQL_FILTER_CODE, rule_filter.expression, _COMPATIBILITY_LEVEL)
    if isinstance(rule_filter, TrueFilter):
        return _list(names.TRUE_FILTER_CODE)
    if isinstance(rule_filter, FalseFilter):
        return _list(names.FALSE_FILTER_CODE)
    texts = [getattr(rule_filter, _attribute(key)) for key in names.CORRELATION_FIELDS]
    return _list(names.CORRELATION_FILTER_CODE, *texts, Map(rule_filter.properties))


def _describe_action(action: SqlRuleAction | None) -> Described:
    if action is None:
        return _list(names.EMPTY_RULE_ACTION_CODE)
    return _list(names.SQL_RULE_ACTION_CODE, action.expression, _COMPATIBILITY_LEVEL)


def _list(code: int, *fields: Value) -> Described:
    return Described(ULong(code), fields)
