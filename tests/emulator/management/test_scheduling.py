"""schedule-message and cancel-scheduled-message, and what is part of a transaction."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Array, Data, Message, int32

from spark_sb_mgmt.emulator.entities import Counts, ServiceBusFault
from spark_sb_mgmt.emulator.entities.transaction import MAX_TRANSACTION_MESSAGES
from tests.emulator.entities.broker import HOUR, START
from tests.emulator.management.service import LOCK_DURATION, Reply, Service, annotation, longs, scheduled, uuids


@pytest.fixture
def service() -> Service:
    return Service()


def schedule(service: Service, *entries: Any, **given: Any) -> Reply:
    return service.ask("schedule-message", {"messages": list(entries)}, **given)


def cancel(service: Service, *numbers: int, **given: Any) -> Reply:
    return service.ask("cancel-scheduled-message", {"sequence-numbers": longs(*numbers)}, **given)


def numbers_of(reply: Reply) -> list[int]:
    numbers = reply.body["sequence-numbers"]
    assert isinstance(numbers, Array)
    assert numbers.type == Data.LONG
    return [int(number) for number in numbers.elements]


def test_scheduled_messages_get_numbers_in_their_order_and_come_when_it_is_time(service: Service) -> None:
    reply = schedule(service, scheduled("a"), scheduled("b"))
    assert reply.said == (200, None)
    assert numbers_of(reply) == [1, 2]
    assert [annotation(message, "x-opt-message-state") for message in service.peek().messages] == [2, 2]
    assert service.broker.q.receive("r", 5) == []
    service.broker.pass_time(HOUR)
    assert len(service.broker.q.receive("r", 5)) == 2


def test_the_ids_beside_a_message_may_be_left_out_or_null(service: Service) -> None:
    entry = scheduled("a")
    bare = {"message": entry["message"]}
    nulls = {**entry, "session-id": None, "partition-key": None, "via-partition-key": None}
    assert numbers_of(schedule(service, bare, nulls)) == [1, 2]


def test_a_message_of_a_session_is_scheduled_into_it(service: Service) -> None:
    assert schedule(service, scheduled("a", session="s"), at="sessions").status == 200
    assert service.peek(at="sessions", body={"session-id": "s"}).texts == ["a"]


def test_a_session_entity_takes_no_message_without_session(service: Service) -> None:
    reply = schedule(service, scheduled("a"), at="sessions")
    assert reply.said == (400, "amqp:not-allowed")
    assert "SessionId" in reply.description


def test_cancelled_messages_are_gone(service: Service) -> None:
    numbers = numbers_of(schedule(service, *(scheduled(text) for text in "abc")))
    reply = cancel(service, *numbers[:2])
    assert reply.said == (200, None)
    assert reply.body == {}
    assert service.peek().texts == ["c"]


def test_one_number_that_is_not_there_and_nothing_is_cancelled(service: Service) -> None:
    numbers = numbers_of(schedule(service, scheduled("a")))
    reply = cancel(service, *numbers, 77)
    assert reply.said == (404, "com.microsoft:message-not-found")
    assert "77" in reply.description
    assert service.peek().texts == ["a"]


def test_what_has_been_enqueued_can_no_longer_be_cancelled(service: Service) -> None:
    numbers = numbers_of(schedule(service, scheduled("a")))
    service.broker.pass_time(HOUR)
    assert cancel(service, *numbers).said == (404, "com.microsoft:message-not-found")


def test_a_topic_schedules_and_cancels(service: Service) -> None:
    numbers = numbers_of(schedule(service, scheduled("a"), scheduled("b"), at="t"))
    assert cancel(service, numbers[0], at="t").status == 200
    service.broker.pass_time(HOUR)
    assert service.peek(at="t/Subscriptions/all").texts == service.peek(at="t/Subscriptions/other").texts == ["b"]


@pytest.mark.parametrize("at", ["t/Subscriptions/all", "q/$DeadLetterQueue"])
def test_what_cannot_be_sent_to_schedules_nothing(service: Service, at: str) -> None:
    for reply in (schedule(service, scheduled("a"), at=at), cancel(service, 1, at=at)):
        assert reply.said == (400, "amqp:not-allowed")
        assert "send to" in reply.description
    assert service.peek(at=at).status == 204


def test_a_message_that_is_too_large_is_refused_and_the_others_with_it(service: Service) -> None:
    reply = schedule(service, scheduled("a"), scheduled("x" * 3000), at="small")
    assert reply.said == (403, "amqp:link:message-size-exceeded")
    assert "2000" in reply.description
    assert service.peek(at="small").status == 204


def test_too_many_messages_exceed_a_limit(service: Service) -> None:
    assert schedule(service, *[scheduled("a")] * 4501).said == (403, "amqp:resource-limit-exceeded")


def test_no_messages_are_an_error(service: Service) -> None:
    assert schedule(service).said == (400, "com.microsoft:argument-error")


def test_a_message_without_its_time_is_an_error(service: Service) -> None:
    reply = schedule(service, {"message-id": "1", "message": bytes(Message(body="x").encode())})
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "x-opt-scheduled-enqueue-time" in reply.description


def test_bytes_that_are_no_message_are_an_error_that_says_which(service: Service) -> None:
    reply = schedule(service, scheduled("a"), {"message-id": "1", "message": b"\x01\x02"})
    assert reply.said == (400, "amqp:decode-error")
    assert "`messages`[1]" in reply.description
    assert service.peek().status == 204


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("text", "`messages`[0] of the body of schedule-message must be an AMQP map"),
        ({"message-id": "1"}, "`message` (AMQP binary) is missing"),
        ({"message-id": "1", "message": "text"}, "`message` in `messages`[0] of the body of schedule-message must be an AMQP binary"),
        ({"message-id": int32(1), "message": b""}, "`message-id` in `messages`[0]"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be_is_named(service: Service, entry: Any, named: str) -> None:
    reply = schedule(service, entry)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert named in reply.description


@pytest.mark.parametrize("key", ["message-id", "session-id", "partition-key", "via-partition-key"])
def test_an_id_that_is_too_long_is_out_of_range(service: Service, key: str) -> None:
    reply = schedule(service, {**scheduled("a"), key: "x" * 129})
    assert reply.said == (400, "com.microsoft:argument-out-of-range")
    assert key in reply.description


# Transactions


def test_a_transaction_schedules_when_it_is_committed(service: Service) -> None:
    work = service.broker.namespace.begin()
    numbers = numbers_of(schedule(service, scheduled("a"), work=work))
    assert service.peek().status == 204
    work.commit()
    assert service.peek().numbers == numbers


def test_a_transaction_that_is_rolled_back_schedules_nothing(service: Service) -> None:
    work = service.broker.namespace.begin()
    assert schedule(service, scheduled("a"), work=work).status == 200
    work.rollback()
    assert service.peek().status == 204


def test_a_transaction_settles_when_it_is_committed(service: Service) -> None:
    tokens = service.locked("a", "b")
    work = service.broker.namespace.begin()
    body = {"disposition-status": "completed", "lock-tokens": uuids(*tokens)}
    assert service.ask("update-disposition", body, work=work).status == 200
    assert service.broker.q.counts() == Counts(2, 0, 0, 2)
    # Nobody else can settle them meanwhile.
    assert service.ask("update-disposition", body).said == (410, "com.microsoft:message-lock-lost")
    work.commit()
    assert service.peek().status == 204


def test_a_transaction_that_is_rolled_back_leaves_the_lock_to_its_holder(service: Service) -> None:
    tokens = service.locked("a")
    work = service.broker.namespace.begin()
    body = {"disposition-status": "completed", "lock-tokens": uuids(*tokens)}
    service.ask("update-disposition", body, work=work)
    work.rollback()
    assert service.ask("update-disposition", body).status == 200


def test_a_settlement_whose_lock_ended_before_the_commit_takes_the_rest_with_it(service: Service) -> None:
    tokens = service.locked("a")
    work = service.broker.namespace.begin()
    service.ask("update-disposition", {"disposition-status": "completed", "lock-tokens": uuids(*tokens)}, work=work)
    schedule(service, scheduled("b"), work=work)
    service.broker.pass_time(LOCK_DURATION)
    with pytest.raises(ServiceBusFault, match="rolled back"):
        work.commit()
    assert service.peek().texts == ["a"]


def test_a_refusal_within_a_transaction_is_an_answer_too(service: Service) -> None:
    work = service.broker.namespace.begin()
    assert schedule(service, scheduled("x" * 3000), at="small", work=work).said == (403, "amqp:link:message-size-exceeded")
    entries = [scheduled(str(index)) for index in range(MAX_TRANSACTION_MESSAGES + 1)]
    assert schedule(service, *entries, work=work).said == (403, "amqp:resource-limit-exceeded")
    work.commit()
    assert service.peek().status == 204


def test_a_transaction_that_has_ended_takes_nothing_more(service: Service) -> None:
    work = service.broker.namespace.begin()
    work.commit()
    assert schedule(service, scheduled("a"), work=work).said == (404, "amqp:transaction:unknown-id")
    assert service.peek().status == 204


def test_other_operations_cannot_be_part_of_a_transaction(service: Service) -> None:
    numbers = numbers_of(schedule(service, scheduled("a")))
    reply = cancel(service, *numbers, work=service.broker.namespace.begin())
    assert reply.said == (400, "amqp:not-allowed")
    assert "update-disposition and schedule-message can" in reply.description
    assert service.peek().texts == ["a"]


def test_a_time_that_is_past_is_now(service: Service) -> None:
    schedule(service, scheduled("a", at=START - 1))
    assert len(service.broker.q.receive("r", 1)) == 1
