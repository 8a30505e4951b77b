"""The client's encoders and readers joined with this end in memory: each understands the other without a network between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.emulator.management import read_request
from spark_sb_mgmt.errors import EntityAlreadyExistsError, MessageLockLostError, MessageNotFoundError, SessionLockLostError
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.delete import batch_delete_messages
from spark_sb_mgmt.operations.envelope import Request, encode_request, read_response
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.operations.rules import add_rule, enumerate_rules, remove_rule
from spark_sb_mgmt.operations.schedule import ScheduledMessage, cancel_scheduled_message, schedule_message
from spark_sb_mgmt.operations.sessions import get_message_sessions, get_session_state, renew_session_lock, set_session_state
from spark_sb_mgmt.operations.settle import renew_lock, update_disposition
from spark_sb_mgmt.operations.times import to_datetime
from tests.emulator.entities.broker import HOUR, START
from tests.emulator.management.service import HOLDER, LOCK_DURATION, MAX_BYTES, Service

T = TypeVar("T")
SUBSCRIPTION = "t/Subscriptions/all"


@pytest.fixture
def service() -> Service:
    return Service()


def ask(service: Service, asked: Request[T], at: str = "q") -> T:
    raw = encode_request(asked, "id-1", "reply", 1000, tracking_id="t-1")
    entity = service.broker.namespace.resolve(at)
    answer = service.management.answer(entity, read_request(raw), holder=HOLDER, max_bytes=MAX_BYTES)
    response = read_response(answer)
    assert (response.correlation_id, response.tracking_id) == ("id-1", "t-1")
    return asked.read(response)


def test_messages(service: Service) -> None:
    service.broker.send(*"abc")
    assert len(ask(service, peek_message(0, 2))) == 2
    assert len(ask(service, peek_message(4, 2))) == 0
    numbers = service.broker.deferred("d")
    # The first of the queue was deferred, which is how receiving goes.
    received = ask(service, receive_by_sequence_number(numbers))
    token = received.lock_token(0)
    assert isinstance(token, UUID)
    assert ask(service, renew_lock([token])) == [to_datetime(START + LOCK_DURATION)]
    ask(service, update_disposition("suspended", [token], "reason", "description", {"a": "b"}))
    with pytest.raises(MessageLockLostError):
        ask(service, update_disposition("completed", [token]))
    with pytest.raises(MessageNotFoundError):
        ask(service, receive_by_sequence_number(numbers))
    assert ask(service, batch_delete_messages(10, START + 1)) == 3
    assert ask(service, batch_delete_messages(10, START + 1)) == 0
    assert len(ask(service, peek_message(0, 9), "q/$DeadLetterQueue")) == 1


def test_scheduling(service: Service) -> None:
    numbers = ask(service, schedule_message([ScheduledMessage("text", START + HOUR, "id"), ScheduledMessage(b"x", START + HOUR, "id2")]))
    ask(service, cancel_scheduled_message(numbers[:1]))
    assert service.peek().numbers == numbers[1:]


def test_sessions(service: Service) -> None:
    ask(service, set_session_state("s", b"state"), "sessions")
    assert ask(service, get_session_state("s"), "sessions") == b"state"
    assert ask(service, get_session_state("none"), "sessions") is None
    page = ask(service, get_message_sessions(), "sessions")
    assert (page.sessions_ids, page.skip) == (("s",), 1)
    assert ask(service, get_message_sessions(skip=1), "sessions").sessions_ids == ()
    with pytest.raises(SessionLockLostError):
        ask(service, renew_session_lock("s"), "sessions")
    service.held_session("s")
    assert ask(service, renew_session_lock("s"), "sessions") == to_datetime(START + LOCK_DURATION)


def test_rules(service: Service) -> None:
    rules = [
        Rule("sql", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
        Rule("correlation", CorrelationFilter(label="red", properties={"n": Int(5)})),
        Rule("none", FalseFilter()),
    ]
    for rule in rules:
        ask(service, add_rule(rule), SUBSCRIPTION)
    with pytest.raises(EntityAlreadyExistsError):
        ask(service, add_rule(rules[0]), SUBSCRIPTION)
    sql, correlation, none = (replace(rule, created_at=to_datetime(START)) for rule in rules)
    assert ask(service, enumerate_rules(), SUBSCRIPTION) == [
        Rule("$Default", TrueFilter(), created_at=to_datetime(START)),
        sql,
        correlation,
        # It has no map form, so it came as the expression that means it.
        replace(none, filter=SqlFilter("1=0")),
    ]
    ask(service, remove_rule("sql"), SUBSCRIPTION)
    assert len(ask(service, enumerate_rules(), SUBSCRIPTION)) == 3
    assert ask(service, enumerate_rules(skip=3), SUBSCRIPTION) == []
