"""One emulator for each test, so that none sees another's messages; it starts in milliseconds. Its clock stands until the test moves it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp.client import AMQPClient

from spark_sb_mgmt.emulator import Emulator, ManualClock
from tests.peers.python.traffic import ONCE

CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "ns",
                "Queues": [
                    {"Name": "orders", "Properties": {"MaxDeliveryCount": 3, "LockDuration": "PT1M"}},
                    {"Name": "site1/Orders"},
                    {"Name": "sessions", "Properties": {"RequiresSession": True, "LockDuration": "PT1M"}},
                    {"Name": "partitioned", "Properties": {"EnablePartitioning": True}},
                    {
                        "Name": "once",
                        "Properties": {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5M"},
                    },
                    {"Name": "short", "Properties": {"DefaultMessageTimeToLive": "PT10S", "DeadLetteringOnMessageExpiration": True}},
                    {"Name": "inbox", "Properties": {"ForwardTo": "orders"}},
                    {"Name": "fragile", "Properties": {"MaxDeliveryCount": 1, "ForwardDeadLetteredMessagesTo": "failed"}},
                    {"Name": "failed"},
                ],
                "Topics": [
                    {
                        "Name": "events",
                        "Subscriptions": [
                            {"Name": "all"},
                            {"Name": "by-session", "Properties": {"RequiresSession": True}},
                            {
                                "Name": "large",
                                "Rules": [
                                    {
                                        "Name": "only-large",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "amount >= 100 AND sys.Label LIKE 'order%'"},
                                            "Action": {"SqlExpression": "SET priority = 'high'; REMOVE secret"},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "europe",
                                "Rules": [
                                    {
                                        "Name": "by-region",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"CorrelationId": "eu", "Properties": {"region": "west"}},
                                        },
                                    }
                                ],
                            },
                        ],
                    }
                ],
                "AuthorizationRules": [
                    {"KeyName": "RootManageSharedAccessKey", "PrimaryKey": "SAS_KEY_VALUE", "Rights": ["Listen", "Send", "Manage"]},
                    {"KeyName": "reader", "PrimaryKey": "reader-key", "Rights": ["Listen"]},
                ],
            }
        ]
    }
}


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sleeps half a second in all while it opens a link, and a second before its thread for heartbeats sees that it closes."""
    hasty = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, 0.001))})
    monkeypatch.setattr(_servicebus_sender, "time", hasty)
    monkeypatch.setattr(_servicebus_receiver, "time", hasty)
    # No test is long enough to need a heartbeat.
    monkeypatch.setattr(AMQPClient, "_keep_alive", lambda self: None)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    # From now: the SDK signs and checks expiry by the machine's clock.
    with Emulator.start(CONFIG, clock=ManualClock(int(time.time() * 1000))) as running:
        yield running


@pytest.fixture
def client(emulator: Emulator) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(emulator.connection_string, **ONCE) as connected:
        yield connected
