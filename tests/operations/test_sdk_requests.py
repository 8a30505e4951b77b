"""What we send for each operation, against what the SDKs send for the same call, captured on a socket and compared type by type.

The one rule: a difference is an error, unless it stands in a table below with its reason; and a row of the table that no longer is a
difference is an error too. Both sides are read by proton. Message ids, reply addresses, link names, tracking ids and timeouts are the
sender's own choice, so ours are made of theirs: what is compared is their types.

Only the beta of @azure/service-bus sends batch-delete-messages (wire-facts.md, section 2), and azure-servicebus speaks of rules over HTTP
only.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from spark_sb_mgmt.model import CorrelationFilter, Rule, SqlFilter, SqlRuleAction
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.delete import batch_delete_messages
from spark_sb_mgmt.operations.envelope import Request, encode_request
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.operations.rules import add_rule, enumerate_rules, remove_rule
from spark_sb_mgmt.operations.schedule import ScheduledMessage, cancel_scheduled_message, schedule_message
from spark_sb_mgmt.operations.sessions import get_message_sessions, get_session_state, renew_session_lock, set_session_state
from spark_sb_mgmt.operations.settle import renew_lock, update_disposition
from tests.operations.capture import LOCK_TOKEN, capturing
from tests.operations.typed import Typed, message_leaves, sections

PEERS = Path(__file__).parent.parent / "peers"

# Of partition 1, so that it needs more than 32 bits; below zero, so that it needs its sign.
NUMBER = (1 << 48) + 7
NEGATIVE = -47
WHEN = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)
PROPERTIES: dict[str, Any] = {"text": "zwei", "yes": True, "half": 1.5}
SCHEDULED = ScheduledMessage(
    b"hello",
    WHEN,
    message_id="m1",
    session_id="s1",
    partition_key="s1",
    correlation_id="c1",
    subject="label",
    to="there",
    reply_to="back",
    reply_to_session_id="rs",
    content_type="text/plain",
    time_to_live_ms=60_000,
    application_properties=PROPERTIES,
)

# The calls, in their order: what each is called in the tables, and our request for it.
_COMMON: list[tuple[str, Request[Any]]] = [
    ("schedule", schedule_message([SCHEDULED])),
    ("cancel", cancel_scheduled_message([NUMBER, NEGATIVE])),
    ("peek", peek_message(NUMBER, 10)),
]
_LOCKED: list[tuple[str, Request[Any]]] = [
    ("receive deferred", receive_by_sequence_number([NUMBER])),
    ("renew lock", renew_lock([LOCK_TOKEN])),
    ("receive four", receive_by_sequence_number([1, 2, 3, 4])),
    ("complete", update_disposition("completed", [LOCK_TOKEN])),
]
_DELETE_AND_SESSION: list[tuple[str, Request[Any]]] = [
    ("receive and delete", receive_by_sequence_number([NUMBER], names.RECEIVE_AND_DELETE)),
    ("peek a session", peek_message(7, 3, session_id="s1")),
    ("renew session", renew_session_lock("s1")),
    ("get state", get_session_state("s1")),
]
_IN_SESSION: list[tuple[str, Request[Any]]] = [
    ("receive in a session", receive_by_sequence_number([NUMBER], session_id="s1")),
    ("complete in a session", update_disposition("completed", [LOCK_TOKEN], session_id="s1")),
]

PYTHON_CALLS: list[tuple[str, Request[Any]]] = [
    *_COMMON,
    *_LOCKED,
    ("abandon", update_disposition("abandoned", [LOCK_TOKEN])),
    ("defer", update_disposition("deferred", [LOCK_TOKEN])),
    ("dead-letter", update_disposition("suspended", [LOCK_TOKEN], "why", "because")),
    *_DELETE_AND_SESSION,
    ("set state", set_session_state("s1", b"abc")),
    ("clear state", set_session_state("s1", None)),
    *_IN_SESSION,
    ("all sessions", get_message_sessions()),
    ("sessions since", get_message_sessions(WHEN)),
]
JAVASCRIPT_CALLS: list[tuple[str, Request[Any]]] = [
    *_COMMON,
    ("peek without body", peek_message(7, 5, omit_message_body=True)),
    *_LOCKED,
    ("abandon", update_disposition("abandoned", [LOCK_TOKEN], properties_to_modify={"text": "zwei"})),
    ("defer", update_disposition("deferred", [LOCK_TOKEN])),
    ("dead-letter", update_disposition("suspended", [LOCK_TOKEN], "why", "because")),
    *_DELETE_AND_SESSION,
    ("set state", set_session_state("s1", b"abc")),
    *_IN_SESSION,
    ("sessions since", get_message_sessions(WHEN)),
    ("add a rule", add_rule(Rule("sql", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")))),
    ("add a correlation rule", add_rule(Rule("correlation", CorrelationFilter("c1", label="label", properties={"text": "zwei"})))),
    ("remove a rule", remove_rule("sql")),
    ("enumerate rules", enumerate_rules()),
    ("delete", batch_delete_messages(5, WHEN)),
    ("delete in a session", batch_delete_messages(5, WHEN, "s1")),
]


@dataclass(frozen=True)
class Meant:
    """A difference that is meant: where, what each side has there, why, and in which calls (none named: in all)."""

    at: str
    ours: str
    theirs: str
    why: str
    calls: tuple[str, ...] = ()


ABSENT = "absent"
_SCHEDULED_MESSAGE = "amqp-value/messages[0]/message"
_CORRELATION = "amqp-value/rule-description/correlation-filter"
_CLOCK = "a clock of the sender that nobody reads: the life of a scheduled message counts from when it is enqueued, and ttl says how long"


def _unset(*keys: str) -> list[Meant]:
    return [
        Meant(f"{_CORRELATION}/{key}", ABSENT, "null None", "null and absent mean the same, absent is shorter", ("add a correlation rule",))
        for key in keys
    ]


MEANT: Mapping[str, list[Meant]] = {
    "python": [
        Meant("properties/message-id", "string", "uuid", "as .NET, JavaScript and Go have it; Go drops answers to any other"),
        Meant("application-properties/type", ABSENT, "string 'entity-mgmt'", "a habit of this SDK alone; the address says it already"),
        Meant(f"{_SCHEDULED_MESSAGE}:properties/creation-time", ABSENT, "timestamp", _CLOCK, ("schedule",)),
        Meant(f"{_SCHEDULED_MESSAGE}:properties/absolute-expiry-time", ABSENT, "timestamp", _CLOCK, ("schedule",)),
    ],
    "javascript": [
        Meant("header", ABSENT, "map {}", "an empty header says nothing"),
        Meant(
            "application-properties/com.microsoft:server-timeout",
            "uint 60000",
            ABSENT,
            "without it the service may answer when nobody waits any more; azure-servicebus and .NET send it",
        ),
        Meant(f"{_SCHEDULED_MESSAGE}:properties/creation-time", ABSENT, "timestamp", _CLOCK, ("schedule",)),
        Meant(f"{_SCHEDULED_MESSAGE}:properties/absolute-expiry-time", ABSENT, "timestamp", _CLOCK, ("schedule",)),
        Meant("amqp-value/properties-to-modify", ABSENT, "map {}", "nothing to modify", ("dead-letter",)),
        Meant(
            "amqp-value/session-state",
            "binary b'abc'",
            "binary b'\"abc\"'",
            "this SDK makes JSON of a state, we send its bytes",
            ("set state",),
        ),
        *_unset("content-type", "message-id", "reply-to", "reply-to-session-id", "session-id", "to"),
    ],
}


# --- what the SDKs send -------------------------------------------------------------------------------------------------


def from_python() -> list[bytes]:
    with capturing() as service, ServiceBusClient.from_connection_string(service.connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            message = ServiceBusMessage(
                b"hello",
                message_id="m1",
                session_id="s1",
                partition_key="s1",
                correlation_id="c1",
                subject="label",
                to="there",
                reply_to="back",
                reply_to_session_id="rs",
                content_type="text/plain",
                time_to_live=timedelta(minutes=1),
                application_properties=dict(PROPERTIES),
            )
            sender.schedule_messages([message], WHEN)
            sender.cancel_scheduled_messages([NUMBER, NEGATIVE])
        with client.get_queue_receiver("orders") as receiver:
            receiver.peek_messages(10, sequence_number=NUMBER)
            (deferred,) = receiver.receive_deferred_messages([NUMBER])
            receiver.renew_message_lock(deferred)
            first, second, third, fourth = receiver.receive_deferred_messages([1, 2, 3, 4])
            receiver.complete_message(first)
            receiver.abandon_message(second)
            receiver.defer_message(third)
            receiver.dead_letter_message(fourth, reason="why", error_description="because")
        with client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            receiver.receive_deferred_messages([NUMBER])
        with client.get_queue_receiver("orders", session_id="s1") as receiver:
            receiver.peek_messages(3, sequence_number=7)
            receiver.session.renew_lock()
            receiver.session.get_state()
            receiver.session.set_state(b"abc")
            receiver.session.set_state(None)
            (deferred,) = receiver.receive_deferred_messages([NUMBER])
            receiver.complete_message(deferred)
        assert list(client.list_queue_sessions("orders")) == ["one"]
        assert list(client.list_queue_sessions("orders", state_updated_after=WHEN)) == ["one"]
        return list(service.requests)


def from_javascript() -> list[bytes]:
    """One Node.js process makes all calls; no Node.js, or no package (`make peers`), is a failure and not a skip."""
    with capturing() as service:
        command = ["node", "management_calls.js", service.connection_string]
        done = subprocess.run(command, cwd=PEERS, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return list(service.requests)


# --- the comparison -----------------------------------------------------------------------------------------------------


def ours_like(request: Request[Any], theirs: bytes) -> bytes:
    """Our message, with what every sender chooses for itself taken from theirs."""
    envelope = sections(theirs)
    properties, application = envelope["properties"][1], envelope["application-properties"][1]

    def said(key: str) -> Any:
        return application[key][1] if key in application else None

    return encode_request(
        request,
        str(properties["message-id"][1]),
        properties["reply-to"][1],
        said(names.SERVER_TIMEOUT) or 60_000,
        said(names.ASSOCIATED_LINK_NAME),
        said(names.TRACKING_ID),
    )


def differences(ours: bytes, theirs: bytes) -> set[tuple[str, str, str]]:
    mine, other = message_leaves(ours), message_leaves(theirs)
    return {
        (path, shown(path, mine.get(path)), shown(path, other.get(path)))
        for path in mine.keys() | other.keys()
        if mine.get(path) != other.get(path)
    }


# Another value each time: only the type can be told beforehand.
_VOLATILE = ("properties/message-id", "/creation-time", "/absolute-expiry-time")


def shown(path: str, leaf: Typed | None) -> str:
    if leaf is None:
        return ABSENT
    kind, value = leaf
    return str(kind) if path.endswith(_VOLATILE) else f"{kind} {value!r}"


def meant(sdk: str, call: str) -> set[tuple[str, str, str]]:
    return {(one.at, one.ours, one.theirs) for one in MEANT[sdk] if not one.calls or call in one.calls}


@pytest.mark.parametrize(
    ("sdk", "capture", "calls"), [("python", from_python, PYTHON_CALLS), ("javascript", from_javascript, JAVASCRIPT_CALLS)]
)
def test_every_request_is_what_the_sdk_sends_but_for_what_is_meant(
    sdk: str, capture: Callable[[], list[bytes]], calls: list[tuple[str, Request[Any]]]
) -> None:
    captured = capture()
    operations = [sections(raw)["application-properties"][1][names.OPERATION][1] for raw in captured]
    assert operations == [request.operation for _, request in calls]
    found = {call: differences(ours_like(request, raw), raw) for (call, request), raw in zip(calls, captured, strict=True)}
    assert found == {call: meant(sdk, call) for call, _ in calls}


def test_every_operation_is_compared() -> None:
    compared = {request.operation for _, request in (*PYTHON_CALLS, *JAVASCRIPT_CALLS)}
    operations = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("com.microsoft:")}
    others = {names.SERVER_TIMEOUT, names.TRACKING_ID, names.SESSION_FILTER}
    assert operations - others - compared == set()


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (peek_message(NUMBER + 1, 10), {("amqp-value/from-sequence-number", f"long {NUMBER + 1}", f"long {NUMBER}")}),
        (peek_message(NUMBER, 10, "s"), {("amqp-value/session-id", "string 's'", ABSENT)}),
    ],
)
def test_the_comparison_sees_a_difference(changed: Request[Any], found: set[tuple[str, str, str]]) -> None:
    theirs = encode_request(peek_message(NUMBER, 10), "id", "reply", 60_000)
    assert differences(ours_like(changed, theirs), theirs) == found
