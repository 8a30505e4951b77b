"""An emulator for each test, with queues, sessions, a topic, and policies of every right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_sb_mgmt.emulator import Emulator, ManualClock

CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "q", "Properties": {"LockDuration": "PT1M"}},
                    {"Name": "other"},
                    {"Name": "site1/q"},
                    {"Name": "sessions", "Properties": {"RequiresSession": True, "LockDuration": "PT1M"}},
                    {"Name": "small", "Properties": {"MaxMessageSizeInKilobytes": 1}},
                    {"Name": "large", "Properties": {"MaxMessageSizeInKilobytes": 102400}},
                ],
                "Topics": [{"Name": "events", "Subscriptions": [{"Name": "audit"}]}],
                "AuthorizationRules": [
                    {"KeyName": "RootManageSharedAccessKey", "PrimaryKey": "SAS_KEY_VALUE", "Rights": ["Manage"]},
                    {"KeyName": "listener", "PrimaryKey": "listener-key", "Rights": ["Listen"]},
                    {"KeyName": "sender", "PrimaryKey": "sender-key", "Rights": ["Send"]},
                ],
            }
        ]
    }
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator.start(CONFIG) as started:
        yield started


@pytest.fixture
def stopped_clock() -> Iterator[Emulator]:
    """An emulator whose time only the test moves."""
    with Emulator.start(CONFIG, clock=ManualClock()) as started:
        yield started
