"""Locks and states of sessions, and which sessions there are."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Array, Data, int32, timestamp

from tests.emulator.entities.broker import MINUTE, START
from tests.emulator.management.service import LOCK_DURATION, Reply, Service

ALL_SESSIONS = 253402300800000


@pytest.fixture
def service() -> Service:
    return Service()


def renew(service: Service, session_id: str = "s", **given: Any) -> Reply:
    return service.ask("renew-session-lock", {"session-id": session_id}, at="sessions", **given)


def state(service: Service, session_id: str = "s", **given: Any) -> Reply:
    return service.ask("get-session-state", {"session-id": session_id}, at="sessions", **given)


def set_state(service: Service, value: Any, session_id: str = "s", **given: Any) -> Reply:
    return service.ask("set-session-state", {"session-id": session_id, "session-state": value}, at="sessions", **given)


def list_sessions(service: Service, since: int = ALL_SESSIONS, skip: int = 0, top: int = 100) -> Reply:
    body = {"last-updated-time": timestamp(since), "skip": int32(skip), "top": int32(top)}
    return service.ask("get-message-sessions", body, at="sessions")


def ids(reply: Reply) -> list[str]:
    found = reply.body["sessions-ids"]
    assert isinstance(found, Array)
    assert found.type == Data.STRING
    return list(found.elements)


def test_the_lock_of_a_session_is_renewed(service: Service) -> None:
    service.held_session("s", "link")
    service.broker.pass_time(40_000)
    for given in ({"associated": "link"}, {}):
        reply = renew(service, **given)
        assert type(reply.body["expiration"]) is timestamp
        assert reply.body["expiration"] == START + 40_000 + LOCK_DURATION
    service.broker.pass_time(40_000)
    assert renew(service, associated="link").status == 200


def test_a_session_that_nobody_or_another_holds_is_not_renewed(service: Service) -> None:
    assert renew(service).said == (410, "com.microsoft:session-lock-lost")
    service.held_session("s", "link")
    assert renew(service, associated="other link").said == (410, "com.microsoft:session-lock-lost")
    service.broker.pass_time(LOCK_DURATION)
    reply = renew(service, associated="link")
    assert reply.said == (410, "com.microsoft:session-lock-lost")
    assert "'s'" in reply.description


def test_a_session_state_is_kept_and_cleared(service: Service) -> None:
    assert state(service).body == {"session-state": None}
    reply = set_state(service, b"\x00state")
    assert reply.said == (200, None)
    assert reply.body == {}
    assert state(service).body["session-state"] == b"\x00state"
    assert set_state(service, b"").status == 200
    assert state(service).body["session-state"] == b""
    assert set_state(service, None).status == 200
    assert state(service).body == {"session-state": None}


def test_whoever_speaks_for_a_link_must_hold_the_session(service: Service) -> None:
    assert set_state(service, b"x", associated="link").said == (410, "com.microsoft:session-lock-lost")
    assert state(service, associated="link").said == (410, "com.microsoft:session-lock-lost")
    service.held_session("s", "link")
    assert set_state(service, b"x", associated="link").status == 200
    assert state(service, associated="link").body["session-state"] == b"x"


def test_a_state_must_be_said_even_to_clear_it(service: Service) -> None:
    set_state(service, b"x")
    reply = service.ask("set-session-state", {"session-id": "s"}, at="sessions")
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "`session-state` (AMQP binary or null) is missing" in reply.description
    assert state(service).body["session-state"] == b"x"


def test_a_state_that_is_too_large_is_refused(service: Service) -> None:
    reply = set_state(service, bytes(service.broker.queue("sessions").max_message_size + 1))
    assert reply.said == (403, "amqp:link:message-size-exceeded")


def test_all_sessions_that_have_messages_or_a_state(service: Service) -> None:
    service.broker.send("1", to="sessions", session="with message")
    set_state(service, b"x", "with state")
    service.held_session("empty", "link")
    reply = list_sessions(service)
    assert reply.said == (200, None)
    assert ids(reply) == ["with message", "with state"]
    assert type(reply.body["skip"]) is int32
    assert reply.body["skip"] == 2


def test_sessions_whose_state_was_set_after_a_time(service: Service) -> None:
    service.broker.send("1", to="sessions", session="without state")
    set_state(service, b"x", "old")
    service.broker.pass_time(MINUTE)
    set_state(service, b"x", "new")
    assert ids(list_sessions(service, START)) == ["new"]
    assert ids(list_sessions(service, START - 1)) == ["new", "old"]
    # One millisecond before the year 10000 is a time like any other.
    assert list_sessions(service, ALL_SESSIONS - 1).status == 204


def test_sessions_are_listed_page_by_page(service: Service) -> None:
    for number in range(5):
        set_state(service, b"x", f"s{number}")
    found, skip = [], 0
    while (reply := list_sessions(service, skip=skip, top=2)).status == 200:
        found += ids(reply)
        skip = reply.body["skip"]
    assert found == ["s0", "s1", "s2", "s3", "s4"]
    assert reply.said == (204, "com.microsoft:session-not-found")


@pytest.mark.parametrize(("skip", "top"), [(-1, 1), (0, 0), (0, -1)])
def test_a_page_that_cannot_be_is_out_of_range(service: Service, skip: int, top: int) -> None:
    assert list_sessions(service, skip=skip, top=top).said == (400, "com.microsoft:argument-out-of-range")


def test_a_session_id_that_is_too_long_is_out_of_range(service: Service) -> None:
    for reply in (renew(service, "x" * 129), state(service, "x" * 129), set_state(service, b"", "x" * 129)):
        assert reply.said == (400, "com.microsoft:argument-out-of-range")


@pytest.mark.parametrize("at", ["q", "t/Subscriptions/all", "q/$DeadLetterQueue"])
def test_an_entity_without_sessions_says_so(service: Service, at: str) -> None:
    for operation, body in (
        ("renew-session-lock", {"session-id": "s"}),
        ("get-session-state", {"session-id": "s"}),
        ("set-session-state", {"session-id": "s", "session-state": b"x"}),
        ("get-message-sessions", {"last-updated-time": timestamp(ALL_SESSIONS), "skip": int32(0), "top": int32(1)}),
    ):
        reply = service.ask(operation, body, at=at)
        assert reply.said == (400, "amqp:not-allowed")
        assert "RequiresSession" in reply.description
