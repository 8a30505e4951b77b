"""Every request as proton reads it, with the AMQP type of each value, and every argument that is refused before there is a request.

What must stand there is wire-facts.md, section 1.1. That the SDKs send the same is test_sdk_requests.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import numpy as np
import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Data
from spark_sb_mgmt.amqp.types import Int, Map, Symbol
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.delete import batch_delete_messages
from spark_sb_mgmt.operations.envelope import Request, encode_request
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.operations.rules import add_rule, enumerate_rules, remove_rule
from spark_sb_mgmt.operations.schedule import (
    EncodedEntries,
    ScheduledMessage,
    cancel_scheduled_message,
    encode_entry,
    schedule_entries,
    schedule_message,
)
from spark_sb_mgmt.operations.sessions import get_message_sessions, get_session_state, renew_session_lock, set_session_state
from spark_sb_mgmt.operations.settle import renew_lock, update_disposition
from tests.operations.typed import Typed, leaves, message_leaves, sections, typed

TOKEN = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
OTHER = UUID("f0e0d0c0-b0a0-9080-7060-504030201000")
WHEN = datetime(2030, 1, 2, 3, 4, 5, 678_999, tzinfo=timezone.utc)
WHEN_MS = 1_893_553_445_678


def sent(request: Request[Any]) -> dict[str, Typed]:
    """The body of a request, by keys."""
    kind, body = sections(encode_request(request, "id", "reply", 1000))["amqp-value"]
    assert kind == "map"
    return dict(body)


def scheduled(**fields: Any) -> ScheduledMessage:
    return ScheduledMessage(**{"body": b"x", "scheduled_enqueue_time": WHEN, "message_id": "m"} | fields)


# --- bodies -------------------------------------------------------------------------------------------------------------

LONG = 2**63 - 1
STRING = "string"

BODIES: list[tuple[str, Request[Any], dict[str, Typed]]] = [
    (names.PEEK_MESSAGE, peek_message(), {"from-sequence-number": ("long", 0), "message-count": ("int", 250)}),
    (
        names.PEEK_MESSAGE,
        peek_message(LONG, 2**31 - 1, "s", True),
        {
            "from-sequence-number": ("long", LONG),
            "message-count": ("int", 2**31 - 1),
            "session-id": (STRING, "s"),
            "omit-message-body": ("boolean", True),
        },
    ),
    (
        names.PEEK_MESSAGE,
        peek_message(-5, 1, "", False),
        {
            "from-sequence-number": ("long", -5),
            "message-count": ("int", 1),
            "session-id": (STRING, ""),
            "omit-message-body": ("boolean", False),
        },
    ),
    (
        names.RECEIVE_BY_SEQUENCE_NUMBER,
        receive_by_sequence_number([LONG, -1, 0]),
        {"sequence-numbers": ("array", ("long", [LONG, -1, 0])), "receiver-settle-mode": ("uint", 1)},
    ),
    (
        names.RECEIVE_BY_SEQUENCE_NUMBER,
        receive_by_sequence_number(iter([7]), names.RECEIVE_AND_DELETE, "s"),
        {"sequence-numbers": ("array", ("long", [7])), "receiver-settle-mode": ("uint", 0), "session-id": (STRING, "s")},
    ),
    (
        names.UPDATE_DISPOSITION,
        update_disposition("completed", [TOKEN, str(OTHER)]),
        {"disposition-status": (STRING, "completed"), "lock-tokens": ("array", ("uuid", [TOKEN, OTHER]))},
    ),
    (
        names.UPDATE_DISPOSITION,
        update_disposition("suspended", [TOKEN], "why", "because", {"a": 1, "b": Int(2)}, "s"),
        {
            "disposition-status": (STRING, "suspended"),
            "lock-tokens": ("array", ("uuid", [TOKEN])),
            "deadletter-reason": (STRING, "why"),
            "deadletter-description": (STRING, "because"),
            "properties-to-modify": ("map", {"a": ("long", 1), "b": ("int", 2)}),
            "session-id": (STRING, "s"),
        },
    ),
    (
        names.UPDATE_DISPOSITION,
        update_disposition("deferred", [TOKEN], properties_to_modify=Map([("t", WHEN)])),
        {
            "disposition-status": (STRING, "defered"),
            "lock-tokens": ("array", ("uuid", [TOKEN])),
            "properties-to-modify": ("map", {"t": ("timestamp", WHEN_MS)}),
        },
    ),
    (
        names.UPDATE_DISPOSITION,
        update_disposition("abandoned", [TOKEN]),
        {"disposition-status": (STRING, "abandoned"), "lock-tokens": ("array", ("uuid", [TOKEN]))},
    ),
    (names.RENEW_LOCK, renew_lock([TOKEN, OTHER]), {"lock-tokens": ("array", ("uuid", [TOKEN, OTHER]))}),
    (names.CANCEL_SCHEDULED_MESSAGE, cancel_scheduled_message([1, -47]), {"sequence-numbers": ("array", ("long", [1, -47]))}),
    (names.RENEW_SESSION_LOCK, renew_session_lock("s"), {"session-id": (STRING, "s")}),
    (names.GET_SESSION_STATE, get_session_state("s"), {"session-id": (STRING, "s")}),
    (names.SET_SESSION_STATE, set_session_state("s", b"\x00\xff"), {"session-id": (STRING, "s"), "session-state": ("binary", b"\x00\xff")}),
    (names.SET_SESSION_STATE, set_session_state("s", memoryview(b"")), {"session-id": (STRING, "s"), "session-state": ("binary", b"")}),
    (names.SET_SESSION_STATE, set_session_state("s", None), {"session-id": (STRING, "s"), "session-state": ("null", None)}),
    (
        names.GET_MESSAGE_SESSIONS,
        get_message_sessions(),
        {"last-updated-time": ("timestamp", 253_402_300_800_000), "skip": ("int", 0), "top": ("int", 100)},
    ),
    (
        names.GET_MESSAGE_SESSIONS,
        get_message_sessions(WHEN, 3, 7),
        {"last-updated-time": ("timestamp", WHEN_MS), "skip": ("int", 3), "top": ("int", 7)},
    ),
    (names.ENUMERATE_RULES, enumerate_rules(), {"top": ("int", 100), "skip": ("int", 0)}),
    (names.REMOVE_RULE, remove_rule("r"), {"rule-name": (STRING, "r")}),
    (
        names.ADD_RULE,
        add_rule(Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2"))),
        {
            "rule-name": (STRING, "r"),
            "rule-description": (
                "map",
                {
                    "sql-filter": ("map", {"expression": (STRING, "a = 1")}),
                    "sql-rule-action": ("map", {"expression": (STRING, "SET b = 2")}),
                },
            ),
        },
    ),
    (
        names.ADD_RULE,
        add_rule(Rule("r", TrueFilter())),
        {"rule-name": (STRING, "r"), "rule-description": ("map", {"sql-filter": ("map", {"expression": (STRING, "1=1")})})},
    ),
    (
        names.ADD_RULE,
        add_rule(Rule("r", FalseFilter())),
        {"rule-name": (STRING, "r"), "rule-description": ("map", {"sql-filter": ("map", {"expression": (STRING, "1=0")})})},
    ),
    (
        names.ADD_RULE,
        add_rule(Rule("r", CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct", {"n": 5, "u": TOKEN, "w": WHEN}))),
        {
            "rule-name": (STRING, "r"),
            "rule-description": (
                "map",
                {
                    "correlation-filter": (
                        "map",
                        {
                            "correlation-id": (STRING, "c"),
                            "message-id": (STRING, "m"),
                            "to": (STRING, "t"),
                            "reply-to": (STRING, "r"),
                            "label": (STRING, "l"),
                            "session-id": (STRING, "s"),
                            "reply-to-session-id": (STRING, "rs"),
                            "content-type": (STRING, "ct"),
                            "properties": ("map", {"n": ("long", 5), "u": ("uuid", TOKEN), "w": ("timestamp", WHEN_MS)}),
                        },
                    )
                },
            ),
        },
    ),
    (
        names.ADD_RULE,
        add_rule(Rule("r", CorrelationFilter(label=""))),
        {"rule-name": (STRING, "r"), "rule-description": ("map", {"correlation-filter": ("map", {"label": (STRING, "")})})},
    ),
    (
        names.BATCH_DELETE_MESSAGES,
        batch_delete_messages(500, WHEN),
        {"message-count": ("int", 500), "enqueued-time-utc": ("timestamp", WHEN_MS)},
    ),
    (
        names.BATCH_DELETE_MESSAGES,
        batch_delete_messages(1, WHEN_MS, "s"),
        {"message-count": ("int", 1), "enqueued-time-utc": ("timestamp", WHEN_MS), "session-id": (STRING, "s")},
    ),
]


@pytest.mark.parametrize(("operation", "request_", "body"), BODIES)
def test_the_body_of_a_request(operation: str, request_: Request[Any], body: dict[str, Typed]) -> None:
    assert request_.operation == operation
    assert sent(request_) == body
    # The order of the keys is that of wire-facts.md, section 1.1, so that the same request is the same bytes.
    assert list(sent(request_)) == list(body)


@pytest.mark.parametrize(("operation", "request_", "body"), BODIES)
def test_proton_reads_every_request_as_a_message(operation: str, request_: Request[Any], body: dict[str, Typed]) -> None:
    message = proton.Message()
    message.decode(encode_request(request_, "id", "reply", 1000))
    assert (message.id, message.reply_to, message.properties["operation"]) == ("id", "reply", operation)
    assert typed(message.body) == ("map", body)


def test_only_what_changes_nothing_is_safe_and_only_two_go_into_transactions() -> None:
    requests = [*(request for _, request, _ in BODIES), schedule_message([scheduled()])]
    assert {request.name for request in requests if request.safe} == {
        "peek-message",
        "renew-lock",
        "renew-session-lock",
        "get-session-state",
        "get-message-sessions",
        "enumerate-rules",
    }
    assert {request.name for request in requests if request.transactional} == {"schedule-message", "update-disposition"}
    # All operations there are: a new one has to say what it is.
    assert len({request.operation for request in requests}) == 14


def test_a_summary_says_what_was_asked_for_and_nothing_that_was_in_it() -> None:
    requests = [*(request for _, request, _ in BODIES), schedule_message([scheduled(body=b"private", subject="private")])]
    for request in requests:
        assert request.summary.startswith(request.name)
        assert "private" not in repr(request)
    assert "private" not in repr(scheduled(body=b"private", application_properties={"private": 1}))


def test_numbers_in_arrays_have_their_full_width() -> None:
    # wire-facts.md, section 5, row 11: the short form of a small number below zero was refused.
    assert cancel_scheduled_message([-47]).body.endswith(b"\x81" + (-47).to_bytes(8, "big", signed=True))


# --- the envelope -------------------------------------------------------------------------------------------------------


def test_the_envelope_of_a_request() -> None:
    raw = encode_request(renew_session_lock("s"), "id-1", "reply-1", 58_999, "link-1", "track-1")
    found = sections(raw)
    assert list(found) == ["properties", "application-properties", "amqp-value"]
    assert found["properties"] == ("map", {"message-id": (STRING, "id-1"), "reply-to": (STRING, "reply-1")})
    assert found["application-properties"] == (
        "map",
        {
            "operation": (STRING, "com.microsoft:renew-session-lock"),
            "com.microsoft:server-timeout": ("uint", 58_999),
            "associated-link-name": (STRING, "link-1"),
            "com.microsoft:tracking-id": (STRING, "track-1"),
        },
    )


def test_what_is_not_given_is_not_in_the_envelope() -> None:
    found = sections(encode_request(renew_session_lock("s"), "id", "reply", 2**32 - 1))
    assert set(found["application-properties"][1]) == {"operation", "com.microsoft:server-timeout"}
    assert found["application-properties"][1]["com.microsoft:server-timeout"] == ("uint", 2**32 - 1)


@pytest.mark.parametrize("timeout", [-1, 2**32])
def test_a_timeout_that_the_wire_cannot_carry_is_refused(timeout: int) -> None:
    with pytest.raises(EncodeError, match="outside AMQP uint"):
        encode_request(renew_session_lock("s"), "id", "reply", timeout)


def test_numbers_of_numpy_are_numbers() -> None:
    """As a pandas or Arrow column gives them."""
    assert sent(peek_message(np.int64(5), np.uint8(7))) == sent(peek_message(5, 7))  # type: ignore[arg-type]
    assert sent(cancel_scheduled_message(np.arange(3))) == sent(cancel_scheduled_message([0, 1, 2]))
    assert sent(get_message_sessions(np.int64(WHEN_MS))) == sent(get_message_sessions(WHEN))  # type: ignore[arg-type]
    assert sent(schedule_message([scheduled(time_to_live_ms=np.int64(7))])) == sent(schedule_message([scheduled(time_to_live_ms=7)]))
    values = {"n": np.int32(5), "x": np.float64(1.5), "yes": np.True_, "s": np.str_("text")}
    given = sent(update_disposition("abandoned", [TOKEN], properties_to_modify=values))["properties-to-modify"]
    assert given == ("map", {"n": ("long", 5), "x": ("double", 1.5), "yes": ("boolean", True), "s": (STRING, "text")})


# --- schedule-message ---------------------------------------------------------------------------------------------------


def test_a_scheduled_message_with_everything() -> None:
    message = ScheduledMessage(
        "grün",
        WHEN,
        message_id="m",
        session_id="s",
        partition_key="p",
        via_partition_key="v",
        correlation_id="c",
        subject="label",
        to="t",
        reply_to="r",
        reply_to_session_id="rs",
        content_type="text/plain",
        time_to_live_ms=60_000,
        application_properties={"n": 1, "i": Int(1), "w": WHEN, "u": TOKEN, "b": b"\x00", "none": None, "f": 1.5, "t": True},
    )
    ((kind, entry),) = sent(schedule_message([message]))["messages"][1]
    assert kind == "map"
    assert list(entry) == ["message-id", "session-id", "partition-key", "via-partition-key", "message"]
    assert [entry[key] for key in list(entry)[:4]] == [(STRING, "m"), (STRING, "s"), (STRING, "p"), (STRING, "v")]
    assert message_leaves(entry["message"][1]) == {
        "header/ttl": ("uint", 60_000),
        "message-annotations/symbol x-opt-partition-key": (STRING, "p"),
        "message-annotations/symbol x-opt-via-partition-key": (STRING, "v"),
        "message-annotations/symbol x-opt-scheduled-enqueue-time": ("timestamp", WHEN_MS),
        "properties/message-id": (STRING, "m"),
        "properties/to": (STRING, "t"),
        "properties/subject": (STRING, "label"),
        "properties/reply-to": (STRING, "r"),
        "properties/correlation-id": (STRING, "c"),
        "properties/content-type": ("symbol", "text/plain"),
        "properties/group-id": (STRING, "s"),
        "properties/reply-to-group-id": (STRING, "rs"),
        "application-properties/n": ("long", 1),
        "application-properties/i": ("int", 1),
        "application-properties/w": ("timestamp", WHEN_MS),
        "application-properties/u": ("uuid", TOKEN),
        "application-properties/b": ("binary", b"\x00"),
        "application-properties/none": ("null", None),
        "application-properties/f": ("double", 1.5),
        "application-properties/t": ("boolean", True),
        "data": ("binary", "grün".encode()),
    }


def test_a_scheduled_message_with_nothing() -> None:
    ((_, entry),) = sent(schedule_message([scheduled(body=None)]))["messages"][1]
    assert list(entry) == ["message-id", "message"]
    assert message_leaves(entry["message"][1]) == {
        "message-annotations/symbol x-opt-scheduled-enqueue-time": ("timestamp", WHEN_MS),
        "properties/message-id": (STRING, "m"),
    }


@pytest.mark.parametrize(
    ("body", "section", "value"),
    [
        (b"x", "data", ("binary", b"x")),
        (bytearray(b"x"), "data", ("binary", b"x")),
        (memoryview(b"xyz")[::2], "data", ("binary", b"xz")),
        ("", "data", ("binary", b"")),
        (Data((b"x",)), "data", ("binary", b"x")),
        (AmqpValue(Int(5)), "amqp-value", ("int", 5)),
        (AmqpSequence(((Int(5), "x"),)), "amqp-sequence", ("list", [("int", 5), (STRING, "x")])),
    ],
)
def test_the_body_of_a_scheduled_message(body: Any, section: str, value: Typed) -> None:
    ((_, entry),) = sent(schedule_message([scheduled(body=body)]))["messages"][1]
    assert sections(entry["message"][1])[section] == value


def test_a_life_that_the_header_cannot_hold_is_carried_by_an_expiry_time_as_well() -> None:
    def expiry(life: int) -> dict[str, Typed]:
        ((_, entry),) = sent(schedule_message([scheduled(time_to_live_ms=life)]))["messages"][1]
        found = message_leaves(entry["message"][1])
        return {path: leaf for path, leaf in found.items() if path.endswith(("ttl", "-time")) and "x-opt" not in path}

    assert expiry(0) == {"header/ttl": ("uint", 0)}
    assert expiry(2**32 - 1) == {"header/ttl": ("uint", 2**32 - 1)}
    assert expiry(2**32) == {
        "header/ttl": ("uint", 2**32 - 1),
        "properties/creation-time": ("timestamp", WHEN_MS),
        "properties/absolute-expiry-time": ("timestamp", WHEN_MS + 2**32),
    }


def test_entries_that_were_encoded_elsewhere_make_the_same_request() -> None:
    whole = schedule_message([scheduled(session_id="s", partition_key="s"), scheduled(message_id="n", via_partition_key="v")])
    wires = [entry[1]["message"][1] for entry in sent(whole)["messages"][1]]
    entries = [encode_entry(wires[0], "m", "s", "s"), encode_entry(wires[1], "n", via_partition_key="v")]
    halves = schedule_entries(EncodedEntries.of(entries))
    assert halves.body == whole.body


@given(
    st.lists(
        st.builds(
            ScheduledMessage,
            st.binary(max_size=300),
            st.datetimes(timezones=st.timezones() | st.sampled_from([timezone.utc])),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=128),
            session_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=128),
            time_to_live_ms=st.none() | st.integers(0, 922_337_203_685_477),
            application_properties=st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
                st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary() | st.uuids(),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_messages_are_scheduled_as_they_are(messages: list[ScheduledMessage]) -> None:
    entries = sent(schedule_message(messages))["messages"][1]
    assert len(entries) == len(messages)
    for (_, entry), message in zip(entries, messages, strict=True):
        found = sections(entry["message"][1])
        assert entry["message-id"] == found["properties"][1]["message-id"] == (STRING, message.message_id)
        assert entry.get("session-id") == found["properties"][1].get("group-id")
        assert entry.get("session-id", (STRING, None))[1] == message.session_id
        assert found["data"] == ("binary", message.body)
        annotated = found["message-annotations"][1]["symbol x-opt-scheduled-enqueue-time"]
        assert annotated == (
            "timestamp",
            (message.scheduled_enqueue_time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1),
        )
        properties = leaves(found.get("application-properties", ("map", {})))
        assert {path[1:]: leaf[1] for path, leaf in properties.items() if path} == dict(message.application_properties)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_any_numbers_are_sent_as_they_are(numbers: list[int]) -> None:
    for request in (cancel_scheduled_message(numbers), receive_by_sequence_number(numbers)):
        assert sent(request)["sequence-numbers"] == ("array", ("long", numbers))


@given(st.lists(st.uuids(), min_size=1))
def test_any_tokens_are_sent_as_they_are(tokens: list[UUID]) -> None:
    for request in (renew_lock(tokens), renew_lock(str(token) for token in tokens), update_disposition("completed", tokens)):
        assert sent(request)["lock-tokens"] == ("array", ("uuid", tokens))


# --- what is refused ----------------------------------------------------------------------------------------------------

NAIVE = datetime(2030, 1, 1)
LONG_ID = "x" * 129
SURROGATE = "a\ud800b"

REFUSED: list[tuple[Callable[[], Request[Any]], str, int | None, str]] = [
    (lambda: peek_message(2**63), "from_sequence_number", None, "must be a 64-bit integer, not 9223372036854775808"),
    (lambda: peek_message(1.0), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message("1"), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(True), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(None), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(np.float64(1)), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(np.True_), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(np.uint64(2**63)), "from_sequence_number", None, "must be a 64-bit integer"),
    (lambda: peek_message(0, 0), "message_count", None, "must be an integer from 1 to 2147483647, not 0"),
    (lambda: peek_message(0, 2**31), "message_count", None, "must be an integer from 1 to 2147483647"),
    (lambda: peek_message(0, True), "message_count", None, "must be an integer from 1"),
    (lambda: peek_message(0, 1, LONG_ID), "session_id", None, "has 129 characters, 128 at most are allowed"),
    (lambda: peek_message(0, 1, 5), "session_id", None, "must be a string, not 5"),
    (lambda: peek_message(0, 1, SURROGATE), "session_id", None, "cannot be sent: text with a lone surrogate at position 1"),
    (lambda: peek_message(0, 1, None, "false"), "omit_message_body", None, "must be True or False, not 'false'"),
    (lambda: receive_by_sequence_number([]), "sequence_numbers", None, "must have at least one item"),
    (lambda: receive_by_sequence_number(5), "sequence_numbers", None, "must be a sequence, not 5"),
    (lambda: receive_by_sequence_number("12"), "sequence_numbers", None, "must be a sequence, not '12'"),
    (lambda: receive_by_sequence_number(b"12"), "sequence_numbers", None, "must be a sequence"),
    (lambda: receive_by_sequence_number([1, 2**63]), "sequence_numbers", 1, "must be a 64-bit integer"),
    (lambda: receive_by_sequence_number([1, 2, None]), "sequence_numbers", 2, "must be a 64-bit integer, not None"),
    (lambda: receive_by_sequence_number([1], 2), "receiver_settle_mode", None, "must be one of 0 (delete), 1 (lock), not 2"),
    (lambda: receive_by_sequence_number([1], True), "receiver_settle_mode", None, "must be one of"),
    (lambda: receive_by_sequence_number([1], [1]), "receiver_settle_mode", None, "must be one of"),
    (lambda: receive_by_sequence_number([1], session_id=LONG_ID), "session_id", None, "128 at most"),
    (lambda: cancel_scheduled_message([]), "sequence_numbers", None, "must have at least one item"),
    (lambda: cancel_scheduled_message([0, "1"]), "sequence_numbers", 1, "must be a 64-bit integer, not '1'"),
    (lambda: update_disposition("dead", [TOKEN]), "disposition_status", None, "completed, abandoned, suspended, deferred, not 'dead'"),
    (lambda: update_disposition("defered", [TOKEN]), "disposition_status", None, "must be one of"),
    (lambda: update_disposition(["completed"], [TOKEN]), "disposition_status", None, "must be one of"),
    (lambda: update_disposition("completed", []), "lock_tokens", None, "must have at least one item"),
    (lambda: update_disposition("completed", str(TOKEN)), "lock_tokens", None, "must be a sequence"),
    (lambda: update_disposition("completed", [TOKEN, "no"]), "lock_tokens", 1, "must be a UUID, not 'no'"),
    (lambda: update_disposition("completed", [TOKEN], "why"), "deadletter_reason", None, "is only for disposition_status suspended"),
    (
        lambda: update_disposition("deferred", [TOKEN], None, "w"),
        "deadletter_description",
        None,
        "is only for disposition_status suspended",
    ),
    (lambda: update_disposition("suspended", [TOKEN], "x" * 4097), "deadletter_reason", None, "has 4097 characters, 4096 at most"),
    (lambda: update_disposition("suspended", [TOKEN], "w", 5), "deadletter_description", None, "must be a string, not 5"),
    (
        lambda: update_disposition("completed", [TOKEN], properties_to_modify={}),
        "properties_to_modify",
        None,
        "is not for disposition_status completed",
    ),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={1: 2}),
        "properties_to_modify",
        None,
        "has the key 1, which is no",
    ),
    (lambda: update_disposition("abandoned", [TOKEN], properties_to_modify=[1]), "properties_to_modify", None, "must be a dict or a Map"),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={"k": 2**63}),
        "properties_to_modify",
        None,
        "has a value for 'k' that cannot be sent: 9223372036854775808 is outside AMQP long",
    ),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={"k": object()}),
        "properties_to_modify",
        None,
        "has a value for 'k' that cannot be sent: a Python object has no AMQP type",
    ),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={"k": [1]}),
        "properties_to_modify",
        None,
        "has a value for 'k' that cannot be sent: the Python int 1 has no AMQP type",
    ),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={"k": NAIVE}),
        "properties_to_modify",
        None,
        "has a value for 'k' that cannot be sent: a time without a time zone",
    ),
    (
        lambda: update_disposition("abandoned", [TOKEN], properties_to_modify={SURROGATE: 1}),
        "properties_to_modify key 'a\\ud800b'",
        None,
        "cannot be sent: text with a lone surrogate",
    ),
    (lambda: update_disposition("abandoned", [TOKEN], session_id=LONG_ID), "session_id", None, "128 at most"),
    (lambda: renew_lock([]), "lock_tokens", None, "must have at least one item"),
    (lambda: renew_lock([TOKEN, 5]), "lock_tokens", 1, "must be a UUID, not 5"),
    (lambda: renew_lock(TOKEN), "lock_tokens", None, "must be a sequence"),
    (lambda: renew_session_lock(LONG_ID), "session_id", None, "128 at most"),
    (lambda: get_session_state(None), "session_id", None, "must be a string, not None"),
    (lambda: set_session_state("s", "text"), "session_state", None, "must be bytes or None, not a str"),
    (lambda: set_session_state(5, b""), "session_id", None, "must be a string"),
    (lambda: get_message_sessions(NAIVE), "last_updated_time", None, "is 2030-01-01T00:00:00 without a time zone: say which"),
    (lambda: get_message_sessions("2030"), "last_updated_time", None, "must be a datetime or milliseconds since 1970, not '2030'"),
    (lambda: get_message_sessions(2**63), "last_updated_time", None, "must be a datetime or milliseconds since 1970"),
    (lambda: get_message_sessions(None, -1), "skip", None, "must be an integer from 0 to 2147483647, not -1"),
    (lambda: get_message_sessions(None, 0, 0), "top", None, "must be an integer from 1"),
    (lambda: enumerate_rules(0), "top", None, "must be an integer from 1"),
    (lambda: enumerate_rules(1, -1), "skip", None, "must be an integer from 0"),
    (lambda: remove_rule(""), "rule_name", None, "must not be empty"),
    (lambda: remove_rule("x" * 51), "rule_name", None, "has 51 characters, 50 at most"),
    (lambda: add_rule("rule"), "rule", None, "must be a Rule of spark_sb_mgmt.model, not 'rule'"),
    (lambda: add_rule(Rule("", TrueFilter())), "rule_name", None, "must not be empty"),
    (lambda: add_rule(Rule("r", "a = 1")), "filter", None, "must be a filter of spark_sb_mgmt.model, not 'a = 1'"),
    (lambda: add_rule(Rule("r", SqlFilter(""))), "filter", None, "must not be empty"),
    (lambda: add_rule(Rule("r", SqlFilter("x" * 1025))), "filter", None, "has 1025 characters, 1024 at most"),
    (lambda: add_rule(Rule("r", TrueFilter(), "SET a = 1")), "action", None, "must be a SqlRuleAction"),
    (lambda: add_rule(Rule("r", TrueFilter(), SqlRuleAction(""))), "action", None, "must not be empty"),
    (lambda: add_rule(Rule("r", CorrelationFilter(label=5))), "label", None, "must be a string, not 5"),
    (
        lambda: add_rule(Rule("r", CorrelationFilter(properties={"k": object()}))),
        "properties",
        None,
        "has a value for 'k' that cannot be sent",
    ),
    (lambda: batch_delete_messages(0, WHEN), "message_count", None, "must be an integer from 1"),
    (lambda: batch_delete_messages(1, NAIVE), "enqueued_time_utc", None, "without a time zone"),
    (lambda: batch_delete_messages(1, None), "enqueued_time_utc", None, "must be a datetime or milliseconds since 1970, not None"),
    (lambda: batch_delete_messages(1, WHEN, LONG_ID), "session_id", None, "128 at most"),
    (lambda: schedule_message([]), "messages", None, "must have at least one item"),
    (lambda: schedule_message(scheduled()), "messages", None, "must be a sequence"),
    (lambda: schedule_message(5), "messages", None, "must be a sequence, not 5"),
    (lambda: schedule_message([scheduled(), b"x"]), "messages", 1, "must be a ScheduledMessage, not a bytes"),
    (lambda: schedule_entries(EncodedEntries.of([])), "messages", None, "must have at least one item"),
    (
        lambda: schedule_message([scheduled(), scheduled(body=5)]),
        "body",
        1,
        "must be bytes, text, Data, AmqpSequence or AmqpValue, not a int",
    ),
    (lambda: schedule_message([scheduled(body=AmqpValue(5))]), "body", 0, "cannot be sent: the Python int 5 has no AMQP type"),
    (lambda: schedule_message([scheduled(body=SURROGATE)]), "body", 0, "cannot be sent: text with a lone surrogate"),
    (lambda: schedule_message([scheduled(scheduled_enqueue_time=NAIVE)]), "scheduled_enqueue_time", 0, "without a time zone"),
    (lambda: schedule_message([scheduled(scheduled_enqueue_time=None)]), "scheduled_enqueue_time", 0, "must be a datetime or milliseconds"),
    (lambda: schedule_message([scheduled(message_id=None)]), "message_id", 0, "must be a string, not None"),
    (lambda: schedule_message([scheduled(message_id=5)]), "message_id", 0, "must be a string, not 5"),
    (lambda: schedule_message([scheduled(message_id=LONG_ID)]), "message_id", 0, "128 at most"),
    (lambda: schedule_message([scheduled(), scheduled(session_id=LONG_ID)]), "session_id", 1, "128 at most"),
    (lambda: schedule_message([scheduled(partition_key=LONG_ID)]), "partition_key", 0, "128 at most"),
    (lambda: schedule_message([scheduled(via_partition_key=5)]), "via_partition_key", 0, "must be a string, not 5"),
    *(
        (lambda name=name: schedule_message([scheduled(), scheduled(**{name: 5})]), name, 1, "must be a string, not 5")
        for name in ("correlation_id", "subject", "to", "reply_to", "reply_to_session_id", "content_type")
    ),
    (lambda: schedule_message([scheduled(time_to_live_ms=-1)]), "time_to_live_ms", 0, "must not be below zero, as -1 is"),
    (lambda: schedule_message([scheduled(time_to_live_ms=1.5)]), "time_to_live_ms", 0, "must be a 64-bit integer, not 1.5"),
    (lambda: schedule_message([scheduled(time_to_live_ms=2**63 - 1)]), "time_to_live_ms", 0, "is no time any more"),
    (
        lambda: schedule_message([scheduled(), scheduled(application_properties={"k": 2**63})]),
        "application_properties",
        1,
        "has a value for 'k' that cannot be sent",
    ),
    (
        lambda: schedule_message([scheduled(application_properties={Symbol("k"): [object()]})]),
        "application_properties",
        0,
        "a Python object",
    ),
    (lambda: schedule_message([scheduled(application_properties=5)]), "application_properties", 0, "must be a dict or a Map, not 5"),
    (lambda: encode_entry(b"", "m", LONG_ID, row=7), "session_id", 7, "128 at most"),
    (lambda: encode_entry(b"", None), "message_id", None, "must be a string"),
]


@pytest.mark.parametrize(("call", "argument", "row", "problem"), REFUSED)
def test_what_cannot_be_sent_is_refused_by_name_and_row(call: Callable[[], Any], argument: str, row: int | None, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        call()
    assert (refused.value.argument, refused.value.row) == (argument, row)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(argument if row is None else f"{argument}[{row}] ")
    assert len(str(refused.value)) < 400
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_a_refused_value_is_shown_in_part_only() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        peek_message("9" * 10_000)
    assert len(str(refused.value)) < 200
