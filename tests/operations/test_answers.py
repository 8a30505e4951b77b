"""Every answer, made by proton and read by us: what it says, what it refuses, and what is no answer at all.

A service that breaks the protocol is a RemoteProtocolError that names the operation and what was wrong, never another error and never a
result that was not said.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Described, int32, symbol, timestamp, uint, ulong

from spark_sb_mgmt.errors import (
    DecodeError,
    EntityNotFoundError,
    MessageLockLostError,
    MessageNotFoundError,
    RemoteProtocolError,
    SbMgmtError,
    ServerBusyError,
    ServiceBusError,
)
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.delete import batch_delete_messages
from spark_sb_mgmt.operations.envelope import NO_STATUS, Request, Response, read_response
from spark_sb_mgmt.operations.message import Messages, ServiceBusMessage
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.operations.rules import add_rule, enumerate_rules, remove_rule
from spark_sb_mgmt.operations.schedule import ScheduledMessage, cancel_scheduled_message, schedule_message
from spark_sb_mgmt.operations.sessions import (
    MessageSessions,
    get_message_sessions,
    get_session_state,
    renew_session_lock,
    set_session_state,
)
from spark_sb_mgmt.operations.settle import renew_lock, update_disposition

TOKEN = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
OTHER = UUID("f0e0d0c0-b0a0-9080-7060-504030201000")
WHEN = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)
WHEN_MS = 1_893_553_445_678

LONGS, TIMES, STRINGS = proton.Data.LONG, proton.Data.TIMESTAMP, proton.Data.STRING
OK = int32(200)

PEEK = peek_message(1, 3)
RECEIVE = receive_by_sequence_number([1, 2])
DELETE_DEFERRED = receive_by_sequence_number([1, 2], 0)
SCHEDULE = schedule_message([ScheduledMessage(b"x", WHEN, "m1"), ScheduledMessage(b"x", WHEN, "m2")])
CANCEL = cancel_scheduled_message([1])
SETTLE = update_disposition("completed", [TOKEN])
RENEW = renew_lock([TOKEN, OTHER])
RENEW_SESSION = renew_session_lock("s")
GET_STATE = get_session_state("s")
SET_STATE = set_session_state("s", b"x")
SESSIONS = get_message_sessions(top=3)
ADD_RULE = add_rule(Rule("r", TrueFilter()))
REMOVE_RULE = remove_rule("r")
RULES = enumerate_rules(top=3)
PURGE = batch_delete_messages(5, WHEN)
ALL = [
    *(PEEK, RECEIVE, DELETE_DEFERRED, SCHEDULE, CANCEL, SETTLE, RENEW, RENEW_SESSION),
    *(GET_STATE, SET_STATE, SESSIONS, ADD_RULE, REMOVE_RULE, RULES, PURGE),
]


def named(request: Request[Any]) -> str:
    return request.name


def array(kind: int, *items: Any) -> Array:
    return Array(UNDESCRIBED, kind, *items)


def wire(number: int | None, body: Any = b"body", **fields: Any) -> bytes:
    """A message as the service keeps it."""
    annotations = {} if number is None else {symbol("x-opt-sequence-number"): number}
    return bytes(proton.Message(body=body, inferred=True, annotations=annotations, **fields).encode())


def encoded(body: Any = None, status: Any = OK, correlation_id: Any = "id", **more: Any) -> bytes:
    """An answer; `more` are application properties."""
    properties = {} if status is None else {"statusCode": status}
    properties |= {{"tracking_id": "com.microsoft:tracking-id"}.get(key, key): value for key, value in more.items()}
    return bytes(proton.Message(body=body, correlation_id=correlation_id, properties=properties or None).encode())


def answer(body: Any = None, status: Any = OK, **more: Any) -> Response:
    return read_response(encoded(body, status, **more))


def entries(*numbers: int, **more: Any) -> dict[str, Any]:
    return {"messages": [{"message": wire(number), **more} for number in numbers]}


# --- success ------------------------------------------------------------------------------------------------------------

SAID: list[tuple[Request[Any], Any, Any]] = [
    (SCHEDULE, {"sequence-numbers": array(LONGS, 2**40, -1)}, [2**40, -1]),
    (SCHEDULE, {"sequence-numbers": [1, 2]}, [1, 2]),
    (CANCEL, None, None),
    (CANCEL, {}, None),
    (SETTLE, {}, None),
    (SETTLE, {"unknown": 1}, None),
    (RENEW, {"expirations": array(TIMES, timestamp(WHEN_MS), timestamp(0))}, [WHEN, datetime(1970, 1, 1, tzinfo=timezone.utc)]),
    (RENEW_SESSION, {"expiration": timestamp(WHEN_MS)}, WHEN),
    (GET_STATE, {"session-state": b"\x00\xff"}, b"\x00\xff"),
    (GET_STATE, {"session-state": b""}, b""),
    (GET_STATE, {"session-state": None}, None),
    (SET_STATE, None, None),
    (SESSIONS, {"skip": int32(2), "sessions-ids": array(STRINGS, "one", "zwei")}, MessageSessions(("one", "zwei"), 2)),
    (SESSIONS, {"skip": int32(2), "sessions-ids": ["one"]}, MessageSessions(("one",), 2)),
    (SESSIONS, {"skip": int32(0), "sessions-ids": []}, MessageSessions((), 0)),
    (ADD_RULE, None, None),
    (REMOVE_RULE, {}, None),
    (RULES, {"rules": []}, []),
    (PURGE, {"message-count": int32(5)}, 5),
    (PURGE, {"message-count": int32(0)}, 0),
]


@pytest.mark.parametrize(("request_", "body", "said"), SAID)
def test_what_a_success_says(request_: Request[Any], body: Any, said: Any) -> None:
    assert request_.error(answer(body)) is None
    assert request_.read(answer(body)) == said
    # Symbols as keys are the same keys.
    if isinstance(body, dict):
        assert request_.read(answer({symbol(key): value for key, value in body.items()})) == said


@pytest.mark.parametrize("request_", [PEEK, RECEIVE, DELETE_DEFERRED], ids=named)
def test_messages_of_an_answer(request_: Request[Messages]) -> None:
    messages = request_.read(answer(entries(7, 9, **{"lock-token": TOKEN})), "orders")
    assert [message.sequence_number for message in messages] == [7, 9]
    assert [message.lock_token for message in messages] == [str(TOKEN)] * 2
    assert [messages.lock_token(index) for index in range(2)] == [TOKEN] * 2
    assert {message.entity for message in messages} == {"orders"}
    assert [message.body for message in messages] == [b"body"] * 2
    assert [message.amqp_message for message in messages] == [wire(7), wire(9)]
    assert messages[-1] == messages[1] == messages[0:][1] != messages[0]
    assert [message.sequence_number for message in messages[::-1]] == [9, 7]
    assert len({*messages, *messages}) == 2
    with pytest.raises(IndexError):
        messages[2]
    again = pickle.loads(pickle.dumps(messages))
    assert list(again) == list(messages)
    # As the list that they are like.
    assert again == messages == list(messages) != list(messages)[:1]
    assert messages != "text"
    assert pickle.loads(pickle.dumps(messages[0])) == messages[0]


def test_peeked_and_deleted_messages_need_no_lock_token() -> None:
    for request in (PEEK, DELETE_DEFERRED):
        (message,) = request.read(answer(entries(7)))
        assert message.lock_token is None


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize(
    ("request_", "said"),
    [(PEEK, []), (RECEIVE, []), (SESSIONS, MessageSessions((), 0)), (RULES, []), (PURGE, 0)],
    ids=lambda value: value.name if isinstance(value, Request) else "",
)
def test_nothing_there_is_an_empty_result(request_: Request[Any], said: Any, status: int) -> None:
    for body in (None, {}):
        assert request_.read(answer(body, int32(status))) == said


def test_an_empty_page_of_sessions_keeps_its_place() -> None:
    assert get_message_sessions(skip=40).read(answer(None, int32(204))) == MessageSessions((), 40)


@pytest.mark.parametrize("condition", [symbol, str])
def test_not_found_is_an_empty_result_where_a_service_says_it_so(condition: Callable[[str], str]) -> None:
    not_found = answer(None, int32(404), errorCondition=condition("com.microsoft:message-not-found"))
    assert list(PEEK.read(not_found)) == []
    assert PURGE.read(not_found) == 0
    assert SESSIONS.read(answer(None, int32(404), errorCondition=condition("com.microsoft:session-not-found"))) == MessageSessions((), 0)
    with pytest.raises(MessageNotFoundError):
        RECEIVE.read(not_found)


def test_a_purge_that_found_nothing_more_may_still_say_how_many_went() -> None:
    found = answer({"message-count": int32(3)}, int32(404), errorCondition=symbol("com.microsoft:message-not-found"))
    assert PURGE.read(found) == 3
    assert PURGE.read(answer({"message-count": int32(3)}, int32(204))) == 3


# --- messages as objects ------------------------------------------------------------------------------------------------


def test_the_fields_of_a_message() -> None:
    raw = wire(
        7,
        id="m",
        subject="label",
        group_id="s",
        correlation_id="c",
        content_type="text/plain",
        ttl=60,
        delivery_count=2,
        properties={"text": "zwei", "n": int32(5), "DeadLetterReason": "why"},
    )
    message = ServiceBusMessage(raw, TOKEN, "orders")
    assert (message.sequence_number, message.message_id, message.subject, message.session_id) == (7, "m", "label", "s")
    assert (message.correlation_id, message.content_type, message.time_to_live_ms) == ("c", "text/plain", 60_000)
    assert (message.delivery_count, message.dead_letter_reason, message.state) == (2, "why", "active")
    assert message.application_properties == {"text": "zwei", "n": 5, "DeadLetterReason": "why"}
    assert type(message.application_properties["n"]).__name__ == "Int"
    assert (message.body, message.body_type) == (b"body", "data")
    assert repr(message) == f"ServiceBusMessage(sequence_number=7, message_id='m', {len(raw)} bytes)"


def test_times_are_in_utc_and_one_that_no_datetime_can_hold_is_not_set() -> None:
    def enqueued(milliseconds: int) -> datetime | None:
        annotations = {symbol("x-opt-enqueued-time"): timestamp(milliseconds)}
        return ServiceBusMessage(bytes(proton.Message(annotations=annotations).encode())).enqueued_time

    assert enqueued(WHEN_MS) == WHEN
    assert enqueued(253_402_300_799_999) == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)
    # .NET writes its last moment as the first of the year 10000.
    assert [enqueued(milliseconds) for milliseconds in (253_402_300_800_000, 2**63 - 1, -(2**63))] == [None] * 3
    assert ServiceBusMessage(wire(1)).enqueued_time is None


def test_a_message_without_a_number_did_not_come_from_the_service() -> None:
    (message,) = PEEK.read(answer({"messages": [{"message": wire(None)}]}), "orders")
    with pytest.raises(RemoteProtocolError, match="has no x-opt-sequence-number"):
        _ = message.sequence_number
    assert "sequence_number=None" in repr(message)


# --- rules --------------------------------------------------------------------------------------------------------------

FILTERS = 0x1370000000
ACTIONS = 0x13700000000
RULE_CODE = ulong(ACTIONS + 4)


def rule(*fields: Any, code: Any = RULE_CODE) -> dict[str, Any]:
    return {"rule-description": Described(code, list(fields))}


def filter_of(code: Any, *fields: Any) -> Described:
    return Described(code, list(fields))


TRUE = filter_of(ulong(FILTERS + 7))
EMPTY_ACTION = filter_of(ulong(ACTIONS + 5))

READ_RULES: list[tuple[dict[str, Any], Rule]] = [
    (rule(TRUE, EMPTY_ACTION, "$Default", timestamp(WHEN_MS)), Rule("$Default", TrueFilter(), None, WHEN)),
    (rule(TRUE, EMPTY_ACTION, "r"), Rule("r", TrueFilter())),
    (rule(TRUE, None, "r", None), Rule("r", TrueFilter())),
    # A time that no datetime can hold is not told, as those of messages are not.
    (rule(TRUE, None, "r", timestamp(-(2**62))), Rule("r", TrueFilter())),
    (rule(filter_of(ulong(FILTERS + 8)), EMPTY_ACTION, "r"), Rule("r", FalseFilter())),
    (
        rule(filter_of(ulong(FILTERS + 6), "a = 1", int32(20)), filter_of(ulong(ACTIONS + 6), "SET b = 2", int32(20)), "r"),
        Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
    ),
    # Both ranges and the names mean the same; where it stands tells filter from action.
    (
        rule(filter_of(ulong(ACTIONS + 6), "a = 1"), filter_of(ulong(FILTERS + 6), "SET b = 2"), "r", code=ulong(FILTERS + 4)),
        Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
    ),
    (
        rule(
            filter_of(symbol("com.microsoft:sql-filter:list"), "a = 1"),
            filter_of(symbol("com.microsoft:sql-rule-action:list"), "SET b = 2"),
            "r",
            code=symbol("com.microsoft:rule-description:list"),
        ),
        Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
    ),
    (
        rule(filter_of(ulong(FILTERS + 9), "c", "m", "t", "r", "l", "s", "rs", "ct", {"n": int32(5)}), EMPTY_ACTION, "r"),
        Rule("r", CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct", {"n": 5})),
    ),
    (rule(filter_of(ulong(FILTERS + 9), None, None, None, None, "l"), EMPTY_ACTION, "r"), Rule("r", CorrelationFilter(label="l"))),
    (rule(filter_of(ulong(FILTERS + 9)), EMPTY_ACTION, "r"), Rule("r", CorrelationFilter())),
]


@pytest.mark.parametrize(("entry", "said"), READ_RULES)
def test_a_rule_of_an_answer(entry: dict[str, Any], said: Rule) -> None:
    assert RULES.read(answer({"rules": [entry]})) == [said]


BROKEN_RULES: list[tuple[Any, str]] = [
    ("text", "`rules`[0] of the answer has no `rule-description`"),
    ({}, "`rules`[0] of the answer has no `rule-description`"),
    ({"rule-description": {}}, "`rules`[0] of the answer is an AMQP map, not a described list"),
    (
        {"rule-description": Described(ulong(5), [])},
        "`rules`[0] of the answer has the descriptor ULong(5), which is none of rule-description",
    ),
    ({"rule-description": Described(ulong(ACTIONS + 4), {})}, "`rules`[0] of the answer is a described map, not a described list"),
    ({"rule-description": Described(int32(4), [])}, "has the descriptor Int(4)"),
    (rule(TRUE, EMPTY_ACTION), "the name of the rule is an AMQP null, not a string"),
    (rule(TRUE, EMPTY_ACTION, 5), "the name of the rule is an AMQP long, not a string"),
    (rule(TRUE, EMPTY_ACTION, "r", 5), "(rule 'r'): created-at is an AMQP long, not a timestamp"),
    (rule(None, EMPTY_ACTION, "r"), "(rule 'r'), its filter is an AMQP null, not a described list"),
    (rule("a = 1", EMPTY_ACTION, "r"), "(rule 'r'), its filter is an AMQP string, not a described list"),
    (rule(filter_of(ulong(FILTERS + 15)), EMPTY_ACTION, "r"), "its filter has the descriptor"),
    (rule(EMPTY_ACTION, EMPTY_ACTION, "r"), "its filter has the descriptor"),
    (rule(TRUE, TRUE, "r"), "its action has the descriptor"),
    (rule(TRUE, "SET a = 1", "r"), "its action is an AMQP string, not a described list"),
    (rule(filter_of(ulong(FILTERS + 6)), EMPTY_ACTION, "r"), "its filter has an expression that is an AMQP null, not a string"),
    (rule(TRUE, filter_of(ulong(ACTIONS + 6), 5), "r"), "its action has an expression that is an AMQP long, not a string"),
    (rule(filter_of(ulong(FILTERS + 9), 5), EMPTY_ACTION, "r"), "correlation-id of its filter is an AMQP long, not a string"),
    (rule(filter_of(ulong(FILTERS + 9), *[None] * 8, "x"), EMPTY_ACTION, "r"), "properties of its filter is an AMQP string, not a map"),
    (rule(filter_of(ulong(FILTERS + 9), *[None] * 8, {5: 1}), EMPTY_ACTION, "r"), "properties of its filter has a key that is a long"),
]


@pytest.mark.parametrize(("entry", "problem"), BROKEN_RULES)
def test_a_rule_that_is_none(entry: Any, problem: str) -> None:
    with pytest.raises(RemoteProtocolError) as broken:
        RULES.read(answer({"rules": [entry]}), "news")
    assert problem in str(broken.value)
    assert (broken.value.operation, broken.value.entity) == ("enumerate-rules", "news")


# --- a service that breaks the protocol ---------------------------------------------------------------------------------

_MESSAGES_MISSING = "`messages` of the answer is missing or empty, and its status is 200; nothing there would be 204"

BROKEN: list[tuple[Request[Any], Any, str]] = [
    *(
        (request, {}, f"has no `{key}`")
        for request, key in [
            (SCHEDULE, "sequence-numbers"),
            (RENEW, "expirations"),
            (RENEW_SESSION, "expiration"),
            (GET_STATE, "session-state"),
            (SESSIONS, "sessions-ids"),
            (RULES, "rules"),
            (PURGE, "message-count"),
        ]
    ),
    *((request, None, "has no `") for request in (SCHEDULE, RENEW, RENEW_SESSION, GET_STATE, SESSIONS, RULES, PURGE)),
    *((request, ["x"], "the body of the answer is an AMQP list, not a map") for request in (SCHEDULE, RENEW, GET_STATE, SESSIONS, PURGE)),
    (SCHEDULE, {"sequence-numbers": array(STRINGS, "1", "2")}, "`sequence-numbers` of the answer is an AMQP array of string, not an array"),
    (SCHEDULE, {"sequence-numbers": [1, int32(2)]}, "`sequence-numbers` of the answer is an AMQP list, not an array of long"),
    (SCHEDULE, {"sequence-numbers": None}, "`sequence-numbers` of the answer is an AMQP null, not an array of long"),
    (SCHEDULE, {"sequence-numbers": array(LONGS, 1)}, "`sequence-numbers` of the answer has 1 items where 2 were asked for"),
    (SCHEDULE, {"sequence-numbers": array(LONGS, 1, 2, 3)}, "`sequence-numbers` of the answer has 3 items where 2 were asked for"),
    (SCHEDULE, {"sequence-numbers": []}, "has 0 items where 2 were asked for"),
    (RENEW, {"expirations": array(LONGS, 1, 2)}, "`expirations` of the answer is an AMQP array of long, not an array of timestamp"),
    (RENEW, {"expirations": array(TIMES, timestamp(0))}, "`expirations` of the answer has 1 items where 2 were asked for"),
    (
        RENEW,
        {"expirations": array(TIMES, timestamp(0), timestamp(2**62))},
        "`expirations` of the answer is 4611686018427387904 ms since 1970",
    ),
    (RENEW_SESSION, {"expiration": WHEN_MS}, "`expiration` of the answer is an AMQP long, not a timestamp"),
    (RENEW_SESSION, {"expiration": timestamp(-(2**62))}, "outside the years 1 to 9999"),
    (RENEW_SESSION, {"expiration": timestamp(253_402_300_800_000)}, "outside the years 1 to 9999"),
    (GET_STATE, {"session-state": "text"}, "`session-state` of the answer is an AMQP string, not a binary or null"),
    (SESSIONS, {"skip": int32(0), "sessions-ids": array(LONGS, 1)}, "`sessions-ids` of the answer is an AMQP array of long"),
    (SESSIONS, {"sessions-ids": ["one"]}, "has no `skip`"),
    (SESSIONS, {"skip": 1, "sessions-ids": ["one"]}, "`skip` of the answer is an AMQP long, not a int"),
    (SESSIONS, {"skip": int32(1), "sessions-ids": ["one"] * 4}, "`sessions-ids` of the answer has 4 items where 3 at most were asked for"),
    (RULES, {"rules": {}}, "`rules` of the answer is an AMQP map, not a list"),
    (RULES, {"rules": [rule(TRUE, None, "r")] * 4}, "`rules` of the answer has 4 items where 3 at most were asked for"),
    (PURGE, {"message-count": 5}, "`message-count` of the answer is an AMQP long, not a int"),
    (PURGE, {"message-count": int32(6)}, "`message-count` of the answer is 6, outside 0 to the 5 that were asked for"),
    (PURGE, {"message-count": int32(-1)}, "`message-count` of the answer is -1, outside 0"),
    *(
        (request, body, _MESSAGES_MISSING)
        for request in (PEEK, RECEIVE)
        for body in (None, {}, {"messages": []}, {"messages": None}, {"message": []})
    ),
    (PEEK, "text", "`messages` of the answer cannot be found: a map must stand here"),
    (PEEK, {"messages": {}}, "`messages` of the answer cannot be found: a list must stand here"),
    (RECEIVE, {"messages": b"x"}, "`messages` of the answer cannot be found: a list must stand here"),
    (PEEK, entries(1, 2, 3, 4), "`messages` of the answer has 4 items where 3 at most were asked for"),
    (RECEIVE, entries(1), "message 0 of the answer has no `lock-token`, and locks were asked for"),
    (RECEIVE, entries(1, **{"lock-token": None}), "message 0 of the answer has no `lock-token`"),
    (RECEIVE, entries(1, **{"lock-token": str(TOKEN)}), "the `lock-token` of an entry is a uuid"),
    (RECEIVE, {"messages": [5]}, "a map must stand here"),
    (RECEIVE, {"messages": [{"lock-token": TOKEN}]}, "has no `message`"),
]


@pytest.mark.parametrize(("request_", "body", "problem"), BROKEN)
def test_a_success_that_says_something_else(request_: Request[Any], body: Any, problem: str) -> None:
    with pytest.raises(RemoteProtocolError) as broken:
        request_.read(answer(body), "orders")
    assert problem in str(broken.value)
    assert (broken.value.operation, broken.value.entity) == (request_.name, "orders")
    assert broken.value.may_have_taken_effect
    assert not broken.value.retryable
    assert str(pickle.loads(pickle.dumps(broken.value))) == str(broken.value)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (5, "a map must stand here"),
        ({}, "has no `message`"),
        ({"message": "text"}, "the `message` of an entry is a binary"),
        ({"message": b"\x00\x53"}, ""),
        ({"message": wire(1), "lock-token": 5}, "the `lock-token` of an entry is a uuid"),
    ],
)
def test_a_message_that_is_none_names_its_place_when_it_is_looked_at(entry: Any, problem: str) -> None:
    messages = PEEK.read(answer({"messages": [{"message": wire(1)}, entry]}), "orders")
    assert messages[0].sequence_number == 1
    with pytest.raises(DecodeError) as broken:
        _ = messages[1]
    assert problem in str(broken.value)
    assert (broken.value.message, broken.value.operation, broken.value.entity) == (1, "peek-message", "orders")


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize("request_", [CANCEL, SETTLE, SET_STATE, ADD_RULE, REMOVE_RULE], ids=named)
def test_a_change_that_is_only_accepted_is_not_taken_for_done(request_: Request[None], status: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"status {status}, which leaves open whether it was done"):
        request_.read(answer(None, int32(status)))


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize("request_", [SCHEDULE, RENEW, RENEW_SESSION, GET_STATE], ids=named)
def test_an_answer_that_should_say_something_must(request_: Request[Any], status: int) -> None:
    with pytest.raises(RemoteProtocolError, match="has no `"):
        request_.read(answer(None, int32(status)))


@pytest.mark.parametrize("request_", ALL, ids=named)
@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (None, "the answer has no `statusCode`"),
        ("200", "`statusCode` of the answer is '200', which is no integer above zero"),
        (True, "`statusCode` of the answer is True"),
        (200.0, "`statusCode` of the answer is 200.0"),
        (int32(0), "`statusCode` of the answer is Int(0)"),
        (int32(-200), "`statusCode` of the answer is Int(-200)"),
        (int32(302), "status 302, which no management operation has"),
        (int32(777), "status 777, which no management operation has"),
        (ulong(2**64 - 1), "status 18446744073709551615, which no management operation has"),
    ],
)
def test_a_status_that_is_none(request_: Request[Any], status: Any, problem: str) -> None:
    with pytest.raises(RemoteProtocolError) as broken:
        request_.read(answer({}, status), "orders")
    assert problem in str(broken.value)
    assert (type(broken.value), broken.value.operation, broken.value.entity) == (RemoteProtocolError, request_.name, "orders")


@pytest.mark.parametrize("number", [int32(200), uint(200), ulong(200), 200, proton.short(200)])
def test_a_status_of_any_integer_type_is_understood(number: Any) -> None:
    assert SETTLE.read(answer(None, number)) is None


# --- a service that refuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", ALL, ids=named)
def test_a_refusal_carries_all_that_the_service_said(request_: Request[Any]) -> None:
    refused = answer(
        None,
        int32(410),
        statusDescription="The lock is gone. SharedAccessKey=abcdefghijklmnop",
        errorCondition=symbol("com.microsoft:message-lock-lost"),
        tracking_id="t-1",
    )
    error = request_.error(refused, "orders")
    assert type(error) is MessageLockLostError
    assert (error.operation, error.entity, error.status) == (request_.name, "orders", 410)
    assert (error.condition, error.tracking_id) == ("com.microsoft:message-lock-lost", "t-1")
    assert error.description == "The lock is gone. SharedAccessKey=***"
    assert "abcdefghijklmnop" not in repr(refused)
    with pytest.raises(MessageLockLostError):
        request_.read(refused)


@pytest.mark.parametrize("request_", ALL, ids=named)
def test_an_entity_that_is_not_there_is_never_an_empty_result(request_: Request[Any]) -> None:
    for condition in ({}, {"errorCondition": symbol("amqp:not-found")}):
        with pytest.raises(EntityNotFoundError):
            request_.read(answer(None, int32(404), **condition))


def test_the_other_spelling_of_the_condition_is_read_too() -> None:
    busy = answer(None, int32(500), statusDescription="wait 4 seconds", **{"error-condition": "com.microsoft:server-busy"})
    error = PEEK.error(busy)
    assert type(error) is ServerBusyError
    assert (error.retryable, error.retry_after) == (True, 4.0)


def test_the_spelling_of_cbs_is_read_too() -> None:
    granted = read_response(encoded(None, None, **{"status-code": int32(202), "status-description": "fine"}))
    assert (granted.status, granted.description, granted.is_success) == (202, "fine", True)
    odd = read_response(encoded(None, None, **{"status-code": "fine"}))
    assert odd.status == NO_STATUS
    assert "`status-code` of the answer is 'fine'" in str(PEEK.error(odd))


def test_text_of_another_type_is_still_text() -> None:
    error = PEEK.error(answer(None, int32(418), statusDescription=symbol("teapot"), errorCondition=5, tracking_id=TOKEN))
    assert type(error) is ServiceBusError
    assert (error.description, error.condition, error.tracking_id) == ("teapot", "5", str(TOKEN))


# --- the envelope -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correlation_id", ["id", TOKEN, ulong(5), b"id", None])
def test_the_correlation_id_keeps_its_type(correlation_id: Any) -> None:
    assert read_response(encoded({}, correlation_id=correlation_id)).correlation_id == correlation_id


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_an_answer_is_read_from_any_bytes(kind: Callable[[bytes], Any]) -> None:
    response = read_response(kind(encoded({"session-state": b"x"})))
    assert GET_STATE.read(response) == b"x"


def test_sections_that_say_nothing_are_passed_over() -> None:
    raw = proton.Message(
        body={"session-state": b"x"},
        correlation_id="id",
        properties={"statusCode": int32(200)},
        annotations={symbol("a"): 1},
        instructions={symbol("b"): [1, 2]},
        durable=True,
        ttl=5,
    ).encode()
    response = read_response(raw)
    assert (response.correlation_id, GET_STATE.read(response)) == ("id", b"x")


def test_bytes_that_are_no_message_still_tell_whose_answer_it_was_if_that_much_can_be_read() -> None:
    raw = encoded({}, correlation_id="id-1")
    # The application properties follow the properties; their descriptor is made one that there is not.
    at = raw.index(b"\x00\x53\x74")
    with pytest.raises(DecodeError) as broken:
        read_response(raw[: at + 2] + b"\x10" + raw[at + 3 :])
    assert broken.value.correlation_id == "id-1"
    with pytest.raises(DecodeError) as broken:
        read_response(b"\xff")
    assert broken.value.correlation_id is None


@pytest.mark.parametrize("raw", [b"", encoded(None, None)])
def test_an_answer_that_says_nothing_fails_its_request(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="the answer has no `statusCode`"):
        PEEK.read(read_response(raw))


def test_a_body_that_does_not_decode_fails_its_request() -> None:
    whole = encoded({"session-state": b"a state"})
    response = read_response(whole[:-3])
    with pytest.raises(DecodeError) as broken:
        GET_STATE.read(response, "orders")
    assert (broken.value.operation, broken.value.entity) == ("get-session-state", "orders")


# One answer of each kind, to be spoilt.
WHOLE: list[tuple[Request[Any], bytes]] = [
    *((request, encoded(body)) for request, body, _ in SAID),
    (PEEK, encoded(entries(1, 2, 3))),
    (RECEIVE, encoded(entries(1, 2, **{"lock-token": TOKEN}))),
    (RULES, encoded({"rules": [entry for entry, _ in READ_RULES[:3]]})),
    (RULES, encoded({"rules": [entry for entry, _ in READ_RULES[-3:]]})),
]


def look(request: Request[Any], raw: bytes) -> Any:
    """All that a caller does with an answer."""
    found = request.read(read_response(raw), "orders")
    if isinstance(found, Messages):
        return [repr(message) for message in found]
    return found


@pytest.mark.parametrize(("request_", "raw"), WHOLE)
def test_an_answer_that_is_cut_off_anywhere_never_says_something_else(request_: Request[Any], raw: bytes) -> None:
    whole = look(request_, raw)
    for length in range(len(raw)):
        with suppress(RemoteProtocolError):
            assert look(request_, raw[:length]) == whole


@given(st.sampled_from(WHOLE), st.data())
def test_an_answer_with_any_bytes_changed_is_one_of_our_errors_or_an_answer(whole: tuple[Request[Any], bytes], data: st.DataObject) -> None:
    request, raw = whole
    spoilt = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        spoilt[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SbMgmtError):
        look(request, bytes(spoilt))


@given(st.sampled_from(ALL), st.binary(max_size=200))
def test_any_bytes_are_one_of_our_errors_or_an_answer(request_: Request[Any], raw: bytes) -> None:
    with suppress(SbMgmtError):
        look(request_, raw)
