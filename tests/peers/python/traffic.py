"""Short ways to say what nearly every test does with the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

# Its reads wait for so long even when nothing is to come, twice for every link that it opens.
QUICK: Final[Mapping[str, Any]] = {"socket_timeout": 0.02}
ONCE: Final[Mapping[str, Any]] = {"retry_total": 0, **QUICK}
# The SDK's own retries, and soon.
PATIENT: Final[Mapping[str, Any]] = {"retry_total": 5, "retry_backoff_factor": 0.01, **QUICK}
# Seconds that a receive may take before it is taken for empty; only those that are meant to be empty take so long.
WAIT = 5
EMPTY = 0.2


def send(client: ServiceBusClient, queue: str, *bodies: str, **properties: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, **properties))


def texts(messages: Any) -> list[str]:
    return [str(message) for message in messages]


def receive(receiver: Any, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Exactly so many, from as many calls as that takes."""
    received: list[ServiceBusReceivedMessage] = []
    while len(received) < count:
        more = receiver.receive_messages(count - len(received), max_wait_time=WAIT)
        assert more, f"{count} messages were expected, {len(received)} came"
        received += more
    return received


def one(receiver: Any) -> ServiceBusReceivedMessage:
    (message,) = receive(receiver)
    return message


def nothing_comes(receiver: Any) -> bool:
    return receiver.receive_messages(1, max_wait_time=EMPTY) == []
