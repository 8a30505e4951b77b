"""Change records: every change of state that must survive a restart, as a value.

The one rule: records say what is so, not what was done. Applying the same record twice, or replaying a log whose older part was compacted
into its result, gives the same state. Locks and their holders are never recorded: after a restart nobody holds a lock.

The core hands each record to the `Journal` as it happens; whoever acknowledges to a client commits the journal first. All records
between two commits belong together (a message that moves between entities is one removal and one arrival).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.entities.message import StoredMessage
    from spark_sb_mgmt.emulator.entities.rules import SubscriptionRule


class MessageStored(NamedTuple):
    """The message stands in `entity` with all its bytes. The journal reads what it needs at once: the message goes on changing."""

    entity: str
    message: StoredMessage


class MessageUpdated(NamedTuple):
    """Only `state` and `delivery_count` of a stored message changed."""

    entity: str
    sequence_number: int
    state: int
    delivery_count: int


class MessageRemoved(NamedTuple):
    entity: str
    sequence_number: int


class NumbersIssued(NamedTuple):
    """Sequence numbers of `partition_id` up to and including `last` are used up. `entity` owns the counter, not a sub-queue of it."""

    entity: str
    partition_id: int
    last: int


class SessionStateSet(NamedTuple):
    entity: str
    session_id: str
    state: bytes | None
    updated: int


class MessageIdSeen(NamedTuple):
    """For duplicate detection: `message_id` was accepted at `time`."""

    entity: str
    message_id: str
    time: int


class MessageIdsKept(NamedTuple):
    """Message ids of `entity` count for `window` milliseconds after their time. Said at every start; a journal may drop older ones."""

    entity: str
    window: int


class RulesCleared(NamedTuple):
    """The subscription has no rules but those that records after this one put: the configuration's count no more."""

    entity: str


class RulePut(NamedTuple):
    entity: str
    rule: SubscriptionRule


class RuleRemoved(NamedTuple):
    entity: str
    rule_name: str


Change = (
    MessageStored
    | MessageUpdated
    | MessageRemoved
    | NumbersIssued
    | SessionStateSet
    | MessageIdSeen
    | MessageIdsKept
    | RulesCleared
    | RulePut
    | RuleRemoved
)


class Journal(Protocol):
    """Where change records go, in order."""

    def append(self, change: Change, /) -> None: ...
