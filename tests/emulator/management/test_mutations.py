"""Requests that nobody would send: right ones with values or bytes changed. Each is answered, and the entities stay whole."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import event, given, settings
from hypothesis import strategies as st
from proton import int32

from spark_sb_mgmt.amqp.message import AmqpValue, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Array, Int, Long, Map, Symbol, Timestamp, UInt
from spark_sb_mgmt.emulator.entities import Queue, ServiceBusFault, UnitOfWork
from spark_sb_mgmt.emulator.management import ManagementRequest, read_request
from spark_sb_mgmt.emulator.management.dispatch import OPERATIONS
from spark_sb_mgmt.operations.names import ALL_SESSIONS
from tests.amqp.strategies import scalars, values
from tests.emulator.entities.broker import START
from tests.emulator.management.service import HOLDER, LOCK_DURATION, MAX_BYTES, Service, request, scheduled

ENTITIES = ("q", "sessions", "partitioned", "small", "t", "t/Subscriptions/all", "q/$DeadLetterQueue", "q/$Transfer/$DeadLetterQueue")
TRANSACTIONAL = {operation for operation, found in OPERATIONS.items() if found.transactional}


def known_tokens() -> list[UUID]:
    """The lock tokens that a fresh service gives its first messages: chance is the test's own."""
    return filled()[1]


def filled() -> tuple[Service, list[UUID]]:
    service = Service()
    for name in ("q", "partitioned", "small", "t"):
        service.broker.send("1", "2", to=name)
        service.broker.schedule("later", after=60_000, to=name)
    service.broker.send("1", to="sessions", session="s")
    service.broker.deferred("deferred")
    return service, service.locked("a", "b", "c")


TOKENS = known_tokens()
# What succeeds stands first in each of these: hypothesis likes the first.
NUMBERS = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(lambda numbers: Array("long", numbers))
LOCK_TOKENS = st.lists(st.sampled_from([*TOKENS, UUID(int=1)]), min_size=1, max_size=3).map(lambda tokens: Array("uuid", tokens))
SMALL_INT = st.sampled_from([3, 1, 5, 2, 4, 0, -1]).map(Int)
SESSION = st.sampled_from(["s", "other", ""])
RULE = st.sampled_from(
    [
        Map({"sql-filter": Map({"expression": "a = 1"})}),
        Map({"sql-filter": Map({"expression": "a = ="})}),
        Map({"sql-filter": Map({"expression": "1=1"}), "sql-rule-action": Map({"expression": "SET a = 1"})}),
        Map({"correlation-filter": Map({"label": "x", "properties": Map({"n": Int(1)})})}),
    ]
)
ENTRY = st.builds(
    lambda text, session, damage: Map({"message-id": "m", "message": damage(scheduled(text, session=session)["message"])}),
    st.text(max_size=5),
    st.sampled_from([None, "s", "other"]),
    st.sampled_from([None, None, None, 10, 40, 60]).map(lambda end: lambda raw: raw[:end]),
)
BODIES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "peek-message": {
        "from-sequence-number": st.integers(-1, 12).map(Long),
        "message-count": SMALL_INT,
        "session-id": SESSION,
        "omit-message-body": st.booleans(),
    },
    "receive-by-sequence-number": {
        "sequence-numbers": NUMBERS,
        "receiver-settle-mode": st.sampled_from([1, 0, 2]).map(UInt),
        "session-id": SESSION,
    },
    "update-disposition": {
        "disposition-status": st.sampled_from(["completed", "abandoned", "suspended", "defered", "released"]),
        "lock-tokens": LOCK_TOKENS,
        "deadletter-reason": st.text(max_size=5),
        "properties-to-modify": st.dictionaries(st.text(max_size=3), scalars(), max_size=2).map(Map),
    },
    "renew-lock": {"lock-tokens": LOCK_TOKENS},
    "batch-delete-messages": {"message-count": SMALL_INT, "enqueued-time-utc": st.just(Timestamp(START + 1)), "session-id": SESSION},
    "schedule-message": {"messages": st.lists(ENTRY, min_size=1, max_size=3).map(tuple)},
    "cancel-scheduled-message": {"sequence-numbers": NUMBERS},
    "renew-session-lock": {"session-id": SESSION},
    "get-session-state": {"session-id": SESSION},
    "set-session-state": {"session-id": SESSION, "session-state": st.one_of(st.none(), st.binary(max_size=5))},
    "get-message-sessions": {
        "last-updated-time": st.sampled_from([ALL_SESSIONS, START]).map(Timestamp),
        "skip": st.sampled_from([0, 1, -1]).map(Int),
        "top": SMALL_INT,
    },
    "add-rule": {"rule-name": st.sampled_from(["r", "$Default", "x" * 51]), "rule-description": RULE},
    "remove-rule": {"rule-name": st.sampled_from(["r", "$Default"])},
    "enumerate-rules": {"top": SMALL_INT, "skip": st.sampled_from([0, 1, -1]).map(Int)},
}


