"""The state on disk: what a restart finds is what was committed, whole, and nothing that was not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from spark_sb_mgmt.amqp.types import Byte, Int, Long, Symbol, Timestamp, UInt
from spark_sb_mgmt.emulator.entities import (
    ABANDONED,
    COMPLETED,
    Change,
    Counts,
    Namespace,
    Queue,
    QueueSettings,
    Subscription,
    TopicSettings,
)
from spark_sb_mgmt.emulator.storage import Store, pending
from spark_sb_mgmt.emulator.storage.rules import decode_rule, encode_rule
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.times import to_datetime
from tests.emulator.entities.broker import HOUR, MINUTE, SECOND, START, Broker, Recorder, bodies, body, message, subscription, tokens, topic
from tests.emulator.entities.test_state_machine import ServiceBus
from tests.emulator.storage_world import OPERATIONS, DescribedRule, World
from tests.emulator.storage_world import rule as described_rule

NUMBERS = st.integers(0, 999)


class RestartedWorld(RuleBasedStateMachine):
    """All operations, and a restart at any time: the state is that of the last commit, to the byte."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.world = World(Path(self.directory.name))
        self.note_committed()

    def note_committed(self) -> None:
        self.committed = self.world.now, self.world.durable_state()

    @rule(steps=st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), NUMBERS, NUMBERS), min_size=1, max_size=12))
    def operate(self, steps: list[tuple[str, int, int]]) -> None:
        for step in steps:
            self.world.step(*step)

    @rule()
    def commit(self) -> None:
        self.world.store.commit()
        self.note_committed()

    @rule()
    def restart(self) -> None:
        now, state = self.committed
        self.world.restart(now)
        assert self.world.durable_state() == state
        for entity in self.world.namespace:
            if isinstance(entity, Queue):
                assert entity.counts().locked == 0
                assert all(session.holder is None for session in entity.sessions or ())

    def teardown(self) -> None:
        self.commit()
        self.restart()
        self.world.store.close()
        self.directory.cleanup()


TestRestartedWorld = RestartedWorld.TestCase
TestRestartedWorld.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


class StoringRecorder(Recorder):
    """Keeps records for the model's invariants and gives them to the store."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def append(self, change: Change, /) -> None:
        super().append(change)
        self.store.append(change)


class StoredServiceBus(ServiceBus):
    """The model of the core's own test, where a restart is one from disk: no message lost or twice, no number given again."""

    @initialize(dead_letter_expired=st.booleans())
    def start(self, dead_letter_expired: bool) -> None:
        super().start(dead_letter_expired)
        self.directory = TemporaryDirectory()
        stored = StoringRecorder(self.open())
        for change in self.broker.changes:
            stored.append(change)
        self.broker.changes = stored
        self.restart()

    def open(self) -> Store:
        return Store.open(Path(self.directory.name), compile_rule=DescribedRule)

    @precondition(lambda self: self.work is None)
    @rule()
    def restart(self) -> None:
        recorder = self.broker.changes
        assert isinstance(recorder, StoringRecorder)
        recorder.store.commit()
        recorder.store.close()
        recorder.store = self.open()
        self.broker.namespace = self.broker._start()
        self.broker.namespace.restore(recorder.store.read())
        self.locks.clear()

    def teardown(self) -> None:
        recorder = self.broker.changes
        assert isinstance(recorder, StoringRecorder)
        recorder.store.close()
        self.directory.cleanup()


TestStoredServiceBus = StoredServiceBus.TestCase
TestStoredServiceBus.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


# By example: a broker on a directory, for as long as the block.


class StoredBroker(Broker):
    def __init__(
        self, data_dir: Path, queues: dict[str, QueueSettings] | None = None, topics: dict[str, TopicSettings] | None = None, **q: Any
    ) -> None:
        self.store = Store.open(data_dir, compile_rule=DescribedRule)
        super().__init__(queues, topics, **q)

    def _start(self) -> Namespace:
        self.changes = StoringRecorder(self.store)
        namespace = super()._start()
        namespace.restore(self.store.read())
        return namespace


