"""Correlation filters: equal in all that is given."""

from __future__ import annotations

from typing import Any

import pytest

from spark_sb_mgmt.amqp.message import Message, Properties
from spark_sb_mgmt.amqp.types import Float, Int, Long, Symbol, Timestamp, ULong
from spark_sb_mgmt.model import CorrelationFilter
from tests.emulator.rules.evaluation import NEW_ID, message, rule

FIELDS = {
    "correlation_id": "correlation_id",
    "message_id": "message_id",
    "to": "to",
    "reply_to": "reply_to",
    "label": "subject",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
}


@pytest.mark.parametrize("attribute", FIELDS)
def test_each_system_property_is_compared_with_its_own_field(attribute: str) -> None:
    compiled = rule(CorrelationFilter(**{attribute: "x"}))
    assert compiled.matches(Message(properties=Properties(**{FIELDS[attribute]: "x"})))
    others = {field: "x" for field in FIELDS.values() if field != FIELDS[attribute]}
    assert not compiled.matches(Message(properties=Properties(**others, **{FIELDS[attribute]: "X"})))
    assert not compiled.matches(Message(properties=Properties(**others)))
    assert not compiled.matches(Message())


def test_every_property_that_is_given_must_be_equal() -> None:
    compiled = rule(CorrelationFilter(label="order", session_id="s-1", properties={"color": "red", "size": Long(5)}))
    assert compiled.matches(message(color="red", size=Int(5), more="x"))
    assert not compiled.matches(message(color="red", size=Int(6)))
    assert not compiled.matches(message(color="red"))
    assert not rule(CorrelationFilter(label="order", session_id="s-2")).matches(message())


@pytest.mark.parametrize(
    ("given", "found", "same"),
    [
        ("x", "x", True),
        ("x", Symbol("x"), True),
        (Symbol("x"), "x", True),
        ("x", "X", False),
        ("", None, False),
        (Long(1), Int(1), True),
        (1, Int(1), True),
        (Long(1), ULong(1), True),
        (Long(1), 1.0, True),
        (0.5, Float(0.5), True),
        (Long(1), True, False),
        (True, Long(1), False),
        (True, True, True),
        ("2", Int(2), False),
        (Int(2), "2", False),
        (Timestamp(5), Timestamp(5), True),
        (Timestamp(5), Long(5), False),
        (NEW_ID, NEW_ID, True),
        (str(NEW_ID), NEW_ID, False),
        (b"x", b"x", True),
        (None, None, True),
        ((Int(1),), (Int(1),), True),
    ],
)
def test_which_values_are_equal(given: Any, found: Any, same: bool) -> None:
    assert rule(CorrelationFilter(properties={"a": given})).matches(message(a=found)) is same


def test_a_property_that_is_not_there_equals_nothing() -> None:
    assert not rule(CorrelationFilter(properties={"a": None})).matches(message())


def test_names_of_user_properties_have_no_case() -> None:
    assert rule(CorrelationFilter(properties={"COLOR": "red"})).matches(message(Color="red"))


def test_an_id_that_is_no_string_is_compared_by_its_text() -> None:
    assert rule(CorrelationFilter(message_id=str(NEW_ID))).matches(Message(properties=Properties(message_id=NEW_ID)))


def test_it_may_have_an_action() -> None:
    compiled = rule(CorrelationFilter(label="order"), "SET a = 1")
    changed = compiled.apply(message()).application_properties
    assert changed is not None
    assert changed["a"] == 1
