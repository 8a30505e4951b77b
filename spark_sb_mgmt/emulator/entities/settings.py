"""What an entity is configured to do: the properties of a queue, topic or subscription, in the units of the core.

All times are milliseconds; None where Service Bus says "never" or "none". Names are those of the official emulator's `Config.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.entities.rules import SubscriptionRule

DEFAULT_LOCK_DURATION = 60_000
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_DETECTION_WINDOW = 10 * 60_000
# The Standard tier's 256 KB (wire-facts.md section 4): what an SDK's "message too large" tests expect.
DEFAULT_MAX_MESSAGE_SIZE = 256 * 1024


@dataclass(frozen=True)
class QueueSettings:
    """A queue, or a subscription: what messages are received from."""

    lock_duration: int = DEFAULT_LOCK_DURATION
    max_delivery_count: int | None = DEFAULT_MAX_DELIVERY_COUNT
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    # Of a subscription only: what becomes of a message whose filter cannot be evaluated.
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    # None: no duplicate detection.
    duplicate_detection_window: int | None = None
    requires_session: bool = False
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    enable_partitioning: bool = False
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE


@dataclass(frozen=True)
class SubscriptionSettings:
    name: str
    queue: QueueSettings = field(default_factory=QueueSettings)
    # None: the default rule, which lets everything through.
    rules: tuple[SubscriptionRule, ...] | None = None


@dataclass(frozen=True)
class TopicSettings:
    default_message_time_to_live: int | None = None
    duplicate_detection_window: int | None = None
    enable_partitioning: bool = False
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    subscriptions: tuple[SubscriptionSettings, ...] = ()
