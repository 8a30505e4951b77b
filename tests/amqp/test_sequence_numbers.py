"""The sequence numbers of an answer: those of the column, found without it."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.arrow_decode import decode_scalar
from spark_sb_mgmt.amqp.message import Data, Message, encode_message
from spark_sb_mgmt.amqp.messages import locate
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.amqp.response import find_entries
from spark_sb_mgmt.amqp.sequence_numbers import read_sequence_numbers
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, ULong, Value
from tests.amqp import shapes

KEY = Symbol("x-opt-sequence-number")


@pytest.fixture(params=["native", "numpy"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setenv("SBMGMT_NATIVE", "0")
    assert (native_module() is not None) == (request.param == "native")


def numbers_of(response: bytes) -> list[int] | None:
    found = read_sequence_numbers(response, find_entries(response))
    return None if found is None else found.tolist()


def numbered(*values: Value) -> list[bytes]:
    return [encode_message(Message(message_annotations=Map([(KEY, value)]), body=Data((b"x",)))) for value in values]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(shapes.messages, max_size=6), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), st.integers(0, 2**32))
def test_they_are_those_of_the_column(messages: list[Message], numbers: list[int], seed: int) -> None:
    choice = Random(seed)
    wires = [shapes.encode_message_any_width(message, choice) for message in messages] + numbered(*map(Long, numbers))
    tokens = [choice.choice([None, None, UUID(int=choice.getrandbits(128))]) for _ in wires]
    response = shapes.response(wires, tokens, choice)
    column = decode_scalar(locate([response]), ["sequence_number"]).column(0).to_pylist()
    assert numbers_of(response) == (None if None in column else column)


@pytest.mark.parametrize("value", [Long(-1), Long(2**63 - 1), Int(7), ULong(0), ULong(2**63 - 1)])
def test_any_integer_is_a_number(value: Value) -> None:
    assert numbers_of(shapes.response(numbered(Long(5), value))) == [5, int(value)]


@pytest.mark.parametrize("value", [None, "7", 7.0, ULong(2**63), True])
def test_what_is_no_number_is_none(value: Value) -> None:
    assert numbers_of(shapes.response(numbered(Long(5), value))) is None


def test_an_answer_without_messages_has_none() -> None:
    assert numbers_of(shapes.response([])) == []


@pytest.mark.parametrize("way", ["native"], indirect=True)
def test_bounds_that_are_not_of_the_response_are_not_followed() -> None:
    native = native_module()
    assert native is not None
    response = shapes.response(numbered(Long(5), Long(6)))
    bounds = find_entries(response)
    for start, end in ((-1, 5), (0, len(response) + 1), (5, 4), (len(response), len(response) + 2**40), (2**62, -(2**62))):
        wrong = bounds.copy()
        wrong[0], wrong[1] = start, end
        assert native.sequence_numbers(response, wrong) is None