@contextmanager
def running(data_dir: Path, *, commit_at_end: bool = True, **given: Any) -> Iterator[StoredBroker]:
    broker = StoredBroker(data_dir, **given)
    try:
        yield broker
        if commit_at_end:
            broker.store.commit()
    finally:
        broker.store.close()


def rule_names(entity: Subscription) -> list[str]:
    return [each.name for each in entity.rules()]


def test_what_was_not_committed_is_gone_and_what_was_is_there(tmp_path: Path) -> None:
    with running(tmp_path, commit_at_end=False) as broker:
        broker.send("a")
        broker.store.commit()
        broker.send("b")
    with running(tmp_path) as broker:
        assert bodies(broker.q.peek(0, 10)) == ["a"]


def test_every_state_of_a_message_and_the_counters_go_on(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        (deferred,) = broker.deferred("deferred")
        (scheduled,) = broker.schedule("scheduled", after=HOUR)
        broker.send("abandoned", "locked", "gone")
        abandoned, _, gone = broker.q.receive("link", 3)
        broker.q.settle(tokens([abandoned]), ABANDONED)
        broker.q.settle(tokens([gone]), COMPLETED)
        last = gone.sequence_number
    with running(tmp_path) as broker:
        assert broker.q.counts() == Counts(active=2, deferred=1, scheduled=1, locked=0)
        received = broker.q.receive("other", 10)
        assert [(body(each), each.delivery_count) for each in received] == [("abandoned", 1), ("locked", 0)]
        assert bodies(broker.q.receive_by_sequence_number("other", [deferred])) == ["deferred"]
        broker.q.cancel_scheduled([scheduled])
        assert broker.schedule("next", after=HOUR) == [last + 1]


def test_a_session_has_its_state_and_the_time_when_it_was_set(tmp_path: Path) -> None:
    with running(tmp_path, requires_session=True) as broker:
        broker.q.set_session_state("early", b"1")
        broker.q.set_session_state("cleared", b"2")
        broker.pass_time(SECOND)
        broker.q.set_session_state("late", b"")
        broker.q.set_session_state("cleared", None)
    with running(tmp_path, requires_session=True) as broker:
        assert [broker.q.get_session_state(each) for each in ("early", "late", "cleared")] == [b"1", b"", None]
        assert broker.q.get_message_sessions(START, 0, 10) == ["late"]
        assert broker.q.get_message_sessions(START - 1, 0, 10) == ["early", "late"]


def test_rules_are_the_configurations_until_they_are_changed_and_then_their_own(tmp_path: Path) -> None:
    def configured(*names: str) -> dict[str, TopicSettings]:
        return {"t": topic(subscription("s", *map(described_rule, names)))}

    with running(tmp_path, topics=configured("a", "b")) as broker:
        broker.send("a message, so that there is something to restore", to="t")
    with running(tmp_path, topics=configured("c", "d")) as broker:
        assert rule_names(broker.subscription("t", "s")) == ["c", "d"]
        broker.subscription("t", "s").remove_rule("C")
        broker.subscription("t", "s").add_rule(described_rule("e"))
        broker.subscription("t", "s").add_rule(described_rule("C", FalseFilter()))
    for names in (("x",), ("c", "y"), ()):
        with running(tmp_path, topics=configured(*names)) as broker:
            assert rule_names(broker.subscription("t", "s")) == ["d", "e", "C"]


def test_a_subscription_whose_last_rule_was_removed_has_none_after_a_restart(tmp_path: Path) -> None:
    topics = {"t": topic(subscription("s"))}
    with running(tmp_path, topics=topics) as broker:
        broker.subscription("t", "s").remove_rule("$Default")
    with running(tmp_path, topics=topics) as broker:
        assert broker.subscription("t", "s").rules() == []
        broker.subscription("t", "s").add_rule(described_rule("new"))
    with running(tmp_path, topics=topics) as broker:
        assert rule_names(broker.subscription("t", "s")) == ["new"]


def test_the_default_rule_is_kept_beside_one_that_is_added(tmp_path: Path) -> None:
    topics = {"t": topic(subscription("s"))}
    with running(tmp_path, topics=topics) as broker:
        broker.subscription("t", "s").add_rule(described_rule("more", FalseFilter()))
    with running(tmp_path, topics=topics) as broker:
        assert rule_names(broker.subscription("t", "s")) == ["$Default", "more"]
        broker.send("a", to="t")
        assert bodies(broker.subscription("t", "s").peek(0, 10)) == ["a"]


@pytest.mark.parametrize(
    "description",
    [
        Rule("true", TrueFilter()),
        Rule("false", FalseFilter(), created_at=to_datetime(START)),
        Rule("caf\udce9", SqlFilter("a = 'ü'"), SqlRuleAction("SET x = 1"), to_datetime(-1)),
        Rule("none", CorrelationFilter()),
        Rule(
            "all",
            CorrelationFilter(
                **{
                    name: name
                    for name in (
                        *("correlation_id", "message_id", "to", "reply_to", "label"),
                        *("session_id", "reply_to_session_id", "content_type"),
                    )
                },
                properties={
                    **{kind.__name__: kind(1) for kind in (Int, Long, Byte, UInt, Timestamp)},
                    "bool": True,
                    "id": UUID(int=1),
                    "symbol": Symbol("s"),
                    "text": "s",
                    "double": 1.0,
                    "null": None,
                    "bytes": b"\0",
                },
            ),
        ),
    ],
    ids=lambda description: description.name.encode("ascii", "backslashreplace").decode(),
)
def test_a_rule_keeps_every_field_and_the_type_of_every_value(description: Rule) -> None:
    again = decode_rule(encode_rule(description))
    # By representation too: values of different types may be equal.
    assert (again, repr(again)) == (description, repr(description))
    if isinstance(description.filter, CorrelationFilter):
        assert isinstance(again.filter, CorrelationFilter)
        assert [type(value) for value in again.filter.properties.values()] == [
            type(value) for value in description.filter.properties.values()
        ]


def test_duplicates_are_known_over_restarts_and_forgotten_after_their_window(tmp_path: Path) -> None:
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        broker.send("a", message_id="m")
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        broker.now = START + MINUTE - 1
        broker.send("b", message_id="m")
        broker.now = START + MINUTE
        broker.send("c", message_id="m")
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        broker.now = START + 2 * MINUTE - 1
        broker.send("d", message_id="m")
        assert bodies(broker.q.peek(0, 10)) == ["a", "c"]


def test_each_message_id_is_forgotten_in_its_own_time_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        broker.send("a", message_id="old")
        broker.now = START + MINUTE - 1
        broker.send("b", message_id="new")
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        broker.now = START + MINUTE
        broker.send("c", message_id="old")
        broker.send("d", message_id="new")
        assert bodies(broker.q.peek(0, 10)) == ["a", "b", "c"]


def test_message_ids_beyond_their_window_do_not_add_up(tmp_path: Path) -> None:
    with running(tmp_path, duplicate_detection_window=SECOND) as broker:
        for at in range(4 * pending.PURGE_EVERY):
            broker.now += 10
            broker.q.send([message(message_id=str(at))])
            broker.store.commit()
        (kept,) = broker.store._connection.execute("SELECT count(*) FROM message_ids").fetchone()
    assert 100 <= kept <= pending.PURGE_EVERY + 100


def test_the_state_of_an_entity_is_there_again_when_the_entity_is(tmp_path: Path) -> None:
    other = {"Orders": QueueSettings()}
    with running(tmp_path, queues=other) as broker:
        broker.send("a", to="orders")
    with running(tmp_path) as broker:
        broker.send("b")
    with running(tmp_path, queues={"ORDERS": QueueSettings()}) as broker:
        assert bodies(broker.queue("orders").peek(0, 10)) == ["a"]
        broker.send("c", to="orders")
        assert [each.sequence_number for each in broker.queue("orders").peek(0, 10)] == [1, 2]


def test_a_time_to_live_without_end_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, default_message_time_to_live=2**64) as broker:
        broker.send("a")
    with running(tmp_path) as broker:
        broker.pass_time(100 * 365 * 24 * HOUR)
        assert bodies(broker.q.receive("link", 1)) == ["a"]


