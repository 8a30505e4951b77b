"""An emulator with a filled queue, for drivers in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator

# More than the batch that a reader hands over at once.
COUNT = 6_000


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """Queue `orders` has so many messages, scheduled: they stand to be peeked as any others do."""
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": "orders"}]}]}}) as running:
        with ManagementClient.from_connection_string(running.connection_string) as client, client.entity("orders") as orders:
            for start in range(0, COUNT, 500):
                orders.schedule_message([ScheduledMessage(f"body {at}", tomorrow, str(at)) for at in range(start, start + 500)])
        yield running
