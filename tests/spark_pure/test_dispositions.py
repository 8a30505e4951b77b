"""What rows want done, as requests: rows that want the same are one, and what cannot be said is told of its rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa

from spark_sb_mgmt.amqp.columns import TYPED_MAP
from spark_sb_mgmt.amqp.types import Int, Map
from spark_sb_mgmt.operations.settle import update_disposition
from spark_sb_mgmt.spark.writing.dispositions import Disposition, by_disposition, disposition_of, disposition_problems

TOKEN = UUID("03020100-0504-0706-0809-0a0b0c0d0e0f")


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_the_option_is_for_rows_without_the_column() -> None:
    assert disposition_of(rows(lock_token=[str(TOKEN)]), "completed") == Disposition("completed")


def test_rows_of_one_disposition_come_together_each_session_apart() -> None:
    given = rows(
        disposition_status=["completed", "suspended", "completed", "suspended", "suspended"],
        deadletter_reason=[None, "a", None, "b", "a"],
        session_id=["s", "s", "t", "s", "s"],
        at=range(5),
    )
    found = {}
    for disposition, group in by_disposition(given, None):
        found[disposition.status, disposition.deadletter_reason, disposition.session_id] = group.column("at").to_pylist()
    assert found == {
        ("completed", None, "s"): [0],
        ("completed", None, "t"): [2],
        ("suspended", "a", "s"): [1, 4],
        ("suspended", "b", "s"): [3],
    }


def test_a_disposition_is_the_request_of_its_words() -> None:
    given = rows(disposition_status=["suspended"], deadletter_reason=["why"], deadletter_description=["more"], session_id=["s"])
    expected = update_disposition("suspended", [TOKEN], "why", "more", None, "s")
    assert disposition_of(given, None).request([TOKEN]).body == expected.body


def test_properties_are_strings_or_of_their_types_and_null_is_null() -> None:
    plain = rows(properties_to_modify=pa.array([[("a", "1"), ("b", None)]], pa.map_(pa.string(), pa.string())))
    assert disposition_of(plain, "deferred").properties_to_modify == Map([("a", "1"), ("b", None)])
    cells = [("a", {"type": "int", "value": "1"}), ("b", None), ("c", {"type": None, "value": None})]
    typed = rows(properties_to_modify=pa.array([cells], TYPED_MAP))
    assert disposition_of(typed, "deferred").properties_to_modify == Map([("a", Int(1)), ("b", None), ("c", None)])


def test_properties_that_cannot_be_sent_are_told_of_each_of_their_rows() -> None:
    good, bad = [("a", {"type": "int", "value": "1"})], [("a", {"type": "int", "value": "one"})]
    given = rows(properties_to_modify=pa.array([good, bad, None, bad], TYPED_MAP))
    found = disposition_problems(given, "deferred")
    assert [problem.row for problem in found] == [1, 3]
    assert all(problem.problem.startswith("properties_to_modify cannot be sent: 'a': ") for problem in found)


def test_which_dispositions_a_peek_can_show() -> None:
    assert [Disposition(status).removes for status in ("completed", "suspended", "abandoned", "deferred")] == [True, True, False, False]
