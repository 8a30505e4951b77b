"""What is refused, for every operation and every key: the wrong type, the wrong kind of entity, and nothing that changes by it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import UNDESCRIBED, Array, Data, int32, symbol, timestamp, ubyte, uint

from spark_sb_mgmt.amqp.message import AmqpValue, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Array as WireArray
from spark_sb_mgmt.amqp.types import Map, Symbol
from spark_sb_mgmt.emulator.entities import ServiceBusFault
from spark_sb_mgmt.emulator.management import read_request
from spark_sb_mgmt.emulator.management.dispatch import OPERATIONS
from spark_sb_mgmt.operations import names
from tests.emulator.management.service import Service, longs, scheduled, uuids

RULE = {"sql-filter": {"expression": "1=1"}}
SOME_TIME = timestamp(253402300800000)
# A right body of each operation, and an entity at which it is right.
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "peek-message": ("q", {"from-sequence-number": 0, "message-count": int32(1)}),
    "receive-by-sequence-number": ("q", {"sequence-numbers": longs(1), "receiver-settle-mode": uint(1)}),
    "update-disposition": ("q", {"disposition-status": "completed", "lock-tokens": uuids(UUID(int=1))}),
    "renew-lock": ("q", {"lock-tokens": uuids(UUID(int=1))}),
    "batch-delete-messages": ("q", {"message-count": int32(1)}),
    "schedule-message": ("q", {"messages": [scheduled()]}),
    "cancel-scheduled-message": ("q", {"sequence-numbers": longs(1)}),
    "renew-session-lock": ("sessions", {"session-id": "s"}),
    "get-session-state": ("sessions", {"session-id": "s"}),
    "set-session-state": ("sessions", {"session-id": "s", "session-state": b"x"}),
    "get-message-sessions": ("sessions", {"last-updated-time": SOME_TIME, "skip": int32(0), "top": int32(1)}),
    "add-rule": ("t/Subscriptions/all", {"rule-name": "r", "rule-description": RULE}),
    "remove-rule": ("t/Subscriptions/all", {"rule-name": "$Default"}),
    "enumerate-rules": ("t/Subscriptions/all", {"top": int32(1), "skip": int32(0)}),
}
# Of every key the type that the answer must name, and values of others that are near it.
KEYS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "from-sequence-number": ("long", (int32(0), uint(0), "0")),
    "message-count": ("int", (1, uint(1), "1")),
    "omit-message-body": ("boolean", (int32(1), "true")),
    "session-id": ("string", (symbol("s"), b"s", int32(1))),
    "sequence-numbers": ("array", ([1], 1, "1")),
    "receiver-settle-mode": ("uint or ubyte", (1, int32(1), True)),
    "disposition-status": ("string", (symbol("completed"), int32(1))),
    "lock-tokens": ("array", ([UUID(int=1)], UUID(int=1))),
    "deadletter-reason": ("string", (b"x", int32(1))),
    "deadletter-description": ("string", (b"x", int32(1))),
    "properties-to-modify": ("map", ("x", ["x"])),
    "enqueued-time-utc": ("timestamp", (5, "now")),
    "messages": ("list", ({}, b"x")),
    "session-state": ("binary", ("text", [1])),
    "last-updated-time": ("timestamp", (253402300800000, "now")),
    "skip": ("int", (0, uint(0))),
    "top": ("int", (1, ubyte(1))),
    "rule-name": ("string", (symbol("r"), int32(1))),
    "rule-description": ("map", ("1=1", [1])),
}
OPTIONAL = {
    "peek-message": ("session-id", "omit-message-body"),
    "receive-by-sequence-number": ("session-id",),
    "update-disposition": ("deadletter-reason", "deadletter-description", "properties-to-modify", "session-id"),
    "batch-delete-messages": ("enqueued-time-utc", "session-id"),
}


def wrong_types() -> list[Any]:
    cases = []
    for operation, (_, body) in RIGHT.items():
        for key in (*body, *OPTIONAL.get(operation, ())):
            expected, values = KEYS[key]
            cases += [pytest.param(operation, key, expected, value, id=f"{operation}-{key}-{value!r:.30}") for value in values]
    return cases


@pytest.fixture
def service() -> Service:
    return Service()


def test_the_table_above_is_complete() -> None:
    assert {f"com.microsoft:{operation}" for operation in RIGHT} == set(OPERATIONS)


@pytest.mark.parametrize(("operation", "key", "expected", "value"), wrong_types())
def test_a_value_of_the_wrong_type_is_refused_by_key_and_type(
    service: Service, operation: str, key: str, expected: str, value: Any
) -> None:
    at, body = RIGHT[operation]
    reply = service.ask(operation, {**body, key: value}, at=at)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert f"`{key}` in the body of {operation} must be an AMQP {expected}, not a " in reply.description


@pytest.mark.parametrize(
    ("operation", "key"),
    [(operation, key) for operation, (_, body) in RIGHT.items() for key in body if key != "session-state"],
)
def test_a_key_that_is_missing_or_null_is_named_with_its_type(service: Service, operation: str, key: str) -> None:
    at, body = RIGHT[operation]
    left_out = {name: value for name, value in body.items() if name != key}
    for given in (left_out, {**body, key: None}):
        reply = service.ask(operation, given, at=at)
        assert reply.said == (400, "com.microsoft:argument-error")
        assert f"`{key}` (AMQP {KEYS[key][0]}) is missing in the body of {operation}" in reply.description


@pytest.mark.parametrize(
    ("operation", "key", "array", "told"),
    [
        ("renew-lock", "lock-tokens", Array(UNDESCRIBED, Data.STRING, "a"), "must be an AMQP array of uuid, not of string"),
        ("update-disposition", "lock-tokens", Array(UNDESCRIBED, Data.LONG, 1), "must be an AMQP array of uuid, not of long"),
        ("cancel-scheduled-message", "sequence-numbers", Array(UNDESCRIBED, Data.INT, 1), "must be an AMQP array of long, not of int"),
        ("cancel-scheduled-message", "sequence-numbers", longs(), "is empty"),
        ("receive-by-sequence-number", "sequence-numbers", longs(), "is empty"),
        ("renew-lock", "lock-tokens", uuids(), "is empty"),
        ("renew-lock", "lock-tokens", Array(symbol("x"), Data.UUID, UUID(int=1)), "not of described value"),
    ],
)
def test_an_array_of_other_elements_is_refused(service: Service, operation: str, key: str, array: Array, told: str) -> None:
    at, body = RIGHT[operation]
    reply = service.ask(operation, {**body, key: array}, at=at)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert told in reply.description


@pytest.mark.parametrize("operation", sorted(RIGHT))
def test_a_key_that_nobody_knows_is_passed_over(service: Service, operation: str) -> None:
    at, body = RIGHT[operation]
    expected, odd = service.ask(operation, body, at=at), Service().ask(operation, {**body, "unheard-of": 1, int32(5): "x"}, at=at)
    assert odd.said == expected.said
    assert odd.said != (400, "com.microsoft:argument-error")


@pytest.mark.parametrize(
    "operation",
    sorted(set(RIGHT) - {"peek-message", "schedule-message", "cancel-scheduled-message", "add-rule", "remove-rule", "enumerate-rules"}),
)
def test_a_topic_has_no_messages_to_receive_and_points_to_its_subscriptions(service: Service, operation: str) -> None:
    reply = service.ask(operation, RIGHT[operation][1], at="t")
    assert reply.said == (400, "amqp:not-allowed")
    assert "use one of its subscriptions" in reply.description


def raw_request(operation: str, body: Map, message_id: str = "1", **properties: str) -> bytes:
    """By our own encoder: proton writes no text that is not UTF-8."""
    given = Map([("operation", operation), *properties.items()])
    return encode_message(Message(properties=Properties(message_id=message_id), application_properties=given, body=AmqpValue(body)))


NOT_UTF8 = b"\xff\xfe".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (names.SET_SESSION_STATE, Map({"session-id": NOT_UTF8, "session-state": b"x"})),
        (names.ADD_RULE, Map({"rule-name": NOT_UTF8, "rule-description": Map({"sql-filter": Map({"expression": "1=1"})})})),
        (names.ADD_RULE, Map({"rule-name": "r", "rule-description": Map({"correlation-filter": Map({"label": NOT_UTF8})})})),
        (
            names.ADD_RULE,
            Map({"rule-name": "r", "rule-description": Map({"correlation-filter": Map({"properties": Map({"a": NOT_UTF8})})})}),
        ),
    ],
)
def test_text_that_others_could_not_read_in_an_answer_is_refused(service: Service, operation: str, body: Map) -> None:
    at = "sessions" if operation == names.SET_SESSION_STATE else "t/Subscriptions/all"
    reply = service.answer(raw_request(operation, body), at=at)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "UTF-8" in reply.description


def test_a_symbol_that_is_not_ascii_is_refused(service: Service) -> None:
    (token,) = service.locked("a")
    body = Map({"disposition-status": "abandoned", "lock-tokens": WireArray("uuid", [token])})
    for value, status in ((Symbol("é"), 400), (Symbol("e"), 200)):
        given = Map([*body, ("properties-to-modify", Map({"a": value}))])
        assert service.answer(raw_request(names.UPDATE_DISPOSITION, given)).status == status


def test_an_operation_that_is_not_text_is_refused_in_text(service: Service) -> None:
    reply = service.answer(raw_request(NOT_UTF8, Map()))
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "`operation` is not valid UTF-8" in reply.description


def test_a_message_id_that_is_not_utf8_is_a_fault_for_the_link() -> None:
    with pytest.raises(ServiceBusFault, match="message-id"):
        read_request(raw_request(names.PEEK_MESSAGE, Map(), NOT_UTF8))
