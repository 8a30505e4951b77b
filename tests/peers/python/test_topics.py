"""azure-servicebus with topics: filters and actions as the configuration has them (this SDK changes rules over HTTP only)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from spark_sb_mgmt.emulator import Emulator
from tests.peers.python.traffic import nothing_comes, one, receive, texts


def publish(client: ServiceBusClient, *messages: ServiceBusMessage) -> None:
    with client.get_topic_sender("events") as sender:
        sender.send_messages(list(messages))


def subscriber(client: ServiceBusClient, name: str, **options: Any) -> Any:
    return client.get_subscription_receiver("events", name, **options)


def test_each_subscription_gets_its_own_copy(client: ServiceBusClient) -> None:
    publish(client, ServiceBusMessage("a", correlation_id="eu", application_properties={"region": "west"}))
    for name in ("all", "europe"):
        with subscriber(client, name) as receiver:
            message = one(receiver)
            assert str(message) == "a"
            receiver.complete_message(message)


def test_an_sql_filter_chooses_and_its_action_changes(client: ServiceBusClient) -> None:
    publish(
        client,
        ServiceBusMessage("small", subject="order", application_properties={"amount": 5}),
        ServiceBusMessage("large", subject="order", application_properties={"amount": 100, "secret": "x"}),
        ServiceBusMessage("other", subject="refund", application_properties={"amount": 500}),
        ServiceBusMessage("none", subject="order"),
    )
    with subscriber(client, "large") as receiver:
        message = one(receiver)
        assert str(message) == "large"
        assert message.application_properties[b"priority"] == b"high"
        assert b"secret" not in message.application_properties
        assert nothing_comes(receiver)
    with subscriber(client, "all") as receiver:
        messages = receive(receiver, 4)
        assert texts(messages) == ["small", "large", "other", "none"]
        assert messages[1].application_properties[b"secret"] == b"x"


def test_a_correlation_filter_needs_all_that_it_names(client: ServiceBusClient) -> None:
    publish(
        client,
        ServiceBusMessage("both", correlation_id="eu", application_properties={"region": "west"}),
        ServiceBusMessage("one", correlation_id="eu"),
        ServiceBusMessage("wrong", correlation_id="eu", application_properties={"region": "east"}),
    )
    with subscriber(client, "europe") as receiver:
        assert str(one(receiver)) == "both"
        assert nothing_comes(receiver)


def test_what_is_scheduled_stands_at_the_topic_until_its_time(emulator: Emulator, client: ServiceBusClient) -> None:
    with client.get_topic_sender("events") as sender:
        (number, cancelled) = sender.schedule_messages(
            [ServiceBusMessage("later"), ServiceBusMessage("never")], datetime.now(timezone.utc) + timedelta(minutes=5)
        )
        assert number != cancelled
        sender.cancel_scheduled_messages(cancelled)
    assert emulator.counts("events")["scheduled"] == 1
    with subscriber(client, "all") as receiver:
        assert receiver.peek_messages(1) == []
        emulator.advance(301)
        assert str(one(receiver)) == "later"


def test_the_dead_letter_queue_of_a_subscription_is_its_own(client: ServiceBusClient) -> None:
    publish(client, ServiceBusMessage("a"))
    with subscriber(client, "all") as receiver:
        receiver.dead_letter_message(one(receiver), reason="why")
    with subscriber(client, "all", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert one(dead).dead_letter_reason == "why"


def test_a_topic_cannot_be_received_from_nor_a_subscription_be_sent_to(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match="topic"), client.get_queue_receiver("events") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
    with pytest.raises(ServiceBusError, match="topic"), client.get_queue_sender("events/Subscriptions/all") as sender:
        sender.send_messages(ServiceBusMessage("x"))
