"""An emulator for each test, and the official SDK as the other party: it sends, receives and defers what the client is asked about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.emulator import Emulator, ManualClock

CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "orders", "Properties": {"LockDuration": "PT1M"}},
                    {"Name": "site1/orders"},
                    {"Name": "sessions", "Properties": {"RequiresSession": True}},
                    {"Name": "partitioned", "Properties": {"EnablePartitioning": True}},
                ],
                "Topics": [{"Name": "events", "Subscriptions": [{"Name": "audit"}]}],
                "AuthorizationRules": [
                    {"KeyName": "RootManageSharedAccessKey", "PrimaryKey": "SAS_KEY_VALUE", "Rights": ["Manage"]},
                    {"KeyName": "reader", "PrimaryKey": "reader-key", "Rights": ["Listen"]},
                ],
            }
        ]
    }
}
# Retries that take milliseconds.
SOON = RetryPolicy(max_retries=4, base_delay_s=0.001, max_delay_s=0.01)


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator.start(CONFIG) as started:
        yield started


@pytest.fixture
def stopped_clock() -> Iterator[Emulator]:
    """An emulator whose time only the test moves; it starts now, because the SDK looks at its own clock too."""
    with Emulator.start(CONFIG, clock=ManualClock(time.time_ns() // 1_000_000)) as started:
        yield started


@pytest.fixture
def client(emulator: Emulator) -> Iterator[ManagementClient]:
    with ManagementClient.from_connection_string(emulator.connection_string, retry=SOON) as opened:
        yield opened


@pytest.fixture
def orders(client: ManagementClient) -> Iterator[EntityClient]:
    with client.entity("orders") as opened:
        yield opened


class Sdk:
    """azure-servicebus against an emulator."""

    def __init__(self, connection_string: str) -> None:
        self._client = ServiceBusClient.from_connection_string(connection_string)
        # Kept: closing one takes the SDK a second.
        self._senders: dict[str, Any] = {}

    def __enter__(self) -> Sdk:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def send(self, entity: str, *bodies: bytes, **properties: Any) -> None:
        if entity not in self._senders:
            self._senders[entity] = self._client.get_queue_sender(entity)
        self._senders[entity].send_messages([ServiceBusMessage(body, **properties) for body in bodies])

    def send_to_topic(self, topic: str, *bodies: bytes) -> None:
        with self._client.get_topic_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])

    def receive(self, entity: str, count: int, then: Callable[[Any, Any], None], **options: Any) -> list[int]:
        """Receive messages and do something with each; their sequence numbers."""
        numbers: list[int] = []
        with self._client.get_queue_receiver(entity, max_wait_time=10, **options) as receiver:
            while len(numbers) < count:
                for message in receiver.receive_messages(count - len(numbers)):
                    numbers.append(message.sequence_number)
                    then(receiver, message)
        return numbers

    @contextmanager
    def holding(self, entity: str, session_id: str) -> Iterator[datetime]:
        """A receiver that has a session; until when."""
        with self._client.get_queue_receiver(entity, session_id=session_id) as receiver:
            yield receiver.session.locked_until_utc

    def defer(self, entity: str, count: int, **options: Any) -> list[int]:
        return self.receive(entity, count, lambda receiver, message: receiver.defer_message(message), **options)


@pytest.fixture
def sdk(emulator: Emulator) -> Iterator[Sdk]:
    with Sdk(emulator.connection_string) as opened:
        yield opened