@pytest.mark.parametrize("commit_each", [False, True])
@pytest.mark.parametrize("repeat", [lambda log: log + log, lambda log: [each for each in log for _ in range(2)]], ids=["log", "record"])
def test_records_that_are_given_twice_change_nothing(
    tmp_path: Path, commit_each: bool, repeat: Callable[[list[Change]], list[Change]]
) -> None:
    def peeked(broker: Broker) -> list[tuple[str, list[bytes]]]:
        return [(entity.path, [each.encoded() for each in entity.peek(0, 100)]) for entity in broker.namespace]

    topics = {"t": topic(subscription("s", described_rule("a"), described_rule("b")))}
    given: dict[str, Any] = {"topics": topics, "duplicate_detection_window": HOUR}
    memory = Broker(**given)
    memory.subscription("t", "s").remove_rule("a")
    memory.subscription("t", "s").add_rule(described_rule("a", FalseFilter()))
    memory.deferred("deferred")
    memory.send("x", "y", "z", message_id=None)
    memory.q.settle(tokens(memory.q.receive("link", 1)), ABANDONED)
    memory.q.settle(tokens(memory.q.receive("link", 1)), COMPLETED)
    memory.send("id", message_id="id", to="t")
    memory.namespace.release_holder("link", messages=True)
    with running(tmp_path, **given) as broker:
        for change in repeat(list(memory.changes)):
            broker.store.append(change)
            if commit_each:
                broker.store.commit()
    with running(tmp_path, **given) as broker:
        assert peeked(broker) == peeked(memory)
        assert rule_names(broker.subscription("t", "s")) == rule_names(memory.subscription("t", "s")) == ["b", "a"]


