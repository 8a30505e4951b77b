"""All entities of one Service Bus namespace: found by address, moved by time, restored from records.

The one rule: time and chance come in through the constructor. The server calls `advance` when `next_event` is due, then acts on
`take_events`; it commits its journal before it acknowledges anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

from spark_sb_mgmt.emulator.entities import changes, faults
from spark_sb_mgmt.emulator.entities.addresses import EntityAddress, parse_address
from spark_sb_mgmt.emulator.entities.changes import Change, Journal
from spark_sb_mgmt.emulator.entities.context import Clock, Context
from spark_sb_mgmt.emulator.entities.entity import Entity
from spark_sb_mgmt.emulator.entities.events import Event, Holder
from spark_sb_mgmt.emulator.entities.queue import Queue
from spark_sb_mgmt.emulator.entities.settings import QueueSettings, TopicSettings
from spark_sb_mgmt.emulator.entities.topic import Subscription, Topic
from spark_sb_mgmt.emulator.entities.transaction import UnitOfWork
from spark_sb_mgmt.errors import SbMgmtError

AnyEntity = Queue | Topic


class RestoreError(SbMgmtError):
    """The state from before the restart cannot stand in the entities as they are configured now."""


class Namespace:
    def __init__(
        self,
        queues: Mapping[str, QueueSettings],
        topics: Mapping[str, TopicSettings],
        *,
        clock: Clock,
        new_lock_token: Callable[[], UUID],
        journal: Journal | None = None,
    ) -> None:
        self._context = Context(clock, new_lock_token, journal)
        self._context.find = self._find_destination
        # By lower-case path.
        self._entities: dict[str, AnyEntity] = {}
        for name, queue in queues.items():
            self._add_queue(Queue(name, self._context, queue))
        for name, settings in topics.items():
            topic = Topic(name, self._context, settings)
            self._add(topic)
            for subscription in topic.subscriptions.values():
                self._add_queue(subscription)

    def _add(self, entity: AnyEntity) -> None:
        key = entity.path.lower()
        if key in self._entities:
            raise ValueError(f"two entities have the path '{entity.path}'")
        self._entities[key] = entity
        window = entity.settings.duplicate_detection_window
        if window is not None:
            self._context.record(changes.MessageIdsKept, entity.path, window)

    def _add_queue(self, queue: Queue) -> None:
        self._add(queue)
        for sub_queue in (queue.dead_letter, queue.transfer_dead_letter):
            assert sub_queue is not None, "an entity that is configured is no sub-queue"
            self._add(sub_queue)

    # Finding

    def __iter__(self) -> Iterator[AnyEntity]:
        return iter(self._entities.values())

    def resolve(self, address: str | EntityAddress) -> AnyEntity:
        """The entity at an address, also that of its management node; a fault if there is none."""
        parsed = parse_address(address) if isinstance(address, str) else address
        entity = self._entities.get(parsed.key)
        if entity is None:
            raise faults.entity_not_found(parsed.path)
        return entity

    def resolve_sender(self, address: str | EntityAddress) -> AnyEntity:
        """What a sender link may attach to: a queue or a topic."""
        entity = self.resolve(address)
        if isinstance(entity, Subscription):
            raise faults.not_allowed(f"'{entity.path}' cannot be sent to; send to its topic.")
        if isinstance(entity, Queue) and entity.kind.is_sub_queue:
            raise faults.not_allowed(f"'{entity.path}' cannot be sent to; send to the entity that it belongs to.")
        return entity

    def resolve_receiver(self, address: str | EntityAddress) -> Queue:
        """What a receiver link may attach to: a queue, a subscription, or a sub-queue of one."""
        entity = self.resolve(address)
        if isinstance(entity, Topic):
            raise faults.not_allowed(f"'{entity.path}' is a topic and cannot be received from; use one of its subscriptions.")
        return entity

    def _find_destination(self, path: str) -> Entity:
        return self.resolve_sender(path)

    # Time and events

    def next_event(self) -> int | None:
        """The earliest time at which something happens by itself, or None."""
        return self._context.next_event()

    def advance(self, now: int) -> None:
        """Let happen all that is due at `now`."""
        self._context.advance(now)

    def take_events(self) -> list[Event]:
        """What happened since the last call that receivers should know, each once."""
        return self._context.take_events()

    def release_holder(self, holder: Holder, *, messages: bool) -> None:
        """A link is gone: see `Queue.release_holder`. Give the queue's own method where the queue is known."""
        for entity in self._entities.values():
            if isinstance(entity, Queue):
                entity.release_holder(holder, messages=messages)

    def begin(self) -> UnitOfWork:
        """A transaction is declared."""
        return UnitOfWork()

    # Recovery

    def restore(self, records: Iterable[Change]) -> None:
        """State from records, before anything else is done. Records of entities that are no longer configured are left out."""
        for record in records:
            entity = self._entities.get(record.entity.lower())
            if entity is not None:
                _apply(entity, record)


def _apply(entity: AnyEntity, record: Change) -> None:
    if isinstance(record, changes.MessageStored):
        if isinstance(entity, Queue) and entity.requires_session and record.message.session_id is None:
            raise RestoreError(
                f"'{entity.path}' holds message {record.message.sequence_number} without session id from before it required sessions; "
                "configure it without RequiresSession, or under another name."
            )
        entity.restore_message(record.message)
    elif isinstance(record, changes.MessageUpdated):
        entity.restore_update(record.sequence_number, record.state, record.delivery_count)
    elif isinstance(record, changes.MessageRemoved):
        entity.restore_removal(record.sequence_number)
    elif isinstance(record, changes.NumbersIssued):
        entity.restore_numbers(record.partition_id, record.last)
    elif isinstance(record, changes.MessageIdSeen):
        entity.restore_message_id(record.message_id, record.time)
    elif isinstance(record, changes.SessionStateSet):
        if isinstance(entity, Queue) and entity.requires_session:
            entity.restore_session_state(record.session_id, record.state, record.updated)
    elif isinstance(record, changes.MessageIdsKept):
        return  # Said by the configuration of this start.
    elif isinstance(entity, Subscription):
        if isinstance(record, changes.RulesCleared):
            entity.restore_no_rules()
        elif isinstance(record, changes.RulePut):
            entity.restore_rule(record.rule)
        else:
            entity.restore_rule_removal(record.rule_name)
