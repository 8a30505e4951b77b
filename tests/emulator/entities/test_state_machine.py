"""The core under random operations and time, against a model that knows only where each message must be.

Every message has a body of its own, which says who it is wherever it goes. The model follows the documented life of a message; the
invariants hold after every step: no message lost or in two places, sequence numbers strictly increase, a lock has one holder, counts agree.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_sb_mgmt.emulator.entities import (
    Disposition,
    DispositionStatus,
    MessageState,
    Queue,
    QueueSettings,
    ServiceBusFault,
    StoredMessage,
    Topic,
    UnitOfWork,
)
from tests.emulator.entities.broker import HOUR, MINUTE, SECOND, Broker, body, message, subscription, topic

HOLDERS = ("one", "two", "three")
SESSIONS = ("a", "b")
# Where a sender may send, and in which entities a copy must then be found.
TARGETS = {
    "q": ("q",),
    "sessions": ("sessions",),
    "partitioned": ("partitioned",),
    "inbox": ("q",),
    "t": ("t/Subscriptions/one", "t/Subscriptions/two"),
}
RECEIVED = ("q", "sessions", "partitioned", "t/Subscriptions/one", "t/Subscriptions/two", "q/$DeadLetterQueue")
STATUSES = st.sampled_from(
    [DispositionStatus.COMPLETED, DispositionStatus.ABANDONED, DispositionStatus.DEFERED, DispositionStatus.SUSPENDED]
)


class ServiceBus(RuleBasedStateMachine):
    @initialize(dead_letter_expired=st.booleans())
    def start(self, dead_letter_expired: bool) -> None:
        common: dict[str, Any] = {
            "max_delivery_count": 3,
            "dead_lettering_on_message_expiration": dead_letter_expired,
        }
        self.broker = Broker(
            {
                "sessions": QueueSettings(requires_session=True, **common),
                "partitioned": QueueSettings(enable_partitioning=True, **common),
                "inbox": QueueSettings(forward_to="q"),
            },
            {"t": topic(subscription("one", **common), subscription("two", **common))},
            **common,
        )
        self.sent = 0
        # Copies that must be somewhere: body -> the entity to which it belongs, once for each copy.
        self.expected: dict[tuple[str, str], bool] = {}
        # Those that may expire; where expired messages are dead-lettered, none is lost for it.
        self.dead_letter_expired = dead_letter_expired
        self.mortal: set[tuple[str, str]] = set()
        self.locks: dict[UUID, tuple[str, str]] = {}
        # Of holders that went: where the message is that nobody has taken since, and until when the lock would have been good.
        self.former: dict[UUID, tuple[str, int, int]] = {}
        self.highest: dict[tuple[str, int], int] = {}
        self.work: UnitOfWork | None = None
        # Something to work on everywhere: forty steps are few.
        for to in TARGETS:
            for session in SESSIONS:
                self.send(to, session, None)

    # Where things are

    def places(self) -> list[tuple[str, StoredMessage]]:
        return [(entity.path, each) for entity in self.broker.namespace for each in entity.messages.values()]

    def home(self, path: str, each: StoredMessage) -> tuple[str, str]:
        """The key in the model of a message that was found: sub-queues and the place where it waits belong to its home."""
        owner = path.split("/$")[0]
        return (owner, body(each))

    def expect(self, to: str, text: str, mortal: bool) -> None:
        for owner in TARGETS[to]:
            self.expected[owner, text] = True
            if mortal and not self.dead_letter_expired:
                self.mortal.add((owner, text))

    def forget(self, path: str, each: StoredMessage) -> None:
        self.expected.pop(self.home(path, each))

    def taken(self, queue: Queue, messages: list[StoredMessage]) -> None:
        """Whoever had these before has nothing to say about them any more."""
        numbers = {each.sequence_number for each in messages}
        self.former = {token: former for token, former in self.former.items() if former[0] != queue.path or former[1] not in numbers}

    def standing_for(self, queue: Queue, token: UUID) -> StoredMessage | None:
        """The message that a token may settle."""
        held = next((each for each in queue.messages.values() if each.lock_token == token), None)
        if held is None and token in self.former:
            _, number, until = self.former[token]
            held = queue.messages.get(number) if until > self.broker.now else None
        return held

    def new_body(self) -> str:
        self.sent += 1
        return f"m{self.sent}"

    # Operations

    @rule(to=st.sampled_from(sorted(TARGETS)), session=st.sampled_from(SESSIONS), ttl=st.sampled_from([None, None, 30 * SECOND]))
    def send(self, to: str, session: str, ttl: int | None) -> None:
        text = self.new_body()
        given = session if to == "sessions" else None
        self.broker.send(text, to=to, session=given, ttl=ttl)
        self.expect(to, text, ttl is not None)

    @rule(
        to=st.sampled_from(["q", "sessions", "partitioned", "t"]), session=st.sampled_from(SESSIONS), after=st.sampled_from([SECOND, HOUR])
    )
    def schedule(self, to: str, session: str, after: int) -> None:
        text = self.new_body()
        self.broker.schedule(text, to=to, after=after, session=session if to == "sessions" else None)
        self.expect(to, text, False)

    @rule(to=st.sampled_from(["q", "sessions", "partitioned", "t"]))
    def cancel_first(self, to: str) -> None:
        entity = self.broker.namespace.resolve(to)
        entity.catch_up()
        waiting = next((each for each in entity.messages.values() if each.state is MessageState.SCHEDULED), None)
        if waiting is not None:
            entity.cancel_scheduled([waiting.sequence_number])
            for owner in TARGETS[to]:
                self.expected.pop((owner, body(waiting)))

    def _received(self, queue: Queue, holder: str, messages: list[StoredMessage], delete: bool) -> None:
        self.taken(queue, messages)
        for each in messages:
            if delete:
                self.forget(queue.path, each)
            else:
                assert each.lock_token is not None
                assert each.lock_token not in self.locks, "a lock token was given twice"
                self.locks[each.lock_token] = (queue.path, holder)

    @rule(
        path=st.sampled_from(RECEIVED),
        holder=st.sampled_from(HOLDERS),
        count=st.integers(1, 3),
        delete=st.booleans(),
        session=st.sampled_from(SESSIONS),
    )
    def receive(self, path: str, holder: str, count: int, delete: bool, session: str) -> None:
        queue = self.broker.queue(path)
        queue.catch_up()
        ready = [each for each in queue.messages.values() if each.is_receivable]
        if not queue.requires_session:
            found = queue.receive(holder, count, delete=delete)
            assert len(found) == min(count, len(ready)), "a receivable message was not received, or one that is not was"
            if not queue.is_partitioned:
                assert [each.sequence_number for each in found] == [each.sequence_number for each in ready[: len(found)]]
            self._received(queue, holder, found, delete)
            return
        try:
            found = queue.receive(holder, count, delete=delete, session_id=session)
        except ServiceBusFault as fault:
            assert fault.condition == "com.microsoft:session-lock-lost"
            return
        ready = [each for each in ready if each.session_id == session]
        assert [each.sequence_number for each in found] == [each.sequence_number for each in ready[:count]]
        self._received(queue, holder, found, delete)

    @rule(path=st.sampled_from(RECEIVED), holder=st.sampled_from(HOLDERS), delete=st.booleans())
    def receive_deferred(self, path: str, holder: str, delete: bool) -> None:
        queue = self.broker.queue(path)
        queue.catch_up()
        number = next((each.sequence_number for each in queue.messages.values() if each.state is MessageState.DEFERRED), None)
        if number is None:
            return
        was_locked = queue.messages.get(number).lock_token is not None  # type: ignore[union-attr]
        try:
            found = queue.receive_by_sequence_number(holder, [number], delete=delete)
        except ServiceBusFault as fault:
            assert was_locked
            assert fault.condition == "com.microsoft:message-not-found"
            return
        assert not was_locked
        self._received(queue, holder, found, delete)

    @rule(path=st.sampled_from(["q", "partitioned", "q/$DeadLetterQueue"]))
    def defer_next(self, path: str) -> None:
        queue = self.broker.queue(path)
        for each in queue.receive("deferrer", 1):
            self.taken(queue, [each])
            assert each.lock_token is not None
            queue.settle([each.lock_token], Disposition(DispositionStatus.DEFERED))
            assert each.state is MessageState.DEFERRED

    @rule(path=st.sampled_from(["q", "partitioned", "t/Subscriptions/one"]))
    def fail_next(self, path: str) -> None:
        queue = self.broker.queue(path)
        for each in queue.receive("failing", 1):
            self.taken(queue, [each])
            assert each.lock_token is not None
            queue.settle([each.lock_token], Disposition(DispositionStatus.ABANDONED))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), status=STATUSES)
    def settle(self, data: st.DataObject, status: DispositionStatus) -> None:
        token = data.draw(st.sampled_from(sorted(self.locks)))
        path, _ = self.locks.pop(token)
        queue = self.broker.queue(path)
        queue.catch_up()
        held = self.standing_for(queue, token)
        if queue.kind.is_sub_queue and status is DispositionStatus.SUSPENDED:
            status = DispositionStatus.COMPLETED
        key = None if held is None else self.home(path, held)
        try:
            queue.settle([token], Disposition(status))
        except ServiceBusFault as fault:
            assert fault.status == 410
            assert held is None or self.work is not None, "a lock that is held was called lost"
            return
        assert key is not None, "a lock that nobody has or had settled a message"
        self.former.pop(token, None)
        if status is DispositionStatus.COMPLETED:
            self.expected.pop(key)

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.locks)))
        queue = self.broker.queue(self.locks[token][0])
        queue.catch_up()
        held = self.standing_for(queue, token)
        try:
            (until,) = queue.renew_locks([token])
        except ServiceBusFault as fault:
            assert fault.status in (400, 410)
        else:
            assert until == self.broker.now + MINUTE
            assert held is not None, "a lock that nobody has or had was renewed"
            assert held.lock_token == token
            self.former.pop(token, None)

    @rule(holder=st.sampled_from(HOLDERS), session=st.sampled_from([None, *SESSIONS]))
    def accept(self, holder: str, session: str | None) -> None:
        queue = self.broker.queue("sessions")
        queue.catch_up()
        assert queue.sessions is not None
        held = {each.session_id: each.holder for each in queue.sessions if each.holder is not None}
        waiting = {each.session_id for each in queue.messages.values() if each.is_receivable} - set(held)
        try:
            lock = queue.accept_session(holder, session)
        except ServiceBusFault as fault:
            assert fault.condition == "com.microsoft:session-cannot-be-locked"
            assert session in held
            assert held[session] != holder
            return
        assert session is None or held.get(session, holder) == holder, "a session was taken from its holder"
        assert (lock is None) == (session is None and not waiting), "an available session was not found, or one that is not was"

    @rule(holder=st.sampled_from(HOLDERS), session=st.sampled_from(SESSIONS), status=st.sampled_from([None, DispositionStatus.DEFERED]))
    def work_on_session(self, holder: str, session: str, status: DispositionStatus | None) -> None:
        """Lock the next message of a session and keep it, or defer it."""
        queue = self.broker.queue("sessions")
        try:
            queue.accept_session(holder, session)
        except ServiceBusFault:
            return
        for each in queue.receive(holder, 1, session_id=session):
            self.taken(queue, [each])
            assert each.lock_token is not None
            if status is None:
                self._received(queue, holder, [each], delete=False)
            else:
                queue.settle([each.lock_token], Disposition(status))

    @rule(holder=st.sampled_from(HOLDERS), messages=st.booleans())
    def holder_goes(self, holder: str, messages: bool) -> None:
        had = [
            (path, each, each.lock_token, each.locked_until)
            for path, each in self.places()
            if each.holder == holder and each.lock_token is not None and not self._goes_with_session(path, each)
        ]
        self.broker.namespace.release_holder(holder, messages=messages)
        for path, each, token, until in had if messages else ():
            self.former[token] = (path, each.sequence_number, until)

    def _goes_with_session(self, path: str, each: StoredMessage) -> bool:
        """Whether its holder has the session too; then it has no lock of its own that could outlast the session's."""
        sessions = self.broker.queue(path).sessions
        session = None if sessions is None or each.session_id is None else sessions.get(each.session_id)
        return session is not None and session.holder == each.holder and each.sequence_number in session.locked

    @rule(milliseconds=st.sampled_from([1, SECOND, 20 * SECOND, MINUTE, HOUR]), advance=st.booleans())
    def pass_time(self, milliseconds: int, advance: bool) -> None:
        if advance:
            self.broker.pass_time(milliseconds)
            self.nothing_due_is_left()
        else:
            self.broker.now += milliseconds

    def nothing_due_is_left(self) -> None:
        now = self.broker.now
        due = self.broker.namespace.next_event()
        assert due is None or due > now, "something that was due did not happen"
        for path, each in self.places():
            if each.lock_token is not None:
                assert each.locked_until > now, f"a lock in {path} outlives its end"
            if each.state is MessageState.SCHEDULED:
                assert each.scheduled_enqueue_time is not None
                assert each.scheduled_enqueue_time > now, f"a message of {path} was not activated"
            if each.is_receivable and each.expires_at is not None:
                assert each.expires_at > now, f"a message of {path} did not expire"

    @rule(path=st.sampled_from(["q", "sessions", "t/Subscriptions/one"]), count=st.integers(1, 3))
    def purge(self, path: str, count: int) -> None:
        queue = self.broker.queue(path)
        queue.catch_up()
        before = {each.sequence_number: each for each in queue.messages.values()}
        deleted = queue.batch_delete(count, self.broker.now)
        gone = [each for number, each in before.items() if number not in queue.messages]
        assert len(gone) == deleted
        for each in gone:
            assert each.lock_token is None
            self.forget(path, each)

    # A transaction that moves a message from one queue to another

    @precondition(lambda self: self.work is None)
    @rule(commit_at_once=st.booleans())
    def move_in_transaction(self, commit_at_once: bool) -> None:
        queue = self.broker.queue("q")
        found = queue.receive("worker", 1)
        if not found:
            return
        (held,) = found
        self.taken(queue, found)
        assert held.lock_token is not None
        text, key = self.new_body(), self.home("q", held)
        self.work = self.broker.namespace.begin()
        self.work.settle(queue, [held.lock_token], Disposition(DispositionStatus.COMPLETED))
        self.work.send(self.broker.queue("partitioned"), [message(text)])
        self.moving = (key, text)
        self.moving_token = held.lock_token
        if commit_at_once:
            self.end_transaction(True)

    @precondition(lambda self: self.work is not None)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        assert self.work is not None
        work, self.work = self.work, None
        if not commit:
            work.rollback()
            return
        key, text = self.moving
        queue = self.broker.queue("q")
        queue.catch_up()
        still_held = any(each.lock_token == self.moving_token for each in queue.messages.values())
        try:
            work.commit()
        except ServiceBusFault as fault:
            assert fault.condition == "amqp:transaction:rollback"
            assert not still_held, "a transaction whose lock is held was refused"
            return
        assert still_held
        self.expected.pop(key)
        self.expect("partitioned", text, False)

    @precondition(lambda self: self.work is None)
    @rule()
    def restart(self) -> None:
        self.broker.restart()
        self.locks.clear()
        self.former.clear()

    # What always holds

    @invariant()
    def no_message_is_lost_or_in_two_places(self) -> None:
        found: dict[tuple[str, str], int] = {}
        for path, each in self.places():
            text = body(each)
            # What is scheduled at a topic stands for the copies to come.
            owners = TARGETS[path] if path == "t" else (path.split("/$")[0],)
            for owner in owners:
                found[owner, text] = found.get((owner, text), 0) + 1
        twice = [key for key, count in found.items() if count > 1]
        assert not twice, f"in two places: {twice}"
        assert not found.keys() - self.expected.keys(), f"came back: {found.keys() - self.expected.keys()}"
        missing = self.expected.keys() - found.keys()
        assert missing <= self.mortal, f"lost: {missing - self.mortal}"
        for key in missing:
            del self.expected[key]

    @invariant()
    def sequence_numbers_strictly_increase(self) -> None:
        for entity in self.broker.namespace:
            numbers = [each.sequence_number for each in entity.messages.values()]
            assert numbers == sorted(set(numbers))
        for record in self.broker.changes[getattr(self, "read", 0) :]:
            if type(record).__name__ == "NumbersIssued":
                key = (record.entity, record.partition_id)  # type: ignore[union-attr]
                assert record.last > self.highest.get(key, 0)  # type: ignore[union-attr]
                self.highest[key] = record.last  # type: ignore[union-attr]
        self.read = len(self.broker.changes)

    @invariant()
    def a_lock_has_one_holder_and_counts_agree(self) -> None:
        tokens: set[UUID] = set()
        for entity in self.broker.namespace:
            if isinstance(entity, Topic):
                assert all(each.state is MessageState.SCHEDULED for each in entity.messages.values())
                continue
            locked = [each for each in entity.messages.values() if each.lock_token is not None]
            assert all(each.holder is not None for each in locked)
            own = {each.lock_token for each in locked if each.lock_token is not None}
            assert len(own) == len(locked)
            assert not own & tokens
            tokens |= own
            if not entity.kind.is_sub_queue:
                assert all(each.delivery_count < 3 for each in entity.messages.values()), "delivered more often than allowed"
            counts = entity.counts()
            assert counts.active + counts.deferred + counts.scheduled == len(entity.messages)
            assert counts.locked == len(locked)
            if entity.sessions is not None:
                in_sessions = sum(len(session.messages) for session in entity.sessions)
                assert in_sessions == len(entity.messages)
                for session in entity.sessions:
                    assert session.holder is not None or not session.locked, "a lock outlives its session's"


TestServiceBus = ServiceBus.TestCase
TestServiceBus.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