# The commit


def test_a_commit_is_synced_to_the_disk_and_the_directory_is_held(tmp_path: Path) -> None:
    with Store.open(tmp_path, compile_rule=DescribedRule) as store:
        told = {name: store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "locking_mode")}
    full = 2
    assert told == {"journal_mode": "wal", "synchronous": full, "locking_mode": "exclusive"}


def test_a_commit_of_nothing_asks_nothing_of_the_database(tmp_path: Path) -> None:
    with running(tmp_path, duplicate_detection_window=MINUTE) as broker:
        statements: list[str] = []
        broker.store._connection.set_trace_callback(statements.append)
        broker.store.commit()
        broker.send("a")
        broker.store.commit()
        assert statements.count("COMMIT") == 1
        del statements[:]
        # Locks are nobody's after a restart, and so not written.
        found = broker.q.receive("link", 1)
        broker.q.renew_locks(tokens(found))
        broker.store.commit()
        assert statements == []


def test_a_thousand_changes_are_one_transaction(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        statements: list[str] = []
        broker.store._connection.set_trace_callback(statements.append)
        broker.send(*map(str, range(1000)))
        broker.store.commit()
        assert [each for each in statements if not each.lstrip().startswith("INSERT")] == ["BEGIN IMMEDIATE", "COMMIT"]


def test_a_commit_that_was_interrupted_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"t": topic(subscription("s", described_rule("a"), described_rule("b")))}
    with running(tmp_path, topics=topics) as broker:
        broker.send("a", "b")
        broker.subscription("t", "s").remove_rule("a")
        broker.subscription("t", "s").add_rule(described_rule("a"))
        write = pending.Pending.write

        def interrupted(self: pending.Pending, connection: sqlite3.Connection) -> None:
            write(self, connection)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(pending.Pending, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                broker.store.commit()
    with running(tmp_path, topics=topics) as broker:
        assert bodies(broker.q.peek(0, 10)) == ["a", "b"]
        assert rule_names(broker.subscription("t", "s")) == ["b", "a"]