# Where an operation can succeed; half of the requests go there.
AT_HOME = {
    **dict.fromkeys(BODIES, ("q",)),
    **dict.fromkeys(("renew-session-lock", "get-session-state", "set-session-state", "get-message-sessions"), ("sessions",)),
    **dict.fromkeys(("add-rule", "remove-rule", "enumerate-rules"), ("t/Subscriptions/all",)),
    "schedule-message": ("q", "sessions", "partitioned", "t"),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Where a request goes, and its bytes."""
    operation = draw(st.sampled_from(sorted(BODIES)))
    change = draw(st.sampled_from(["none", "none", "none", "missing", "value", "body", "envelope", "bytes"]))
    fields = BODIES[operation]
    body = dict(draw(st.fixed_dictionaries({}, optional=fields) if change == "missing" else st.fixed_dictionaries(fields)))
    at = draw(st.sampled_from(AT_HOME[operation] if draw(st.booleans()) else ENTITIES))
    # Else all is refused for the one reason that there are no sessions.
    if at != "sessions" and "session-id" in body and draw(st.booleans()):
        del body["session-id"]
    if change == "value":
        body[draw(st.sampled_from(sorted(fields)))] = draw(values(2))
    content: Any = draw(values(1)) if change == "body" else Map(body)
    properties: dict[str, Any] = {"operation": f"com.microsoft:{operation}"}
    if change == "envelope":
        key = draw(st.sampled_from(["operation", "com.microsoft:server-timeout", "associated-link-name", "com.microsoft:tracking-id"]))
        properties[key] = draw(values(1))
    raw = encode_message(Message(properties=Properties(message_id="id"), application_properties=Map(properties), body=AmqpValue(content)))
    return at, draw(damaged(raw)) if change == "bytes" else raw


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    at = draw(st.integers(0, len(raw) - 1))
    how = draw(st.sampled_from(["flip", "cut", "insert", "double"]))
    if how == "flip":
        return raw[:at] + bytes((raw[at] ^ draw(st.integers(1, 255)),)) + raw[at + 1 :]
    if how == "cut":
        return raw[:at]
    if how == "insert":
        return raw[:at] + draw(st.binary(min_size=1, max_size=4)) + raw[at:]
    return raw[:at] + raw[at : at + 20] + raw[at:]


def check_whole(service: Service) -> None:
    tokens: set[UUID] = set()
    for entity in service.broker.namespace:
        stored = list(entity.messages.values())
        numbers = [message.sequence_number for message in stored]
        assert numbers == sorted(set(numbers))
        # What stands there can be read, also where it came in through a request that was damaged.
        assert all(message.read() is not None for message in stored)
        if not isinstance(entity, Queue):
            continue
        locked = [message.lock_token for message in stored if message.lock_token is not None]
        assert len(set(locked)) == len(locked)
        assert not tokens & set(locked)
        tokens |= set(locked)
        counts = entity.counts()
        assert counts.active + counts.deferred + counts.scheduled == len(stored)
        assert counts.locked == len(locked)
        if entity.sessions is not None:
            assert sum(len(session.messages) for session in entity.sessions) == len(stored)


def test_the_bodies_above_are_of_every_operation() -> None:
    assert {f"com.microsoft:{operation}" for operation in BODIES} == set(OPERATIONS)


def read(raw: bytes) -> ManagementRequest | ServiceBusFault:
    try:
        return read_request(raw)
    except ServiceBusFault as fault:
        return fault


def end(work: UnitOfWork, commit: bool) -> ServiceBusFault | None:
    try:
        work.commit() if commit else work.rollback()
    except ServiceBusFault as fault:
        return fault
    return None


def peeked(service: Service, path: str) -> tuple[Any, ...]:
    """By our own decoder: proton stumbles over what a damaged message may hold, such as a symbol that is not ASCII."""
    everything = read_request(request("peek-message", {"from-sequence-number": -(2**63), "message-count": int32(1000)}))
    entity = service.broker.namespace.resolve(path)
    body = decode_message(service.management.answer(entity, everything, holder=HOLDER, max_bytes=MAX_BYTES)).body
    assert isinstance(body, AmqpValue)
    entries: tuple[Any, ...] = body.value.get("messages", ())
    return entries


@settings(max_examples=150)
@given(st.lists(st.tuples(requests(), st.booleans()), min_size=1, max_size=12), st.booleans())
def test_every_request_is_answered_and_the_entities_stay_whole(asked: list[tuple[tuple[str, bytes], bool]], commit: bool) -> None:
    service, tokens = filled()
    assert tokens == TOKENS
    work = service.broker.namespace.begin()
    for (path, raw), within in asked:
        asking = read(raw)
        if isinstance(asking, ServiceBusFault):
            event("unreadable")
            assert (asking.status, asking.condition) == (400, "amqp:decode-error")
            continue
        answer = service.management.answer(
            service.broker.namespace.resolve(path),
            asking,
            holder=HOLDER,
            work=work if within and asking.operation in TRANSACTIONAL else None,
            max_bytes=MAX_BYTES,
        )
        message = decode_message(answer)
        assert message.properties is not None
        assert message.properties.correlation_id == asking.message_id
        said = message.application_properties
        assert said is not None
        status = said["statusCode"]
        assert isinstance(status, Int)
        # Text that everyone can read: this raises where it is not.
        said["statusDescription"].encode()
        assert isinstance(message.body, AmqpValue)
        assert isinstance(message.body.value, Map)
        event(f"status {status}")
        if status == 200:
            event(asking.operation)
        # 500 is a defect of ours, whatever was sent.
        assert status in (200, 204, 400, 403, 404, 409, 410, 501)
        if status >= 400:
            assert isinstance(said["errorCondition"], Symbol)
        check_whole(service)
    failed = end(work, commit)
    assert failed is None or failed.condition == "amqp:transaction:rollback"
    check_whole(service)
    service.broker.pass_time(2 * LOCK_DURATION)
    check_whole(service)
    for path in ENTITIES:
        assert len(peeked(service, path)) == len(service.broker.namespace.resolve(path).messages)
