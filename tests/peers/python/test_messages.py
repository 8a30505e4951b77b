"""azure-servicebus sends, peeks, receives and settles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
)

from spark_sb_mgmt.emulator import Emulator
from tests.peers.python.traffic import nothing_comes, one, receive, send, texts


def test_every_property_of_a_message_arrives_as_it_was_sent(client: ServiceBusClient) -> None:
    properties = {"text": "ü", "whole": 7, "real": 1.5, "yes": True, "id": uuid4(), b"bytes": b"are text"}
    sent = ServiceBusMessage(
        b"\x00body\xff",
        application_properties=properties,
        message_id="id-1",
        correlation_id="correlation",
        content_type="application/json",
        subject="order",
        to="somewhere",
        reply_to="back",
        reply_to_session_id="back-session",
        partition_key="key",
        time_to_live=timedelta(hours=1),
    )
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver("orders") as receiver:
        received = one(receiver)
        assert b"".join(received.body) == b"\x00body\xff"
        assert received.application_properties == {
            # The SDK gives text as bytes, and sends bytes as text.
            key if isinstance(key, bytes) else key.encode(): value.encode() if isinstance(value, str) else value
            for key, value in properties.items()
        }
        for name in ("message_id", "correlation_id", "content_type", "subject", "to", "reply_to", "reply_to_session_id", "partition_key"):
            assert getattr(received, name) == getattr(sent, name)
        assert received.time_to_live == timedelta(hours=1)
        assert received.sequence_number == 1
        assert received.delivery_count == 0
        assert received.expires_at_utc == received.enqueued_time_utc + timedelta(hours=1)
        assert received.locked_until_utc == received.enqueued_time_utc + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [({"value_body": {"a": [1, 2]}}, AmqpMessageBodyType.VALUE), ({"sequence_body": [[1, "b"]]}, AmqpMessageBodyType.SEQUENCE)],
)
def test_bodies_that_are_values_and_sequences(client: ServiceBusClient, body: dict[str, object], kind: AmqpMessageBodyType) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(AmqpAnnotatedMessage(**body))
    with client.get_queue_receiver("orders") as receiver:
        assert one(receiver).body_type == kind


def test_a_batch_is_its_messages_in_order(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        batch = sender.create_message_batch()
        for number in range(20):
            batch.add_message(ServiceBusMessage(str(number)))
        sender.send_messages(batch)
        sender.send_messages([ServiceBusMessage("20"), ServiceBusMessage("21")])
    with client.get_queue_receiver("orders") as receiver:
        assert texts(receive(receiver, 22)) == [str(number) for number in range(22)]


def test_peek_shows_all_states_and_starts_where_it_is_told(client: ServiceBusClient) -> None:
    send(client, "orders", "deferred", "locked", "active")
    with client.get_queue_sender("orders") as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), datetime.now(timezone.utc) + timedelta(hours=1))
    with client.get_queue_receiver("orders") as receiver:
        first, _ = receive(receiver, 2)
        receiver.defer_message(first)
        # Where it is not told, the SDK starts behind what it has received.
        peeked = receiver.peek_messages(10, sequence_number=1)
        assert [(message.sequence_number, str(message), message.state) for message in peeked] == [
            (1, "deferred", ServiceBusMessageState.DEFERRED),
            (2, "locked", ServiceBusMessageState.ACTIVE),
            (3, "active", ServiceBusMessageState.ACTIVE),
            (4, "scheduled", ServiceBusMessageState.SCHEDULED),
        ]
        assert texts(receiver.peek_messages(2, sequence_number=3)) == ["active", "scheduled"]
        assert receiver.peek_messages(1, sequence_number=5) == []


def test_a_scheduled_message_comes_in_its_time_and_a_cancelled_one_never(emulator: Emulator, client: ServiceBusClient) -> None:
    when = datetime.now(timezone.utc) + timedelta(minutes=10)
    with client.get_queue_sender("orders") as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("stays"), ServiceBusMessage("goes")], when)
        sender.send_messages(ServiceBusMessage("by itself", scheduled_enqueue_time_utc=when))
        assert len(numbers) == 2
        sender.cancel_scheduled_messages(numbers[1])
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[1])
    with client.get_queue_receiver("orders") as receiver:
        assert nothing_comes(receiver)
        emulator.advance(700)
        received = receive(receiver, 2)
        assert sorted(texts(received)) == ["by itself", "stays"]
        assert all(message.scheduled_enqueue_time_utc is not None for message in received)


def test_receive_and_delete_leaves_nothing(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "orders", "a", "b")
    with client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert texts(receive(receiver, 2)) == ["a", "b"]
    assert emulator.counts("orders") == {"active": 0, "deferred": 0, "scheduled": 0, "locked": 0}


def test_abandon_redelivers_until_the_count_is_full_then_dead_letters_with_the_reason(client: ServiceBusClient) -> None:
    send(client, "orders", "poison")
    with client.get_queue_receiver("orders") as receiver:
        for count in range(3):
            message = one(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        assert nothing_comes(receiver)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = one(dead)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        dead.complete_message(message)


def test_dead_letter_with_reason_and_description_keeps_the_number(client: ServiceBusClient) -> None:
    send(client, "orders", "bad", message_id="id")
    with client.get_queue_receiver("orders") as receiver:
        receiver.dead_letter_message(one(receiver), reason="broken", error_description="no amount")
    with client.get_queue_receiver("orders", sub_queue="deadletter") as dead:
        message = one(dead)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("broken", "no amount")
        assert (message.message_id, message.sequence_number) == ("id", 1)
        with pytest.raises(Exception, match="dead"):
            dead.dead_letter_message(message)


@pytest.mark.parametrize("way", ["complete", "abandon", "dead_letter", "defer"])
def test_a_deferred_message_is_received_by_its_number_and_settled_every_way(emulator: Emulator, client: ServiceBusClient, way: str) -> None:
    send(client, "orders", "later")
    with client.get_queue_receiver("orders") as receiver:
        message = one(receiver)
        receiver.defer_message(message)
        assert nothing_comes(receiver)
        (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
        assert (str(deferred), deferred.state) == ("later", ServiceBusMessageState.DEFERRED)
        getattr(receiver, f"{way}_message")(deferred)
    counts = emulator.counts("orders")
    dead = emulator.counts("orders/$DeadLetterQueue")["active"]
    # Abandoned, it is deferred still.
    expected = {"complete": (0, 0), "abandon": (1, 0), "dead_letter": (0, 1), "defer": (1, 0)}
    assert (counts["deferred"], dead, counts["locked"]) == (*expected[way], 0)


def test_deferred_messages_come_all_or_none(client: ServiceBusClient) -> None:
    send(client, "orders", "a", "b")
    with client.get_queue_receiver("orders") as receiver:
        for message in receive(receiver, 2):
            receiver.defer_message(message)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([1, 2, 99])
        assert texts(receiver.receive_deferred_messages([1, 2])) == ["a", "b"]


def test_a_lock_that_is_renewed_lasts_and_one_that_is_not_is_lost(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "orders", "a")
    with client.get_queue_receiver("orders") as receiver:
        message = one(receiver)
        emulator.advance(40)
        before = message.locked_until_utc
        assert receiver.renew_message_lock(message) == before + timedelta(seconds=40)
        emulator.advance(50)
        emulator.advance(20)
        again = one(receiver)
        assert again.delivery_count == 1
        # The SDK has its own clock and does not know; the service says it.
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        receiver.complete_message(again)


def test_many_threads_may_use_one_receiver_as_the_lock_renewer_does(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "orders", *map(str, range(20)))
    with client.get_queue_receiver("orders") as receiver, ThreadPoolExecutor(10) as threads:
        messages = receive(receiver, 20)
        emulator.advance(40)
        before = messages[0].locked_until_utc
        assert set(threads.map(receiver.renew_message_lock, messages)) == {before + timedelta(seconds=40)}
        peeked = threads.map(lambda message: receiver.peek_messages(1, sequence_number=message.sequence_number), messages)
        assert [texts(page) for page in peeked] == [[str(message)] for message in messages]


def test_time_to_live_ends_in_the_dead_letter_queue_where_that_is_wished(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "short", "old")
    send(client, "orders", "gone", time_to_live=timedelta(seconds=5))
    emulator.advance(11)
    assert emulator.counts("orders")["active"] == emulator.counts("orders/$DeadLetterQueue")["active"] == 0
    with client.get_queue_receiver("short", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert one(dead).dead_letter_reason == "TTLExpiredException"


def test_a_second_message_with_the_same_id_is_dropped_within_the_window(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "once", "first", "second", message_id="same")
    assert emulator.counts("once")["active"] == 1
    emulator.advance(301)
    send(client, "once", "third", message_id="same")
    with client.get_queue_receiver("once") as receiver:
        assert texts(receive(receiver, 2)) == ["first", "third"]


def test_forwarding_of_messages_and_of_dead_letters(client: ServiceBusClient) -> None:
    send(client, "inbox", "forwarded")
    send(client, "fragile", "broken")
    with client.get_queue_receiver("orders") as receiver:
        assert str(one(receiver)) == "forwarded"
    with client.get_queue_receiver("fragile") as receiver:
        receiver.abandon_message(one(receiver))
    with client.get_queue_receiver("failed") as receiver:
        message = one(receiver)
        assert (str(message), message.dead_letter_source) == ("broken", "fragile")


def test_a_partitioned_queue_has_its_partition_in_the_number(client: ServiceBusClient) -> None:
    for key in ("a", "b", "c", "d", "e"):
        send(client, "partitioned", f"{key}1", f"{key}2", partition_key=key)
    with client.get_queue_receiver("partitioned") as receiver:
        peeked = receiver.peek_messages(20)
        assert len(peeked) == 10
        by_key: dict[str, set[int]] = {}
        for message in peeked:
            by_key.setdefault(str(message.partition_key), set()).add(message.sequence_number >> 48)
        assert all(len(partitions) == 1 for partitions in by_key.values())
        assert len(set().union(*by_key.values())) > 1


def test_names_with_slashes_and_in_any_case(client: ServiceBusClient) -> None:
    send(client, "SITE1/orders", "a")
    with client.get_queue_receiver("site1/ORDERS") as receiver:
        assert str(one(receiver)) == "a"
