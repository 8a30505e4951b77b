"""A namespace under a clock that a test moves, and short ways to say things to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from random import Random
from typing import Any
from uuid import UUID

from spark_sb_mgmt.amqp.message import Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Map, Symbol, Timestamp, UInt
from spark_sb_mgmt.emulator.entities import (
    Change,
    Event,
    IncomingMessage,
    Namespace,
    Queue,
    QueueSettings,
    StoredMessage,
    Subscription,
    SubscriptionRule,
    SubscriptionSettings,
    Topic,
    TopicSettings,
    read_message,
)
from spark_sb_mgmt.emulator.entities.changes import MessageStored

START = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


class Recorder(list[Change]):
    """A journal that takes a message as it is at the moment of the record."""

    def append(self, change: Change, /) -> None:
        super().append(change._replace(message=copy(change.message)) if isinstance(change, MessageStored) else change)


class Broker:
    """`q` is a queue with the settings that a test gives; other entities by name."""

    def __init__(
        self, queues: Mapping[str, QueueSettings] | None = None, topics: Mapping[str, TopicSettings] | None = None, **q: Any
    ) -> None:
        self.now = START
        self._settings = {"q": QueueSettings(**q), **(queues or {})}, topics or {}
        self.changes = Recorder()
        self._chance = Random(7)
        self.namespace = self._start()

    def _start(self) -> Namespace:
        return Namespace(
            *self._settings,
            clock=lambda: self.now,
            new_lock_token=lambda: UUID(int=self._chance.getrandbits(128), version=4),
            journal=self.changes,
        )

    def restart(self) -> None:
        """Lose everything but the records."""
        # Copied once more: what is restored goes on changing, and the records must not.
        records = Recorder()
        for each in self.changes:
            records.append(each)
        self.namespace = self._start()
        self.namespace.restore(records)

    @property
    def q(self) -> Queue:
        return self.queue("q")

    @property
    def dead(self) -> Queue:
        return self.queue("q/$DeadLetterQueue")

    def queue(self, path: str) -> Queue:
        return self.namespace.resolve_receiver(path)

    def topic(self, path: str) -> Topic:
        entity = self.namespace.resolve(path)
        assert isinstance(entity, Topic)
        return entity

    def subscription(self, topic: str, name: str) -> Subscription:
        entity = self.queue(f"{topic}/Subscriptions/{name}")
        assert isinstance(entity, Subscription)
        return entity

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.namespace.advance(self.now)

    def events(self) -> list[Event]:
        return self.namespace.take_events()

    def send(self, *bodies: str, to: str = "q", **given: Any) -> None:
        self.namespace.resolve_sender(to).send([message(body, **given) for body in bodies])

    def schedule(self, *bodies: str, after: int, to: str = "q", **given: Any) -> list[int]:
        entity = self.namespace.resolve_sender(to)
        return entity.schedule([message(body, scheduled=self.now + after, **given) for body in bodies])

    def deferred(self, *bodies: str, to: str = "q", **given: Any) -> list[int]:
        """Send and defer; the numbers by which they are found."""
        from spark_sb_mgmt.emulator.entities import DEFERED

        self.send(*bodies, to=to, **given)
        locked = self.queue(to).receive("deferrer", len(bodies))
        self.queue(to).settle(tokens(locked), DEFERED)
        return [each.sequence_number for each in locked]


def message(
    body: str = "",
    *,
    message_id: Any = None,
    session: str | None = None,
    ttl: int | None = None,
    scheduled: int | None = None,
    partition_key: str | None = None,
    properties: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> IncomingMessage:
    notes: dict[Any, Any] = {Symbol(key): value for key, value in (annotations or {}).items()}
    if scheduled is not None:
        notes[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled)
    if partition_key is not None:
        notes[Symbol("x-opt-partition-key")] = partition_key
    return read_message(
        encode_message(
            Message(
                header=None if ttl is None else Header(ttl=UInt(ttl)),
                message_annotations=Map(notes) if notes else None,
                properties=Properties(message_id=message_id, group_id=session),
                application_properties=None if properties is None else Map(properties),
                body=Data((body.encode(),)),
            )
        )
    )


def body(stored: StoredMessage) -> str:
    content = stored.read().body
    assert isinstance(content, Data)
    return b"".join(content.sections).decode()


def bodies(messages: list[StoredMessage]) -> list[str]:
    return [body(each) for each in messages]


def tokens(messages: list[StoredMessage]) -> list[UUID]:
    found = [each.lock_token for each in messages]
    assert None not in found
    return [token for token in found if token is not None]


def application_properties(stored: StoredMessage) -> dict[str, Any]:
    return dict(stored.read().application_properties or ())


def annotation(stored: StoredMessage, name: str) -> Any:
    annotations = stored.read().message_annotations
    assert annotations is not None
    return annotations.get(name)


class Rule:
    """A rule by a Python function, for what a subscription does with rules; the language has tests of its own."""

    description = None

    def __init__(
        self, name: str, matches: Callable[[Message], bool] = lambda message: True, action: Callable[[Message], Message] | None = None
    ) -> None:
        self.name = name
        self._matches = matches
        self._action = action
        self.has_action = action is not None

    def matches(self, message: Message) -> bool:
        return self._matches(message)

    def apply(self, message: Message) -> Message:
        assert self._action is not None
        return self._action(message)


def topic(*subscriptions: SubscriptionSettings, **given: Any) -> TopicSettings:
    return TopicSettings(subscriptions=subscriptions, **given)


def subscription(name: str, *rules: SubscriptionRule, **given: Any) -> SubscriptionSettings:
    return SubscriptionSettings(name, QueueSettings(**given), tuple(rules) or None)
