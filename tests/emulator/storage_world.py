"""A namespace on a store, driven by operations that chance chooses; run as a program, it goes on until it is killed.

    python -m tests.emulator.storage_world DATA_DIR SEED START_TIME

prints `open`, then before each commit `try` and after it `done`, each with the time and a digest of the state that must be there after a
restart from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from spark_sb_mgmt.amqp.message import Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, Timestamp, UByte, UInt
from spark_sb_mgmt.emulator.entities import (
    Disposition,
    DispositionStatus,
    IncomingMessage,
    MessageState,
    Namespace,
    Queue,
    QueueSettings,
    ServiceBusFault,
    StoredMessage,
    Subscription,
    read_message,
)
from spark_sb_mgmt.emulator.storage import Store
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.times import to_datetime
from tests.emulator.entities.broker import HOUR, MINUTE, START, subscription, topic


class DescribedRule:
    """A rule that is its description: all but a false filter let everything through."""

    has_action = False

    def __init__(self, description: Rule) -> None:
        self.name = description.name
        self.description = description

    def matches(self, message: Message) -> bool:
        return not isinstance(self.description.filter, FalseFilter)

    def apply(self, message: Message) -> Message:
        return message


def rule(name: str, *given: Any) -> DescribedRule:
    return DescribedRule(Rule(name, *(given or (TrueFilter(),))))


COMMON: dict[str, Any] = {"max_delivery_count": 3, "dead_lettering_on_message_expiration": True}
QUEUES = {
    "q": QueueSettings(**COMMON),
    "Sessions": QueueSettings(requires_session=True, **COMMON),
    "partitioned": QueueSettings(enable_partitioning=True, **COMMON),
    "once": QueueSettings(duplicate_detection_window=MINUTE, forward_dead_lettered_messages_to="q", **COMMON),
    "inbox": QueueSettings(forward_to="q"),
}
TOPICS = {
    "t": topic(
        subscription("one", rule("a"), rule("b"), **COMMON),
        subscription("two", rule("a"), **COMMON),
        # With the rule that a subscription has when the configuration names none.
        subscription("three", **COMMON),
    )
}
SUBSCRIPTIONS = ("t/Subscriptions/one", "t/Subscriptions/two", "t/Subscriptions/three")
TARGETS = ("q", "Sessions", "partitioned", "once", "inbox", "t")
SOURCES = ("q", "Sessions", "partitioned", "once", *SUBSCRIPTIONS, "q/$DeadLetterQueue")
SESSIONS = ("s", "café", "z\0")
STATUSES = [status for status in DispositionStatus if status is not DispositionStatus.COMPLETED]
FILTERS = (
    TrueFilter(),
    FalseFilter(),
    SqlFilter("a = 1"),
    CorrelationFilter(label="l", properties={"int": Int(1), "long": Long(1), "id": UUID(int=1)}),
)


class World:
    def __init__(self, data_dir: Path, now: int = START) -> None:
        self.data_dir = data_dir
        self.now = now
        self._tokens = Random(now)
        self._sent = 0
        self._start()

    def _start(self) -> None:
        self.store = Store.open(self.data_dir, compile_rule=DescribedRule)
        self.namespace = Namespace(
            QUEUES,
            TOPICS,
            clock=lambda: self.now,
            new_lock_token=lambda: UUID(int=self._tokens.getrandbits(128), version=4),
            journal=self.store,
        )
        self.namespace.restore(self.store.read())
        self._locked: list[tuple[Queue, UUID]] = []

    def restart(self, now: int) -> None:
        """Lose everything that is not on disk."""
        self.store.close()
        self.now = now
        self._start()

    def durable_state(self) -> dict[str, Any]:
        return {entity.path: _state_of(entity, self.now) for entity in self.namespace}

    def digest(self) -> str:
        return sha256(repr(self.durable_state()).encode()).hexdigest()

    # What may happen: each operation chooses by two numbers.

    def step(self, operation: str, a: int, b: int) -> None:
        with suppress(ServiceBusFault):
            OPERATIONS[operation](self, a, b)

    def _incoming(self, a: int, b: int, *, scheduled: int | None = None) -> IncomingMessage:
        self._sent += 1
        notes: dict[Any, Any] = {Symbol("x-opt-note"): Long(b)} if a % 2 else {}
        if scheduled is not None:
            notes[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled)
        priority = UByte(b % 10) if a % 3 == 0 else None
        ttl = UInt(MINUTE) if b % 4 == 0 else None
        header = Header(durable=True if b % 2 else None, priority=priority, ttl=ttl)
        return read_message(
            encode_message(
                Message(
                    header=header,
                    delivery_annotations=Map({Symbol("d"): Int(a)}) if b % 3 == 0 else None,
                    message_annotations=Map(notes) if notes else None,
                    properties=Properties(message_id=f"{self.now}-{a % 5}", group_id=SESSIONS[a % 3]),
                    body=Data((f"{self.now}/{self._sent}".encode() + b" " * (b % 7 * 1500),)),
                )
            )
        )

    def send(self, a: int, b: int) -> None:
        self.namespace.resolve_sender(TARGETS[a % len(TARGETS)]).send([self._incoming(a + i, b) for i in range(1 + b % 3)])

    def schedule(self, a: int, b: int) -> None:
        self.namespace.resolve_sender(TARGETS[a % len(TARGETS)]).schedule([self._incoming(a, b, scheduled=self.now + b % 3 * MINUTE)])

    def cancel(self, a: int, b: int) -> None:
        entity = self.namespace.resolve_sender(TARGETS[a % len(TARGETS)])
        scheduled = [each.sequence_number for each in entity.messages.values() if each.state is MessageState.SCHEDULED]
        entity.cancel_scheduled(scheduled[: 1 + b % 2])

    def receive(self, a: int, b: int) -> None:
        queue = self._source(a)
        session = None
        if queue.requires_session:
            lock = queue.accept_session("link", None)
            session = None if lock is None else lock.session_id
        received = queue.receive("link", 1 + b % 5, session_id=session, delete=b % 7 == 0)
        self._hold(queue, received)

    def receive_deferred(self, a: int, b: int) -> None:
        queue = self._source(a)
        deferred = [each.sequence_number for each in queue.messages.values() if each.state is MessageState.DEFERRED]
        self._hold(queue, queue.receive_by_sequence_number("link", deferred[:1]))

    def settle(self, a: int, b: int) -> None:
        if self._locked:
            queue, token = self._locked.pop(a % len(self._locked))
            changed = Map({"seen": Int(b)}) if b % 2 else Map()
            queue.settle([token], Disposition(STATUSES[b % len(STATUSES)], properties_to_modify=changed))

    def complete(self, a: int, b: int) -> None:
        if self._locked:
            queue, token = self._locked.pop(a % len(self._locked))
            queue.settle([token], Disposition(DispositionStatus.COMPLETED))

    def transact(self, a: int, b: int) -> None:
        """One message is settled and others come: all or nothing."""
        work = self.namespace.begin()
        work.send(self.namespace.resolve_sender(TARGETS[a % len(TARGETS)]), [self._incoming(a, b)])
        work.schedule(self.namespace.resolve_sender("t"), [self._incoming(a, b, scheduled=self.now + HOUR)])
        if self._locked:
            queue, token = self._locked.pop(b % len(self._locked))
            work.settle(queue, [token], Disposition(STATUSES[b % len(STATUSES)]))
        if a % 4:
            work.commit()
        else:
            work.rollback()

    def set_session_state(self, a: int, b: int) -> None:
        self.namespace.resolve_receiver("sessions").set_session_state(SESSIONS[a % 3], None if b % 3 == 0 else bytes([b % 256]))

    def add_rule(self, a: int, b: int) -> None:
        action = SqlRuleAction("SET x = 1") if b % 2 else None
        self._subscription(a).add_rule(DescribedRule(Rule("AbCd"[b % 4], FILTERS[a // 3 % 4], action, to_datetime(self.now))))

    def remove_rule(self, a: int, b: int) -> None:
        self._subscription(a).remove_rule(("a", "B", "c", "D", "$default")[b % 5])

    def batch_delete(self, a: int, b: int) -> None:
        self._source(a).batch_delete(1 + b % 2, self.now)

    def pass_time(self, a: int, b: int) -> None:
        self.now += (1, 1000, MINUTE // 2, MINUTE)[a % 4]
        self.namespace.advance(self.now)

    def _source(self, a: int) -> Queue:
        return self.namespace.resolve_receiver(SOURCES[a % len(SOURCES)])

    def _subscription(self, a: int) -> Subscription:
        entity = self.namespace.resolve(SUBSCRIPTIONS[a % 3])
        assert isinstance(entity, Subscription)
        return entity

    def _hold(self, queue: Queue, messages: list[StoredMessage]) -> None:
        self._locked += [(queue, each.lock_token) for each in messages if each.lock_token is not None]


OPERATIONS: dict[str, Callable[[World, int, int], None]] = {
    each.__name__: each
    for each in (
        *(World.send, World.schedule, World.cancel, World.receive, World.receive_deferred, World.settle, World.complete),
        *(World.transact, World.set_session_state, World.add_rule, World.remove_rule, World.batch_delete, World.pass_time),
    )
}


def _state_of(entity: Any, now: int) -> dict[str, Any]:
    """All of an entity that must survive."""
    state: dict[str, Any] = {
        "messages": [_fields(each) for each in entity.messages.values()],
        "numbers": sorted(entity._numbers._last.items()),
    }
    if entity._duplicates is not None:
        known = entity._duplicates._accepted.items()
        state["message ids"] = sorted((key, time) for key, time in known if time + entity._duplicates.window > now)
    if isinstance(entity, Queue) and entity.sessions is not None:
        state["sessions"] = sorted((each.session_id, each.state, each.state_updated) for each in entity.sessions if each.state is not None)
    if isinstance(entity, Subscription):
        state["rules"] = [each.description for each in entity.rules()]
    return state


def _fields(message: StoredMessage) -> tuple[Any, ...]:
    unlocked = copy(message)
    unlocked.lock_token, unlocked.holder, unlocked.locked_until = None, None, 0
    unlocked.changed()
    encoded = unlocked.encoded()
    return tuple(getattr(unlocked, name) for name in StoredMessage.__slots__ if name != "_entry"), encoded


def main(data_dir: str, seed: str, start: str) -> None:
    chance = Random(seed)
    world = World(Path(data_dir), int(start))
    names = list(OPERATIONS)
    print("open", world.now, world.digest(), flush=True)
    while True:
        # Some commits are great, so that one is often under way when the end comes.
        for _ in range(chance.choice((1, 1, 2, 5, 40))):
            operation = chance.choice((*names, "send", "receive", "settle"))
            world.step(operation, chance.randrange(1000), chance.randrange(1000))
        state = world.now, world.digest()
        print("try", *state, flush=True)
        world.store.commit()
        print("done", *state, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
