"""Rules of a subscription (wire-facts.md, section 1.3).

A rule is sent as maps and comes back as described lists, read by position. Filters and actions have numbers of two ranges, of which
one has a digit too few; whether a number means a filter or an action is told by where it stands, so both ranges are read in both places,
and the symbolic names too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Described, Map, Timestamp, ULong, Value, type_name
from spark_sb_mgmt.errors import InvalidArgumentError, RemoteProtocolError
from spark_sb_mgmt.model import FILTER_TYPES, CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations import arguments, names, results
from spark_sb_mgmt.operations.envelope import Request, Response
from spark_sb_mgmt.operations.times import to_datetime

# True and false filters have no map form.
TRUE_EXPRESSION: Final = "1=1"
FALSE_EXPRESSION: Final = "1=0"


def add_rule(rule: Rule) -> Request[None]:
    """Add a rule. A true or false filter is sent as the expression that means it."""
    if not isinstance(rule, Rule):
        raise InvalidArgumentError("rule", f"must be a Rule of spark_sb_mgmt.model, not {rule!r:.80}")
    description: list[tuple[str, Value]] = [_filter_pair(rule.filter)]
    if rule.action is not None:
        if not isinstance(rule.action, SqlRuleAction):
            raise InvalidArgumentError("action", f"must be a SqlRuleAction of spark_sb_mgmt.model, not {rule.action!r:.80}")
        description.append((names.SQL_RULE_ACTION, _expression("action", rule.action.expression)))
    body = Map([(names.RULE_NAME, _rule_name(rule.name)), (names.RULE_DESCRIPTION, Map(description))])
    return Request(names.ADD_RULE, encode_value(body), f"add-rule {rule.name!r}", results.nothing)


def rule_of(
    rule_name: str,
    sql_expression: str | None = None,
    correlation_filter: CorrelationFilter | Mapping[str, Any] | None = None,
    action_expression: str | None = None,
    filter_type: str | None = None,
) -> Rule:
    """A rule by its columns. Without `filter_type`: messages match an expression, or a correlation filter, or, without either, all do."""
    if sql_expression is not None and correlation_filter is not None:
        raise InvalidArgumentError("correlation_filter", "is given beside sql_expression: a rule has one filter")
    rule_filter: RuleFilter = FalseFilter() if filter_type == FILTER_TYPES[FalseFilter] else TrueFilter()
    if sql_expression is not None:
        rule_filter = SqlFilter(sql_expression)
    if correlation_filter is not None:
        rule_filter = _correlation_filter(correlation_filter)
    if filter_type is not None:
        arguments.one_of("filter_type", filter_type, dict.fromkeys(FILTER_TYPES.values(), ""))
        if filter_type != FILTER_TYPES[type(rule_filter)]:
            raise InvalidArgumentError("filter_type", f"is {filter_type}, and what is given beside it makes a {type(rule_filter).__name__}")
    return Rule(rule_name, rule_filter, None if action_expression is None else SqlRuleAction(action_expression))


def rule_described(rule_name: str, rule_description: Mapping[str, Any]) -> Rule:
    """A rule as the wire has it: `sql-filter` or `correlation-filter`, and perhaps `sql-rule-action`."""
    known = (names.SQL_FILTER, names.CORRELATION_FILTER, names.SQL_RULE_ACTION)
    parts = _by_wire_name(rule_description, known)
    if parts is None:
        raise InvalidArgumentError("rule_description", f"must be a dict of {', '.join(known)}, not {rule_description!r:.80}")
    return rule_of(
        rule_name,
        _expression_of(names.SQL_FILTER, parts.get(names.SQL_FILTER)),
        parts.get(names.CORRELATION_FILTER),
        _expression_of(names.SQL_RULE_ACTION, parts.get(names.SQL_RULE_ACTION)),
    )


def _expression_of(key: str, given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or set(given) != {names.EXPRESSION}:
        raise InvalidArgumentError("rule_description", f"has a {key} that is not a dict of one {names.EXPRESSION}: {given!r:.80}")
    expression: str = given[names.EXPRESSION]
    return expression


def _correlation_filter(given: CorrelationFilter | Mapping[str, Any]) -> CorrelationFilter:
    if isinstance(given, CorrelationFilter):
        return given
    fields = _by_wire_name(given, (*names.CORRELATION_FIELDS, names.PROPERTIES))
    if fields is None:
        known = (*map(_attribute, names.CORRELATION_FIELDS), names.PROPERTIES)
        raise InvalidArgumentError("correlation_filter", f"must be a CorrelationFilter, or a dict of {', '.join(known)}, not {given!r:.80}")
    return CorrelationFilter(**{_attribute(key): value for key, value in fields.items()})


def _by_wire_name(given: Any, known: tuple[str, ...]) -> dict[str, Any] | None:
    """Named values by the names of the wire, spelt with `-` or, as in Python, with `_`; those that are None left out. None if there is
    another name, or one twice."""
    if not isinstance(given, Mapping):
        return None
    found = {str(name).replace("_", "-"): value for name, value in given.items()}
    if len(found) < len(given) or not set(found) <= set(known):
        return None
    return {name: value for name, value in found.items() if value is not None}


def remove_rule(rule_name: str) -> Request[None]:
    body = encode_value(Map([(names.RULE_NAME, _rule_name(rule_name))]))
    return Request(names.REMOVE_RULE, body, f"remove-rule {rule_name!r}", results.nothing)


def enumerate_rules(top: int = 100, skip: int = 0) -> Request[list[Rule]]:
    """One page of rules. A page may be short: only an empty one is the last."""
    body = Map([(names.TOP, arguments.int32("top", top, 1)), (names.SKIP, arguments.int32("skip", skip, 0))])
    return Request(
        names.ENUMERATE_RULES,
        encode_value(body),
        f"enumerate-rules, up to {top} after the first {skip}",
        partial(_read_rules, top=top),
        safe=True,
    )


# --- to the wire --------------------------------------------------------------------------------------------------------


def _rule_name(name: str) -> str:
    return arguments.text("rule_name", name, arguments.LONGEST_RULE_NAME, empty=False)


def _expression(argument: str, expression: str) -> Map:
    return Map([(names.EXPRESSION, arguments.text(argument, expression, arguments.LONGEST_EXPRESSION, empty=False))])


def _filter_pair(rule_filter: RuleFilter) -> tuple[str, Map]:
    if isinstance(rule_filter, SqlFilter):
        return names.SQL_FILTER, _expression("filter", rule_filter.expression)
    if isinstance(rule_filter, TrueFilter):
        return names.SQL_FILTER, _expression("filter", TRUE_EXPRESSION)
    if isinstance(rule_filter, FalseFilter):
        return names.SQL_FILTER, _expression("filter", FALSE_EXPRESSION)
    if not isinstance(rule_filter, CorrelationFilter):
        raise InvalidArgumentError("filter", f"must be a filter of spark_sb_mgmt.model, not {rule_filter!r:.80}")
    pairs: list[tuple[str, Value]] = []
    for key in names.CORRELATION_FIELDS:
        value = getattr(rule_filter, _attribute(key))
        if value is not None:
            pairs.append((key, arguments.text(_attribute(key), value, arguments.LONGEST_EXPRESSION)))
    if rule_filter.properties:
        pairs.append((names.PROPERTIES, arguments.properties("properties", rule_filter.properties)))
    return names.CORRELATION_FILTER, Map(pairs)


def _attribute(key: str) -> str:
    return key.replace("-", "_")


# --- from the wire ------------------------------------------------------------------------------------------------------

# The start of both ranges; the numbers in them are the same.
_RANGES: Final = frozenset((names.RULE_DESCRIPTION_CODE & ~0xFF, names.SQL_FILTER_CODE & ~0xFF))
_RULE: Final[Mapping[int, str]] = {names.RULE_DESCRIPTION_CODE: names.RULE_DESCRIPTION}
_ACTIONS: Final[Mapping[int, str]] = {
    names.EMPTY_RULE_ACTION_CODE: names.EMPTY_RULE_ACTION,
    names.SQL_RULE_ACTION_CODE: names.SQL_RULE_ACTION,
}
_FILTERS: Final[Mapping[int, str]] = {
    names.SQL_FILTER_CODE: names.SQL_FILTER,
    names.TRUE_FILTER_CODE: names.TRUE_FILTER,
    names.FALSE_FILTER_CODE: names.FALSE_FILTER,
    names.CORRELATION_FILTER_CODE: names.CORRELATION_FILTER,
}


def _read_rules(response: Response, top: int) -> list[Rule]:
    if response.is_empty:
        return []
    entries = results.one(response.body(), names.RULES, "list")
    if len(entries) > top:
        raise RemoteProtocolError(f"`{names.RULES}` of the answer has {len(entries)} items where {top} at most were asked for")
    return [_read_rule(entry, f"`{names.RULES}`[{index}] of the answer") for index, entry in enumerate(entries)]


def _read_rule(entry: Value, where: str) -> Rule:
    if not isinstance(entry, Map) or names.RULE_DESCRIPTION not in entry:
        raise RemoteProtocolError(f"{where} has no `{names.RULE_DESCRIPTION}`")
    _, fields = _described(entry[names.RULE_DESCRIPTION], _RULE, where)
    name = _field(fields, 2)
    if not isinstance(name, str):
        raise RemoteProtocolError(f"{where}: the name of the rule is an AMQP {type_name(name)}, not a string")
    where = f"{where} (rule {name!r:.60})"
    created_at = _field(fields, 3)
    if created_at is not None and not isinstance(created_at, Timestamp):
        raise RemoteProtocolError(f"{where}: created-at is an AMQP {type_name(created_at)}, not a timestamp")
    return Rule(
        str(name),
        _read_filter(_field(fields, 0), where),
        _read_action(_field(fields, 1), where),
        None if created_at is None else _moment(created_at),
    )


def _moment(milliseconds: int) -> datetime | None:
    try:
        return to_datetime(milliseconds)
    except OverflowError:
        return None


def _read_filter(value: Value, where: str) -> RuleFilter:
    kind, fields = _described(value, _FILTERS, f"{where}, its filter")
    if kind == names.TRUE_FILTER:
        return TrueFilter()
    if kind == names.FALSE_FILTER:
        return FalseFilter()
    if kind == names.SQL_FILTER:
        return SqlFilter(_read_expression(fields, f"{where}, its filter"))
    texts: dict[str, str] = {}
    for index, key in enumerate(names.CORRELATION_FIELDS):
        text = _field(fields, index)
        if text is not None and not isinstance(text, str):
            raise RemoteProtocolError(f"{where}: {key} of its filter is an AMQP {type_name(text)}, not a string")
        if text is not None:
            texts[_attribute(key)] = str(text)
    properties = _field(fields, len(names.CORRELATION_FIELDS))
    if properties is not None and not isinstance(properties, Map):
        raise RemoteProtocolError(f"{where}: {names.PROPERTIES} of its filter is an AMQP {type_name(properties)}, not a map")
    for key, _ in properties or ():
        if not isinstance(key, str):
            raise RemoteProtocolError(f"{where}: {names.PROPERTIES} of its filter has a key that is a {type_name(key)}, not a string")
    return CorrelationFilter(**texts, properties={str(key): item for key, item in properties or ()})


def _read_action(value: Value, where: str) -> SqlRuleAction | None:
    if value is None:
        return None
    kind, fields = _described(value, _ACTIONS, f"{where}, its action")
    return SqlRuleAction(_read_expression(fields, f"{where}, its action")) if kind == names.SQL_RULE_ACTION else None


def _read_expression(fields: tuple[Value, ...], where: str) -> str:
    expression = _field(fields, 0)
    if not isinstance(expression, str):
        raise RemoteProtocolError(f"{where} has an expression that is an AMQP {type_name(expression)}, not a string")
    return str(expression)


def _field(fields: tuple[Value, ...], index: int) -> Value:
    """A field of a list; those at the end that are null may be left out (AMQP 1.0 part 1, section 1.4)."""
    return fields[index] if index < len(fields) else None


def _described(value: Value, kinds: Mapping[int, str], where: str) -> tuple[str, tuple[Value, ...]]:
    """Which of `kinds` a described list is, and its fields."""
    if not isinstance(value, Described):
        raise RemoteProtocolError(f"{where} is an AMQP {type_name(value)}, not a described list")
    kind = _kind(value.descriptor, kinds)
    if kind is None:
        raise RemoteProtocolError(f"{where} has the descriptor {value.descriptor!r:.80}, which is none of {', '.join(kinds.values())}")
    if not isinstance(value.value, tuple):
        raise RemoteProtocolError(f"{where} is a described {type_name(value.value)}, not a described list")
    return kind, value.value


def _kind(descriptor: Value, kinds: Mapping[int, str]) -> str | None:
    if isinstance(descriptor, ULong):
        number = descriptor & 0xFF
        if descriptor - number not in _RANGES:
            return None
        return next((kind for code, kind in kinds.items() if code & 0xFF == number), None)
    return next((kind for kind in kinds.values() if descriptor == f"com.microsoft:{kind}:list"), None)
