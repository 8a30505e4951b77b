"""azure-servicebus with session entities."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, SessionCannotBeLockedError, SessionLockLostError

from spark_sb_mgmt.emulator import Emulator
from tests.peers.python.conftest import CONFIG
from tests.peers.python.traffic import ONCE, nothing_comes, one, receive, send, texts


def test_messages_of_a_session_come_in_order_to_who_has_it(client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", "a2", session_id="a")
    send(client, "sessions", "b1", session_id="b")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert receiver.session.session_id == "a"
        messages = receive(receiver, 2)
        assert texts(messages) == ["a1", "a2"]
        for message in messages:
            assert message.session_id == "a"
            receiver.complete_message(message)
        assert nothing_comes(receiver)


def test_the_next_available_session_and_none_when_all_are_taken(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", session_id="a")
    with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as first:
        assert first.session.session_id == "a"
        with pytest.raises(SessionCannotBeLockedError), client.get_queue_receiver("sessions", session_id="a") as second:
            second.receive_messages(1, max_wait_time=1)


def test_waiting_for_a_session_ends_after_the_time_that_the_client_asked_for() -> None:
    # On the machine's clock: the SDK says how long it waits, and the service must say that it is over.
    with Emulator.start(CONFIG) as emulator, ServiceBusClient.from_connection_string(emulator.connection_string, **ONCE) as client:
        receiver = client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
        with pytest.raises(OperationTimeoutError), receiver:
            receiver.receive_messages(1, max_wait_time=1)


def test_the_state_of_a_session_is_kept_read_and_cleared(client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", session_id="a")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00half way\xff")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert receiver.session.get_state() == b"\x00half way\xff"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_a_session_lock_that_is_renewed_lasts_and_one_that_is_not_is_lost(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", session_id="a")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        before = receiver.session.locked_until_utc
        emulator.advance(40)
        assert receiver.session.renew_lock() == before + timedelta(seconds=40)
        message = one(receiver)
        emulator.advance(61)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
        with pytest.raises(SessionLockLostError):
            receiver.session.get_state()
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert one(receiver).delivery_count == 1


def test_a_session_is_free_when_its_receiver_goes_and_nothing_counts(client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", session_id="a")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        one(receiver)
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert one(receiver).delivery_count == 0


def test_peek_and_deferral_stay_within_the_session(client: ServiceBusClient) -> None:
    send(client, "sessions", "a1", "a2", session_id="a")
    send(client, "sessions", "b1", session_id="b")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert texts(receiver.peek_messages(10)) == ["a1", "a2"]
        message = one(receiver)
        receiver.defer_message(message)
        (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
        receiver.complete_message(deferred)
        assert texts(receiver.peek_messages(10)) == ["a2"]


@pytest.mark.parametrize(("way", "left"), [("complete", 0), ("abandon", 1), ("dead_letter", 0), ("defer", 1)])
def test_messages_of_a_session_are_settled_every_way(emulator: Emulator, client: ServiceBusClient, way: str, left: int) -> None:
    send(client, "sessions", "a1", session_id="a")
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        getattr(receiver, f"{way}_message")(one(receiver))
    counts = emulator.counts("sessions")
    assert (counts["active"] + counts["deferred"], counts["locked"]) == (left, 0)
    assert emulator.counts("sessions/$DeadLetterQueue")["active"] == (1 if way == "dead_letter" else 0)


def test_sessions_are_listed_over_several_pages(client: ServiceBusClient) -> None:
    names = [f"session-{number:03d}" for number in range(205)]
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages([ServiceBusMessage("x", session_id=name) for name in names])
    assert sorted(client.list_queue_sessions("sessions")) == names
    assert list(client.list_subscription_sessions("events", "by-session")) == []


def test_sessions_whose_state_was_set_since_are_listed_and_those_with_messages_only_are_not(
    emulator: Emulator, client: ServiceBusClient
) -> None:
    send(client, "sessions", "x", session_id="with messages only")
    begin = datetime.now(timezone.utc)
    for name in ("early", "late"):
        with client.get_queue_receiver("sessions", session_id=name) as receiver:
            receiver.session.set_state(b"state")
        emulator.advance(600)
    assert sorted(client.list_queue_sessions("sessions")) == ["early", "late", "with messages only"]
    assert list(client.list_queue_sessions("sessions", state_updated_after=begin + timedelta(seconds=300))) == ["late"]
    assert list(client.list_queue_sessions("sessions", state_updated_after=begin + timedelta(seconds=900))) == []


def test_messages_without_a_session_are_refused_by_a_session_queue(client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender, pytest.raises(ServiceBusError, match="SessionId"):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_receiver_without_session_is_refused_by_a_session_queue(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match="session"), client.get_queue_receiver("sessions") as receiver:
        receiver.receive_messages(1, max_wait_time=1)


def test_a_session_receiver_is_refused_by_a_queue_without_sessions(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match="session"), client.get_queue_receiver("orders", session_id="a") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
