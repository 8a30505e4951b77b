"""Peek, receive by number, settle, renew and delete, over the management node."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import Array, Data, int32, symbol, timestamp, ubyte, uint

from spark_sb_mgmt.emulator.entities import MessageState
from tests.emulator.entities.broker import MINUTE, START, application_properties, bodies
from tests.emulator.management.service import LOCK_DURATION, MAX_BYTES, Service, annotation, longs, uuids


@pytest.fixture
def service() -> Service:
    return Service()


# peek-message


def test_peek_tells_messages_in_order_whatever_their_state(service: Service) -> None:
    service.broker.deferred("deferred")
    service.locked("locked")
    service.broker.send("active")
    service.broker.schedule("scheduled", after=MINUTE)
    reply = service.peek()
    assert reply.texts == ["deferred", "locked", "active", "scheduled"]
    assert reply.numbers == [1, 2, 3, 4]
    assert [annotation(message, "x-opt-message-state") for message in reply.messages] == [1, 0, 0, 2]
    assert reply.condition is None


def test_peek_starts_where_it_is_told_and_counts(service: Service) -> None:
    service.broker.send(*"abcde")
    assert service.peek(2, 2).texts == ["b", "c"]
    assert service.peek(-5, 1).texts == ["a"]


def test_peek_after_the_last_message_is_no_content(service: Service) -> None:
    service.broker.send("a")
    reply = service.peek(2)
    assert reply.said == (204, "com.microsoft:message-not-found")
    assert reply.body == {}


def test_an_entry_of_peek_is_a_map_with_the_message_alone(service: Service) -> None:
    service.locked("a")
    (entry,) = service.peek().body["messages"]
    assert list(entry) == ["message"]


def test_peek_of_one_session(service: Service) -> None:
    for session, text in (("x", "1"), ("y", "2"), ("x", "3")):
        service.broker.send(text, to="sessions", session=session)
    assert service.peek(at="sessions", body={"session-id": "x"}).texts == ["1", "3"]
    assert service.peek(at="sessions").texts == ["1", "2", "3"]
    assert service.peek(at="sessions", body={"session-id": None}).texts == ["1", "2", "3"]
    assert service.peek(at="sessions", body={"session-id": "z"}).status == 204


def test_peek_without_bodies_keeps_everything_else(service: Service) -> None:
    service.broker.send("some text", message_id="m-1", properties={"a": "b"})
    (message,) = service.peek(body={"omit-message-body": True}).messages
    assert (message.body, message.id, message.properties) == (None, "m-1", {"a": "b"})
    assert annotation(message, "x-opt-sequence-number") == 1
    assert service.peek(body={"omit-message-body": False}).texts == ["some text"]


def test_a_page_ends_before_it_is_too_large_and_the_next_goes_on(service: Service) -> None:
    service.broker.send(*(letter * 10_000 for letter in "abcdefgh"))
    texts, start, pages = [], 0, 0
    while (reply := service.peek(start, max_bytes=35_000)).status == 200:
        assert reply.size <= 35_000
        texts += reply.texts
        start = reply.numbers[-1] + 1
        pages += 1
    assert [text[0] for text in texts] == list("abcdefgh")
    assert pages == 3


@pytest.mark.parametrize("omit", [False, True])
def test_a_page_of_small_messages_is_not_too_large_either(service: Service, omit: bool) -> None:
    service.broker.send(*["x"] * 2000)
    reply = service.peek(count=2000, body={"omit-message-body": omit}, max_bytes=50_000)
    assert reply.size <= 50_000
    assert len(reply.messages) > 100


def test_a_message_that_is_larger_than_a_page_comes_alone(service: Service) -> None:
    service.broker.send("x" * 50_000, "y")
    assert service.peek(max_bytes=2000).texts == ["x" * 50_000]


def test_a_page_limit_caps_the_count(service: Service) -> None:
    service.broker.send(*"abc")
    assert service.peek(page_limit=1).texts == ["a"]
    assert service.peek(count=2, page_limit=5).texts == ["a", "b"]


@pytest.mark.parametrize("count", [0, -1])
def test_peek_of_no_messages_is_out_of_range(service: Service, count: int) -> None:
    assert service.peek(count=count).said == (400, "com.microsoft:argument-out-of-range")
    assert service.peek(count=count, page_limit=3).said == (400, "com.microsoft:argument-out-of-range")


def test_peek_of_a_session_where_there_are_none_is_not_allowed(service: Service) -> None:
    reply = service.peek(body={"session-id": "s"})
    assert reply.said == (400, "amqp:not-allowed")
    assert "'q' has no sessions" in reply.description


def test_the_dead_letter_queue_has_a_node_of_its_own(service: Service) -> None:
    tokens = service.locked("a")
    service.ask("update-disposition", {"disposition-status": "suspended", "lock-tokens": uuids(*tokens)})
    assert service.peek(at="q/$deadletterqueue/$management").texts == ["a"]


def test_scheduled_messages_of_a_topic_stand_at_the_topic(service: Service) -> None:
    service.broker.schedule("later", after=MINUTE, to="t")
    assert service.peek(at="t").texts == ["later"]
    assert service.peek(at="t/Subscriptions/all").status == 204
    service.broker.pass_time(MINUTE)
    assert service.peek(at="t").status == 204
    assert service.peek(at="t/Subscriptions/all").texts == ["later"]


# receive-by-sequence-number


def receive(service: Service, *numbers: int, mode: Any = None, at: str = "q", **body: Any) -> Any:
    given = {"sequence-numbers": longs(*numbers), "receiver-settle-mode": uint(1) if mode is None else mode, **body}
    return service.ask("receive-by-sequence-number", given, at=at)


def test_deferred_messages_are_received_with_a_lock_token_that_settles_them(service: Service) -> None:
    numbers = service.broker.deferred("a", "b")
    reply = receive(service, *reversed(numbers))
    assert reply.texts == ["b", "a"]
    tokens = [entry["lock-token"] for entry in reply.body["messages"]]
    assert {type(token) for token in tokens} == {UUID}
    assert [message.instructions for message in reply.messages] == [{symbol("x-opt-lock-token"): token} for token in tokens]
    assert annotation(reply.messages[0], "x-opt-locked-until") == START + LOCK_DURATION
    done = service.ask("update-disposition", {"disposition-status": "completed", "lock-tokens": uuids(*tokens)})
    assert done.said == (200, None)
    assert service.peek().status == 204


def test_receive_and_delete_takes_messages_for_good_and_gives_no_token(service: Service) -> None:
    numbers = service.broker.deferred("a")
    reply = receive(service, *numbers, mode=uint(0))
    assert reply.texts == ["a"]
    assert list(reply.body["messages"][0]) == ["message"]
    assert service.peek().status == 204


def test_the_settle_mode_may_be_the_ubyte_of_the_documents(service: Service) -> None:
    assert receive(service, *service.broker.deferred("a"), mode=ubyte(1)).texts == ["a"]


def test_one_missing_message_and_none_is_received(service: Service) -> None:
    numbers = service.broker.deferred("a", "b")
    service.broker.send("active")
    for wrong in (99, 3):
        reply = receive(service, *numbers, wrong)
        assert reply.said == (404, "com.microsoft:message-not-found")
        assert str(wrong) in reply.description
    assert service.broker.q.counts().locked == 0
    assert receive(service, *numbers).texts == ["a", "b"]
    # Locked now, which is the same to whoever asks.
    assert receive(service, numbers[0]).said == (404, "com.microsoft:message-not-found")


def test_a_settle_mode_that_there_is_not_is_out_of_range(service: Service) -> None:
    reply = receive(service, *service.broker.deferred("a"), mode=uint(2))
    assert reply.said == (400, "com.microsoft:argument-out-of-range")
    assert service.broker.q.counts().deferred == 1


def test_numbers_of_several_partitions_are_refused(service: Service) -> None:
    reply = receive(service, 1 << 48 | 1, 2 << 48 | 1, at="partitioned")
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "partition" in reply.description


def test_deferred_messages_of_a_session(service: Service) -> None:
    service.held_session("s", "link")
    service.broker.send("a", to="sessions", session="s")
    queue = service.broker.queue("sessions")
    (token,) = [message.lock_token for message in queue.receive("link", 1, session_id="s")]
    service.ask("update-disposition", {"disposition-status": "defered", "lock-tokens": uuids(token), "session-id": "s"}, at="sessions")
    assert receive(service, 1, at="sessions", **{"session-id": "other"}).status == 404
    assert receive(service, 1, at="sessions", **{"session-id": "s"}).texts == ["a"]


# update-disposition


def settle(service: Service, status: str, *tokens: UUID, **body: Any) -> Any:
    keys = {key.replace("_", "-"): value for key, value in body.items()}
    return service.ask("update-disposition", {"disposition-status": status, "lock-tokens": uuids(*tokens), **keys})


def test_completed_messages_are_gone(service: Service) -> None:
    reply = settle(service, "completed", *service.locked("a", "b"))
    assert reply.said == (200, None)
    assert reply.body == {}
    assert service.peek().status == 204


def test_an_abandoned_message_comes_again_with_its_properties_changed(service: Service) -> None:
    tokens = service.locked("a", properties={"kept": "k", "changed": "c"})
    assert settle(service, "abandoned", *tokens, properties_to_modify={"changed": int32(2), "new": "n"}).status == 200
    (message,) = service.broker.q.receive("next", 1)
    assert message.delivery_count == 1
    assert application_properties(message) == {"kept": "k", "changed": 2, "new": "n"}


def test_a_deferred_message_waits_with_its_properties_changed(service: Service) -> None:
    assert settle(service, "defered", *service.locked("a"), properties_to_modify={"why": "later"}).status == 200
    (message,) = service.broker.q.peek(0, 1)
    assert message.state is MessageState.DEFERRED
    assert application_properties(message) == {"why": "later"}


def test_a_suspended_message_is_a_dead_letter_with_reason_and_description(service: Service) -> None:
    tokens = service.locked("a")
    reply = settle(
        service,
        "suspended",
        *tokens,
        deadletter_reason="broken",
        deadletter_description="Nobody can read it.",
        properties_to_modify={"seen": True},
    )
    assert reply.status == 200
    (message,) = service.peek(at="q/$DeadLetterQueue").messages
    assert message.properties == {"DeadLetterReason": "broken", "DeadLetterErrorDescription": "Nobody can read it.", "seen": True}


def test_a_suspended_message_needs_no_reason(service: Service) -> None:
    assert settle(service, "suspended", *service.locked("a"), deadletter_reason=None).status == 200
    assert service.peek(at="q/$DeadLetterQueue").messages[0].properties is None


@pytest.mark.parametrize("status", ["released", "deferred", "Completed", "renewed", ""])
def test_a_status_that_there_is_not_is_refused_with_those_that_there_are(service: Service, status: str) -> None:
    reply = settle(service, status, *service.locked("a"))
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "completed, abandoned, suspended, defered" in reply.description
    assert service.broker.q.counts().locked == 1


def test_a_lock_that_ended_is_lost_and_then_none_is_settled(service: Service) -> None:
    old = service.locked("a")
    service.broker.pass_time(LOCK_DURATION)
    service.broker.q.receive("other", 1)
    new = service.locked("b")
    reply = settle(service, "completed", *new, *old)
    assert reply.said == (410, "com.microsoft:message-lock-lost")
    assert str(old[0]) in reply.description
    assert service.peek().texts == ["a", "b"]


def test_a_lost_lock_of_a_session_entity_is_the_sessions(service: Service) -> None:
    body = {"disposition-status": "completed", "lock-tokens": uuids(UUID(int=3)), "session-id": "s"}
    assert service.ask("update-disposition", body, at="sessions").said == (410, "com.microsoft:session-lock-lost")


def test_a_dead_letter_is_not_dead_lettered_again(service: Service) -> None:
    settle(service, "suspended", *service.locked("a"))
    (token,) = [message.lock_token for message in service.broker.dead.receive("r", 1)]
    body = {"disposition-status": "suspended", "lock-tokens": uuids(token)}
    assert service.ask("update-disposition", body, at="q/$DeadLetterQueue").said == (400, "amqp:not-allowed")


def test_a_reason_that_is_too_long_is_out_of_range(service: Service) -> None:
    reply = settle(service, "suspended", *service.locked("a"), deadletter_reason="x" * 4097)
    assert reply.said == (400, "com.microsoft:argument-out-of-range")


@pytest.mark.parametrize("properties", [{"a": [1]}, {"a": {"b": "c"}}, {int32(1): "x"}], ids=["list", "map", "key"])
def test_properties_that_are_not_simple_are_refused(service: Service, properties: dict[Any, Any]) -> None:
    reply = settle(service, "abandoned", *service.locked("a"), properties_to_modify=properties)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "properties-to-modify" in reply.description
    assert service.broker.q.counts().locked == 1


# renew-lock


def test_locks_are_renewed_and_the_answer_says_until_when(service: Service) -> None:
    tokens = service.locked("a", "b")
    service.broker.pass_time(40_000)
    reply = service.ask("renew-lock", {"lock-tokens": uuids(*tokens)})
    expirations = reply.body["expirations"]
    # Go and .NET read an array of timestamps and nothing else.
    assert isinstance(expirations, Array)
    assert expirations.type == Data.TIMESTAMP
    assert [int(each) for each in expirations.elements] == [START + 40_000 + LOCK_DURATION] * 2
    service.broker.pass_time(40_000)
    assert settle(service, "completed", *tokens).status == 200


def test_a_lost_lock_is_not_renewed_nor_are_the_others(service: Service) -> None:
    tokens = service.locked("a")
    reply = service.ask("renew-lock", {"lock-tokens": uuids(*tokens, UUID(int=9))})
    assert reply.said == (410, "com.microsoft:message-lock-lost")
    service.broker.pass_time(LOCK_DURATION)
    assert service.broker.q.counts().locked == 0


def test_the_lock_of_a_message_in_a_session_is_the_sessions(service: Service) -> None:
    service.held_session("s", "link")
    service.broker.send("a", to="sessions", session="s")
    (token,) = [message.lock_token for message in service.broker.queue("sessions").receive("link", 1, session_id="s")]
    reply = service.ask("renew-lock", {"lock-tokens": uuids(token)}, at="sessions")
    assert reply.said == (400, "amqp:not-allowed")
    assert "renew-session-lock" in reply.description


# batch-delete-messages


def delete(service: Service, count: int = 100, *, at: str = "q", **body: Any) -> Any:
    keys = {key.replace("_", "-"): value for key, value in body.items()}
    return service.ask("batch-delete-messages", {"message-count": int32(count), **keys}, at=at)


def test_messages_that_were_enqueued_before_a_time_are_deleted_oldest_first(service: Service) -> None:
    service.broker.send(*"abc")
    service.broker.pass_time(MINUTE)
    service.broker.send("new")
    cutoff = timestamp(START + MINUTE)
    reply = delete(service, 2, enqueued_time_utc=cutoff)
    assert type(reply.body["message-count"]) is int32
    assert (reply.status, reply.body["message-count"]) == (200, 2)
    assert delete(service, enqueued_time_utc=cutoff).body == {"message-count": 1}
    assert service.peek().texts == ["new"]
    last = delete(service, enqueued_time_utc=cutoff)
    assert last.said == (204, "com.microsoft:message-not-found")
    assert last.body == {"message-count": 0}


def test_without_a_time_all_that_is_there_is_deleted_but_what_is_locked_or_scheduled(service: Service) -> None:
    service.locked("locked")
    service.broker.send("a")
    service.broker.schedule("scheduled", after=MINUTE)
    assert delete(service).body == {"message-count": 1}
    assert service.peek().texts == ["locked", "scheduled"]


def test_messages_of_one_session_are_deleted(service: Service) -> None:
    service.broker.send("1", to="sessions", session="x")
    service.broker.send("2", to="sessions", session="y")
    assert delete(service, at="sessions", session_id="x").body == {"message-count": 1}
    assert service.peek(at="sessions").texts == ["2"]


@pytest.mark.parametrize("count", [0, -1, 4001])
def test_a_count_that_is_not_allowed_is_out_of_range(service: Service, count: int) -> None:
    assert delete(service, count).said == (400, "com.microsoft:argument-out-of-range")


def test_partitioned_entities_cannot_be_purged(service: Service) -> None:
    assert delete(service, at="partitioned").said == (400, "amqp:not-allowed")


def test_all_of_it_stays_out_of_the_way_of_other_messages(service: Service) -> None:
    service.broker.send(*"abcdef")
    service.broker.q.receive("r", 2)
    service.peek(max_bytes=MAX_BYTES)
    assert bodies(service.broker.q.receive("r", 10)) == list("cdef")
