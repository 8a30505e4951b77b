"""Rules as rows: the same rule after reading and writing, and a row that is none is told apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.types import Int, Long, Timestamp, ULong
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.rules import add_rule
from spark_sb_mgmt.operations.times import to_datetime
from spark_sb_mgmt.spark.reading.read_schema import RULE_COLUMNS
from spark_sb_mgmt.spark.rule_rows import rules_of, rules_to_batch
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

ALL = tuple(RULE_COLUMNS.names)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
values = st.one_of(
    texts, st.booleans(), st.integers(-(2**31), 2**31 - 1).map(Int), st.integers(0, 2**64 - 1).map(ULong), st.binary(max_size=9)
)
correlations = st.builds(
    CorrelationFilter,
    correlation_id=st.one_of(st.none(), texts),
    label=texts,
    session_id=st.one_of(st.none(), texts),
    properties=st.dictionaries(texts, values, max_size=4),
)
filters = st.one_of(st.builds(SqlFilter, texts), st.just(TrueFilter()), st.just(FalseFilter()), correlations)
rules = st.builds(Rule, texts, filters, st.one_of(st.none(), st.builds(SqlRuleAction, texts)), st.none())


@given(st.lists(rules, max_size=5))
def test_a_rule_that_is_read_and_added_is_the_same(given_rules: list[Rule]) -> None:
    batch = rules_to_batch("t/Subscriptions/s", given_rules, ALL)
    assert batch.schema.equals(RULE_COLUMNS)
    found = rules_of(batch)
    assert found == given_rules
    # What is equal in Python need not be of the same AMQP type: the requests tell.
    assert [add_rule(rule).body for rule in found if isinstance(rule, Rule)] == [add_rule(rule).body for rule in given_rules]


def test_the_columns_of_a_rule() -> None:
    rule = Rule(
        "r",
        CorrelationFilter(label="x", properties={"n": Long(5), "t": Timestamp(0)}),
        SqlRuleAction("SET a = 1"),
        to_datetime(1_700_000_000_123),
    )
    [row] = rules_to_batch("t/Subscriptions/s", [rule], ALL).to_pylist()
    assert row["created_at"].timestamp() == 1_700_000_000.123
    assert (row["entity"], row["filter_type"], row["action_type"]) == ("t/Subscriptions/s", "correlation", "sql")
    assert (row["correlation_filter"]["label"], row["correlation_filter"]["to"]) == ("x", None)
    assert row["correlation_filter"]["properties"][0] == ("n", {"type": "long", "value": "5"})


def test_some_columns_in_any_order_and_none() -> None:
    two = [Rule("a", TrueFilter()), Rule("b", SqlFilter("1=1"))]
    assert rules_to_batch("e", two, ["sql_expression", "rule_name"]).to_pydict() == {
        "sql_expression": [None, "1=1"],
        "rule_name": ["a", "b"],
    }
    assert rules_to_batch("e", two, []).num_rows == 2
    assert rules_to_batch("e", [], ALL).schema.equals(RULE_COLUMNS)


def rows(*given_rows: dict[str, Any]) -> pa.RecordBatch:
    names = {name for row in given_rows for name in row}
    plain = pa.struct([("label", pa.string()), ("properties", pa.map_(pa.string(), pa.string()))])
    schema = pa.schema([(name, plain if name == "correlation_filter" else RULE_COLUMNS.field(name).type) for name in ALL if name in names])
    return pa.RecordBatch.from_pylist(list(given_rows), schema)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, TrueFilter()),
        ({"sql_expression": "a = 1"}, SqlFilter("a = 1")),
        ({"filter_type": "sql", "sql_expression": "a = 1"}, SqlFilter("a = 1")),
        ({"filter_type": "false"}, FalseFilter()),
        ({"correlation_filter": {"label": "x"}}, CorrelationFilter(label="x")),
        ({"correlation_filter": {"properties": [("k", "v")]}}, CorrelationFilter(properties={"k": "v"})),
    ],
)
def test_what_a_person_writes(row: dict[str, Any], expected: Any) -> None:
    assert rules_of(rows({"rule_name": "r", **row})) == [Rule("r", expected)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"sql_expression": "a", "correlation_filter": {"label": "x"}}, "sql_expression and correlation_filter are both there"),
        ({"filter_type": "boolean"}, "filter_type is 'boolean': it must be one of sql, correlation, true, false"),
        ({"filter_type": "sql"}, "filter_type is sql, and sql_expression is null"),
        ({"filter_type": "correlation"}, "filter_type is correlation, and correlation_filter is null"),
        ({"filter_type": "true", "sql_expression": "a"}, "filter_type is true, and sql_expression is there: make it null"),
        ({"correlation_filter": {"label": None}}, "correlation_filter has nothing that a message could match"),
        ({"correlation_filter": {"properties": [("k", None)]}}, "correlation_filter has no value for property 'k'"),
        ({"action_type": "sql"}, "action_type is sql, and action_expression is null"),
        ({"action_type": "x"}, "action_type is 'x': it must be sql, or null for no action"),
    ],
)
def test_a_row_that_is_no_rule(row: dict[str, Any], expected: str) -> None:
    first, second = rules_of(rows({"rule_name": "good"}, {"rule_name": "r", **row}))
    assert first == Rule("good", TrueFilter())
    assert isinstance(second, RowProblem)
    assert second.row == 1
    assert second.problem.startswith(expected)


def test_a_typed_value_that_is_none_is_the_rows_own_problem() -> None:
    typed = [("n", {"type": "int", "value": "many"})]
    batch = pa.RecordBatch.from_pylist([{"rule_name": "r", "correlation_filter": {"properties": typed}}], RULE_COLUMNS)
    [problem] = rules_of(batch)
    assert isinstance(problem, RowProblem)
    assert "'n'" in problem.problem
