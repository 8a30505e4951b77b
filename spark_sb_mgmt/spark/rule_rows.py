"""Rules as rows, both ways (CONTRACT sections 1.2 and 1.3).

The one rule: a rule that is read and added elsewhere is the same rule: values of a correlation filter keep their AMQP types.

To write, `filter_type` may be left out: an expression makes an sql filter, a correlation filter one of that kind, and neither every
message. What contradicts it is an error of its row. `action_type` is `sql`, or null where there is no action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_sb_mgmt.amqp.columns import batch_of
from spark_sb_mgmt.amqp.typed_text import TypedText, section_from_typed, section_to_typed
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.errors import EncodeError
from spark_sb_mgmt.model import FILTER_TYPES, SQL, CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.names import CORRELATION_FIELDS, PROPERTIES
from spark_sb_mgmt.spark.reading.read_schema import RULE_COLUMNS
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

CORRELATION: Final = FILTER_TYPES[CorrelationFilter]
_TEXT_FIELDS: Final = tuple(key.replace("-", "_") for key in CORRELATION_FIELDS)


def rules_to_batch(entity: str, rules: Iterable[Rule], names: Sequence[str]) -> pa.RecordBatch:
    """Rules of a subscription as rows with these columns."""
    rows = [_row(entity, rule) for rule in rules]
    schema = pa.schema([RULE_COLUMNS.field(name) for name in names])
    return batch_of([pa.array([row[field.name] for row in rows], field.type) for field in schema], schema, len(rows))


def _row(entity: str, rule: Rule) -> dict[str, Any]:
    return {
        "entity": entity,
        "rule_name": rule.rule_name,
        "filter_type": rule.filter_type,
        "sql_expression": rule.sql_expression,
        "correlation_filter": None if rule.correlation_filter is None else _correlation_cells(rule.correlation_filter),
        "action_type": rule.action_type,
        "action_expression": rule.action_expression,
        "created_at": rule.created_at,
    }


def _correlation_cells(rule_filter: CorrelationFilter) -> dict[str, Any]:
    typed = section_to_typed(Map(list(rule_filter.properties.items())), "string") or []
    cells: dict[str, Any] = {name: getattr(rule_filter, name) for name in _TEXT_FIELDS}
    cells[PROPERTIES] = [(key, {"type": kind, "value": text}) for key, (kind, text) in typed]
    return cells


def rules_of(batch: pa.RecordBatch) -> list[Rule | RowProblem]:
    """The rule of each row, or what is wrong with the row. Names and lengths are checked by `row_problems`."""
    found: list[Rule | RowProblem] = []
    for at, row in enumerate(batch.to_pylist()):
        try:
            found.append(Rule(row["rule_name"], _filter(row), _action(row)))
        except EncodeError as problem:
            found.append(RowProblem(at, problem.problem))
    return found


def _filter(row: dict[str, Any]) -> RuleFilter:
    kind, expression, correlation = row.get("filter_type"), row.get("sql_expression"), row.get("correlation_filter")
    if kind is None:
        if expression is not None and correlation is not None:
            raise EncodeError("sql_expression and correlation_filter are both there: say in filter_type which is meant, or make one null")
        kind = SQL if expression is not None else CORRELATION if correlation is not None else "true"
    if kind not in FILTER_TYPES.values():
        raise EncodeError(f"filter_type is {kind!r:.60}: it must be one of {', '.join(FILTER_TYPES.values())}")
    for name, value, of in (("sql_expression", expression, SQL), ("correlation_filter", correlation, CORRELATION)):
        if value is None and kind == of:
            raise EncodeError(f"filter_type is {kind}, and {name} is null")
        if value is not None and kind != of:
            raise EncodeError(f"filter_type is {kind}, and {name} is there: make it null")
    if kind == SQL:
        return SqlFilter(str(expression))
    if kind == CORRELATION:
        return _correlation(correlation or {})
    return TrueFilter() if kind == "true" else FalseFilter()


def _correlation(cells: dict[str, Any]) -> CorrelationFilter:
    texts = {name: cells[name] for name in _TEXT_FIELDS if cells.get(name) is not None}
    properties = _properties(cells.get(PROPERTIES) or [])
    if not texts and not properties:
        raise EncodeError("correlation_filter has nothing that a message could match: set one of its fields, or filter_type to true")
    return CorrelationFilter(**texts, properties=properties)


def _properties(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Typed values with their types; a plain string is one."""
    entries: list[tuple[str, TypedText]] = []
    for key, value in pairs:
        typed = value if isinstance(value, dict) else {"type": "string", "value": value}
        if value is None or typed["type"] is None:
            raise EncodeError(f"correlation_filter has no value for property {key!r:.60}, and nothing equals null")
        entries.append((key, (typed["type"], typed["value"])))
    section = section_from_typed(entries, "string")
    return {} if section is None else dict(section.pairs)


def _action(row: dict[str, Any]) -> SqlRuleAction | None:
    kind, expression = row.get("action_type"), row.get("action_expression")
    if kind not in (None, SQL):
        raise EncodeError(f"action_type is {kind!r:.60}: it must be {SQL}, or null for no action")
    if kind == SQL and expression is None:
        raise EncodeError("action_type is sql, and action_expression is null")
    return None if expression is None else SqlRuleAction(expression)
