"""Sessions: one holder, their own order, their own state."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.emulator.entities import (
    ABANDONED,
    ALL_SESSIONS,
    COMPLETED,
    DEFERED,
    MessagesAvailable,
    ServiceBusFault,
    SessionAvailable,
    SessionLockLost,
)
from tests.emulator.entities.broker import MINUTE, SECOND, START, Broker, bodies, tokens


@pytest.fixture
def broker() -> Broker:
    return Broker(requires_session=True)


def test_a_message_without_session_id_is_refused(broker: Broker) -> None:
    with pytest.raises(ServiceBusFault) as caught:
        broker.send("a")
    assert (caught.value.status, caught.value.condition) == (400, "amqp:not-allowed")


def test_a_receiver_without_session_is_refused(broker: Broker) -> None:
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        broker.q.receive("link", 1)


def test_a_session_gives_only_its_own_messages_in_order(broker: Broker) -> None:
    for body, session in (("a1", "a"), ("b1", "b"), ("a2", "a")):
        broker.send(body, session=session)
    lock = broker.q.accept_session("link", "a")
    assert lock is not None
    assert lock.locked_until == START + MINUTE
    assert bodies(broker.q.receive("link", 5, session_id="a")) == ["a1", "a2"]


def test_the_next_available_session_is_the_one_that_waits_longest(broker: Broker) -> None:
    broker.send("b1", session="b")
    broker.send("a1", session="a")
    accepted = [broker.q.accept_session(link, None) for link in ("one", "two", "three")]
    assert [lock and lock.session_id for lock in accepted] == ["b", "a", None]


def test_a_waiting_acceptor_is_told_when_a_session_has_messages(broker: Broker) -> None:
    assert broker.q.accept_session("link", None) is None
    broker.events()
    broker.send("a1", session="a")
    assert SessionAvailable("q") in broker.events()
    assert broker.q.accept_session("link", None) is not None


def test_a_session_without_messages_can_be_accepted_by_name_and_is_told_of_arrivals(broker: Broker) -> None:
    assert broker.q.accept_session("link", "a") is not None
    assert broker.q.receive("link", 1, session_id="a") == []
    broker.events()
    broker.send("a1", session="a")
    assert broker.events() == [MessagesAvailable("q", "a", "link")]


def test_a_held_session_cannot_be_accepted_by_another(broker: Broker) -> None:
    broker.q.accept_session("one", "a")
    with pytest.raises(ServiceBusFault) as caught:
        broker.q.accept_session("two", "a")
    assert (caught.value.status, caught.value.condition) == (410, "com.microsoft:session-cannot-be-locked")


def test_a_closed_session_gives_its_locked_messages_to_the_next_holder_uncounted(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.q.accept_session("one", "a")
    broker.q.receive("one", 1, session_id="a")
    broker.q.release_session("one", "a")
    broker.q.accept_session("two", None)
    assert [each.delivery_count for each in broker.q.receive("two", 1, session_id="a")] == [0]


def test_a_session_lock_that_expires_is_told_and_counts_what_was_locked(broker: Broker) -> None:
    broker.send("a1", "a2", session="a")
    broker.q.accept_session("one", "a")
    token = tokens(broker.q.receive("one", 1, session_id="a"))
    broker.pass_time(MINUTE)
    assert SessionLockLost("q", "a", "one") in broker.events()
    for call in (
        lambda: broker.q.settle(token, COMPLETED),
        lambda: broker.q.receive("one", 1, session_id="a"),
        lambda: broker.q.renew_session_lock("a"),
    ):
        with pytest.raises(ServiceBusFault) as caught:
            call()
        assert (caught.value.status, caught.value.condition) == (410, "com.microsoft:session-lock-lost")
    broker.q.accept_session("two", None)
    assert [each.delivery_count for each in broker.q.receive("two", 2, session_id="a")] == [1, 0]


def test_renewing_a_session_lock_renews_its_messages(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.q.accept_session("one", "a")
    (locked,) = broker.q.receive("one", 1, session_id="a")
    broker.pass_time(50 * SECOND)
    assert broker.q.renew_session_lock("a", "one") == broker.now + MINUTE
    assert locked.locked_until == broker.now + MINUTE
    broker.pass_time(50 * SECOND)
    broker.q.settle(tokens([locked]), COMPLETED)


def test_a_message_lock_in_a_session_is_not_renewed_alone(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.q.accept_session("one", "a")
    with pytest.raises(ServiceBusFault, match="renew-session-lock"):
        broker.q.renew_locks(tokens(broker.q.receive("one", 1, session_id="a")))


def test_an_abandoned_message_keeps_its_place_in_the_session(broker: Broker) -> None:
    broker.send("a1", "a2", session="a")
    broker.q.accept_session("one", "a")
    broker.q.settle(tokens(broker.q.receive("one", 1, session_id="a")), ABANDONED)
    assert bodies(broker.q.receive("one", 2, session_id="a")) == ["a1", "a2"]


def test_the_holder_that_goes_frees_its_session(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.q.accept_session("gone", "a")
    broker.namespace.release_holder("gone", messages=False)
    assert broker.q.accept_session("other", "a") is not None


def test_deferred_messages_of_a_session_are_received_within_it(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.q.accept_session("one", "a")
    (message,) = broker.q.receive("one", 1, session_id="a")
    broker.q.settle(tokens([message]), DEFERED)
    with pytest.raises(ServiceBusFault, match="message-not-found"):
        broker.q.receive_by_sequence_number("one", [message.sequence_number], session_id="b")
    (found,) = broker.q.receive_by_sequence_number("one", [message.sequence_number], session_id="a")
    assert found.locked_until == START + MINUTE
    broker.q.settle(tokens([found]), COMPLETED)
    assert broker.q.peek(0, 1) == []


def test_peek_of_a_session_shows_only_its_messages(broker: Broker) -> None:
    broker.send("a1", session="a")
    broker.send("b1", session="b")
    broker.schedule("a2", after=MINUTE, session="a")
    assert bodies(broker.q.peek(0, 10, session_id="a")) == ["a1", "a2"]
    assert bodies(broker.q.peek(0, 10)) == ["a1", "b1", "a2"]
    assert broker.q.peek(0, 10, session_id="none") == []


def test_state_is_set_read_and_cleared(broker: Broker) -> None:
    assert broker.q.get_session_state("a") is None
    broker.q.set_session_state("a", b"state")
    assert broker.q.get_session_state("a") == b"state"
    broker.q.set_session_state("a", None)
    assert broker.q.get_session_state("a") is None


def test_state_survives_the_holder(broker: Broker) -> None:
    broker.q.accept_session("one", "a")
    broker.q.set_session_state("a", b"state", "one")
    broker.q.release_session("one", "a")
    assert broker.q.get_session_state("a") == b"state"


def test_who_names_itself_as_holder_must_be_it(broker: Broker) -> None:
    broker.q.accept_session("one", "a")
    with pytest.raises(ServiceBusFault, match="session-lock-lost"):
        broker.q.set_session_state("a", b"", "two")
    with pytest.raises(ServiceBusFault, match="session-lock-lost"):
        broker.q.get_session_state("a", "two")


def test_sessions_are_listed_all_with_messages_or_state_in_pages(broker: Broker) -> None:
    for session in ("c", "a", "b"):
        broker.send("x", session=session)
    broker.q.set_session_state("d", b"only state")
    broker.q.accept_session("link", "empty")
    assert broker.q.get_message_sessions(ALL_SESSIONS, 0, 100) == ["a", "b", "c", "d"]
    assert broker.q.get_message_sessions(ALL_SESSIONS, 1, 2) == ["b", "c"]
    assert broker.q.get_message_sessions(ALL_SESSIONS, 4, 2) == []


def test_sessions_updated_since_are_those_whose_state_was_set_after(broker: Broker) -> None:
    broker.send("x", session="no state")
    broker.q.set_session_state("old", b"1")
    broker.pass_time(SECOND)
    broker.q.set_session_state("new", b"2")
    assert broker.q.get_message_sessions(START, 0, 10) == ["new"]
    assert broker.q.get_message_sessions(START - 1, 0, 10) == ["new", "old"]
    assert broker.q.get_message_sessions(ALL_SESSIONS - 1, 0, 10) == []


def test_an_entity_without_sessions_refuses_session_operations() -> None:
    queue = Broker().q
    for call in (
        lambda: queue.accept_session("link", None),
        lambda: queue.get_session_state("a"),
        lambda: queue.renew_session_lock("a"),
        lambda: queue.get_message_sessions(ALL_SESSIONS, 0, 1),
        lambda: queue.peek(0, 1, session_id="a"),
    ):
        with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
            call()


def test_the_dead_letter_queue_of_a_session_entity_has_no_sessions(broker: Broker) -> None:
    broker.send("a", session="a", ttl=SECOND)
    assert not broker.dead.requires_session
    assert broker.dead.receive("link", 1) == []
