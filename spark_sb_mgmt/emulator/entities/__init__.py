"""The entities of the embedded Service Bus as a pure state machine: no sockets, no threads, and no time but the clock that it is given.

    namespace = Namespace(queues, topics, clock=clock, new_lock_token=uuid4, journal=store)
    queue = namespace.resolve_receiver("orders/$DeadLetterQueue")

Calls return values or raise `ServiceBusFault`; what others should learn of is taken by `namespace.take_events()`.
Times are milliseconds since the Unix epoch.
"""

from spark_sb_mgmt.emulator.entities.addresses import EntityAddress, parse_address
from spark_sb_mgmt.emulator.entities.changes import Change, Journal
from spark_sb_mgmt.emulator.entities.disposition import (
    ABANDONED,
    COMPLETED,
    DEFERED,
    RELEASED,
    Disposition,
    DispositionStatus,
)
from spark_sb_mgmt.emulator.entities.entity import Entity
from spark_sb_mgmt.emulator.entities.events import Event, Holder, MessagesAvailable, SessionAvailable, SessionLockLost
from spark_sb_mgmt.emulator.entities.faults import ServiceBusFault
from spark_sb_mgmt.emulator.entities.message import (
    IncomingMessage,
    MessageState,
    StoredMessage,
    encode_peeked,
    read_message,
    read_messages,
)
from spark_sb_mgmt.emulator.entities.namespace import AnyEntity, Namespace
from spark_sb_mgmt.emulator.entities.queue import ALL_SESSIONS, Counts, Queue, QueueKind, SessionLock
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError, SubscriptionRule
from spark_sb_mgmt.emulator.entities.settings import QueueSettings, SubscriptionSettings, TopicSettings
from spark_sb_mgmt.emulator.entities.topic import Subscription, Topic
from spark_sb_mgmt.emulator.entities.transaction import UnitOfWork

__all__ = [
    "ABANDONED",
    "ALL_SESSIONS",
    "COMPLETED",
    "DEFERED",
    "RELEASED",
    "AnyEntity",
    "Change",
    "Counts",
    "Disposition",
    "DispositionStatus",
    "Entity",
    "EntityAddress",
    "Event",
    "Holder",
    "IncomingMessage",
    "Journal",
    "MessageState",
    "MessagesAvailable",
    "Namespace",
    "Queue",
    "QueueKind",
    "QueueSettings",
    "RuleEvaluationError",
    "ServiceBusFault",
    "SessionAvailable",
    "SessionLock",
    "SessionLockLost",
    "StoredMessage",
    "Subscription",
    "SubscriptionRule",
    "SubscriptionSettings",
    "Topic",
    "TopicSettings",
    "UnitOfWork",
    "encode_peeked",
    "parse_address",
    "read_message",
    "read_messages",
]
