"""What a person uses: `ManagementClient`, the entities it opens, what their methods give and take, and the root of what they raise."""

from __future__ import annotations

from spark_sb_mgmt.client.entity import EntityClient
from spark_sb_mgmt.client.management import ManagementClient
from spark_sb_mgmt.client.peeking import PeekPage
from spark_sb_mgmt.client.transaction import Transaction
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.operations.message import Messages, ServiceBusMessage
from spark_sb_mgmt.operations.schedule import ScheduledMessage

__all__ = [
    "EntityClient",
    "ManagementClient",
    "Messages",
    "PeekPage",
    "SbMgmtError",
    "ScheduledMessage",
    "ServiceBusMessage",
    "Transaction",
]
