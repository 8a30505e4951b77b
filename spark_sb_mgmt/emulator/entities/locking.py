"""Where messages wait, are locked, settled, deferred, expired and dead-lettered: all of a queue but what it says about its sessions.

The one rule: a message is in one place. It is receivable (active, no lock), locked by one holder, deferred, or scheduled; it leaves by
one of `_remove` (gone), `_dead_letter` (moved), `_activate` (enqueued anew).

Delivery counts follow the service: a delivery counts when it failed, by abandonment or by a lock that expired. So the header of a
first delivery says 0, and a session that its holder closes counts for none of its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from uuid import UUID

from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.changes import MessageStored, MessageUpdated
from spark_sb_mgmt.emulator.entities.context import MAX_FORWARD_HOPS, Context
from spark_sb_mgmt.emulator.entities.disposition import (
    DEAD_LETTER_ERROR_DESCRIPTION,
    DEAD_LETTER_REASON,
    MAX_DEAD_LETTER_TEXT,
    Disposition,
    DispositionStatus,
)
from spark_sb_mgmt.emulator.entities.entity import Entity, _listed
from spark_sb_mgmt.emulator.entities.events import Holder, MessagesAvailable, SessionAvailable, SessionLockLost
from spark_sb_mgmt.emulator.entities.former_locks import FORMER_HOLDER, FormerLock, FormerLocks
from spark_sb_mgmt.emulator.entities.index import SequenceIndex
from spark_sb_mgmt.emulator.entities.message import (
    IncomingMessage,
    MessageState,
    StoredMessage,
    with_application_properties,
)
from spark_sb_mgmt.emulator.entities.numbers import SequenceNumbers, delivery_key, partition_of, sequence_number_of
from spark_sb_mgmt.emulator.entities.sessions import Session, SessionTable
from spark_sb_mgmt.emulator.entities.settings import QueueSettings

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.entities.queue import Queue


class QueueKind(Enum):
    QUEUE = "queue"
    SUBSCRIPTION = "subscription"
    DEAD_LETTER = "$DeadLetterQueue"
    TRANSFER_DEAD_LETTER = "$Transfer/$DeadLetterQueue"

    @property
    def is_sub_queue(self) -> bool:
        return self in (QueueKind.DEAD_LETTER, QueueKind.TRANSFER_DEAD_LETTER)


class LockingEntity(Entity):
    """Holders are opaque: a lock belongs to whoever passed an equal holder. Lock tokens alone settle and renew (any connection may)."""

    def __init__(
        self,
        path: str,
        context: Context,
        settings: QueueSettings,
        kind: QueueKind = QueueKind.QUEUE,
        numbers: SequenceNumbers | None = None,
    ) -> None:
        numbers = numbers or SequenceNumbers(path, settings.enable_partitioning, context)
        super().__init__(
            path,
            context,
            numbers,
            default_message_time_to_live=settings.default_message_time_to_live,
            duplicate_detection_window=settings.duplicate_detection_window,
            max_message_size=settings.max_message_size,
        )
        self.settings = settings
        self.kind = kind
        self._is_sub_queue = kind.is_sub_queue
        self.sessions = SessionTable() if settings.requires_session else None
        # Made by Queue; None for a sub-queue, which has none of its own.
        self.dead_letter: Queue | None = None
        self.transfer_dead_letter: Queue | None = None
        self._ready: list[int] = []
        self._locks: dict[UUID, StoredMessage] = {}
        self._former_locks = FormerLocks()
        # Every message lock lasts equally long and time does not go back, so locks end in the order in which they were taken or renewed.
        self._lock_ends: deque[tuple[int, UUID]] = deque()
        self._expiry: list[tuple[int, int]] = []
        # Lock tokens that a transaction has settled and not yet committed.
        self._enlisted: set[UUID] = set()

    @property
    def requires_session(self) -> bool:
        return self.sessions is not None

    # Sending

    def check_send(self, message: IncomingMessage) -> None:
        if self._is_sub_queue:
            raise faults.not_allowed(f"'{self.path}' cannot be sent to; send to the entity that it belongs to.")
        super().check_send(message)
        # A queue that only forwards has no sessions of its own to assign messages to.
        if self.sessions is not None and message.session_id is None:
            raise faults.not_allowed(
                "The SessionId was not set on a message, and it cannot be sent to the entity. "
                "Entities that have session support enabled can only receive messages that have the SessionId set to a valid value. "
                f"Entity: '{self.path}'."
            )

    def _arrive(
        self,
        message: IncomingMessage,
        sequence_number: int,
        enqueued_sequence_number: int,
        hops: int,
        dead_letter_source: str | None,
    ) -> None:
        forward_to = self.settings.forward_to
        if forward_to is None:
            self._put(self._new(message, sequence_number, enqueued_sequence_number, dead_letter_source=dead_letter_source))
            return
        problem = self._forward(forward_to, message, enqueued_sequence_number, hops, dead_letter_source)
        if problem is not None:
            assert self.transfer_dead_letter is not None, "a sub-queue forwards nothing"
            stored = self._new(message, sequence_number, enqueued_sequence_number, dead_letter_source=dead_letter_source)
            stored.bare = _dead_letter_properties(stored.bare, *problem)
            self.transfer_dead_letter.adopt(stored)

    def _forward(
        self, to: str, message: IncomingMessage, enqueued_sequence_number: int, hops: int, dead_letter_source: str | None
    ) -> tuple[str, str] | None:
        """Pass a message on; the reason and description where that fails."""
        if hops >= MAX_FORWARD_HOPS:
            return "MaxTransferHopCountExceeded", f"The message was forwarded {hops} times; it stops at '{self.path}'."
        try:
            destination = self._context.find(to)
            destination.accept_forwarded(message, enqueued_sequence_number, hops + 1, dead_letter_source)
        except faults.ServiceBusFault as fault:
            return fault.condition.rpartition(":")[2], f"Forwarding from '{self.path}' to '{to}' failed: {fault.description}"
        return None

    def adopt(self, message: StoredMessage) -> None:
        """A sub-queue takes a message of its parent: same number, same enqueued time, nobody's lock, no end."""
        message.state = MessageState.ACTIVE
        message.lock_token, message.holder, message.locked_until = None, None, 0
        message.expires_at = None
        message.changed()
        self._put(message)

    def _place(self, message: StoredMessage) -> None:
        super()._place(message)
        self._place_in_session(message)
        if message.state is MessageState.ACTIVE:
            self._make_receivable(message)

    def _place_scheduled(self, messages: Sequence[StoredMessage]) -> None:
        super()._place_scheduled(messages)
        if self.sessions is not None:
            for message in messages:
                self._place_in_session(message)

    def _place_in_session(self, message: StoredMessage) -> None:
        if self.sessions is not None and message.session_id is not None:
            self.sessions.get_or_create(message.session_id).messages.add(message.sequence_number, message)

    def _make_receivable(self, message: StoredMessage) -> None:
        if message.expires_at is not None:
            # Each time anew: the entry of a message is dropped when it comes to the front while the message is locked.
            heappush(self._expiry, (message.expires_at, message.sequence_number))
            self._context.watch(self)
        if self.sessions is None:
            heappush(self._ready, delivery_key(message.sequence_number))
            self._context.emit(MessagesAvailable(self.path))
            return
        assert message.session_id is not None, "a session entity takes no message without session id"
        session = self.sessions.get_or_create(message.session_id)
        session.add_ready(message.sequence_number)
        if session.holder is not None:
            self._context.emit(MessagesAvailable(self.path, session.session_id, session.holder))
        self._settle_waiting(session)

    def _remove(self, message: StoredMessage) -> None:
        super()._remove(message)
        self._forget(message)

    def _remove_scheduled(self, messages: Sequence[StoredMessage]) -> None:
        super()._remove_scheduled(messages)
        # Nothing has locked them, so there is nothing else to forget.
        if self.sessions is not None:
            for message in messages:
                self._forget(message)

    def _forget(self, message: StoredMessage) -> None:
        self._former_locks.forget(message.sequence_number)
        if message.lock_token is not None:
            self._drop_lock(message)
        if self.sessions is not None and message.session_id is not None:
            session = self.sessions.get(message.session_id)
            if session is not None:
                session.messages.pop(message.sequence_number)
                self._settle_waiting(session)

    # Receiving

    def receive(
        self,
        holder: Holder,
        message_count: int,
        *,
        max_bytes: int | None = None,
        delete: bool = False,
        session_id: str | None = None,
    ) -> list[StoredMessage]:
        """Up to `message_count` messages in order, each locked for `holder` (`lock_token`, `locked_until`), or removed if `delete`.

        With `max_bytes` the message that reaches it is the last. Fewer, or none, is no error: `MessagesAvailable` tells when to ask
        again. On a session entity `holder` must have accepted `session_id`.
        """
        now = self.catch_up()
        self.check_receive()
        session = self._held_session(session_id, holder)
        received: list[StoredMessage] = []
        taken = 0
        while len(received) < message_count and (max_bytes is None or taken < max_bytes):
            message = self._next_ready() if session is None else session.pop_ready()
            if message is None:
                break
            if delete:
                self._remove(message)
            else:
                self._lock(message, holder, now, session)
            received.append(message)
            taken += message.size
        return received

    def check_receive(self) -> None:
        """A fault if nothing can ever be received here."""
        if self.settings.forward_to is not None:
            raise faults.not_allowed(f"'{self.path}' forwards its messages to '{self.settings.forward_to}': receive them there.")

    def _next_ready(self) -> StoredMessage | None:
        while self._ready:
            message = self.messages.get(sequence_number_of(heappop(self._ready)))
            if message is not None and message.is_receivable:
                return message
        return None

    def receive_by_sequence_number(
        self, holder: Holder, sequence_numbers: Sequence[int], *, delete: bool = False, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Deferred messages by their numbers: all of them, or a fault and none."""
        now = self.catch_up()
        self.check_receive()
        numbers = list(dict.fromkeys(sequence_numbers))
        if not numbers:
            raise faults.argument_error("There is no sequence number in the request.")
        if self.is_partitioned and len({partition_of(number) for number in numbers}) > 1:
            raise faults.argument_error("The sequence numbers of one request must be of one partition.")
        found: list[StoredMessage] = []
        missing: list[int] = []
        for number in numbers:
            message = self.messages.get(number)
            if (
                message is None
                or message.state is not MessageState.DEFERRED
                or message.lock_token is not None
                or (session_id is not None and message.session_id != session_id)
            ):
                missing.append(number)
            else:
                found.append(message)
        if missing:
            raise faults.message_not_found(
                f"Failed to lock one or more specified messages. The message does not exist, is not deferred, or is locked: "
                f"{_listed(missing)} in '{self.path}'."
            )
        for message in found:
            if delete:
                self._remove(message)
            else:
                session = None
                if self.sessions is not None and message.session_id is not None:
                    session = self.sessions.get(message.session_id)
                self._lock(message, holder, now, session if session is not None and session.holder is not None else None)
        return found

    # Locks

    def _lock(self, message: StoredMessage, holder: Holder, now: int, session: Session | None) -> None:
        token = self._context.new_lock_token()
        self._former_locks.forget(message.sequence_number)
        message.lock_token, message.holder = token, holder
        self._locks[token] = message
        if session is not None:
            message.locked_until = session.locked_until
            session.locked[message.sequence_number] = message
        else:
            self._extend_lock(message, now)
        message.changed()

    def _extend_lock(self, message: StoredMessage, now: int) -> None:
        assert message.lock_token is not None, "only a locked message has a lock to extend"
        message.locked_until = now + self.settings.lock_duration
        message.changed()
        self._lock_ends.append((message.locked_until, message.lock_token))
        self._context.watch(self)

    def _drop_lock(self, message: StoredMessage) -> None:
        assert message.lock_token is not None, "only a locked message has a lock to drop"
        del self._locks[message.lock_token]
        self._enlisted.discard(message.lock_token)
        if self.sessions is not None and message.session_id is not None:
            session = self.sessions.get(message.session_id)
            if session is not None:
                session.locked.pop(message.sequence_number, None)
        message.lock_token, message.holder, message.locked_until = None, None, 0
        message.changed()

    def renew_locks(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """New ends of message locks, in the order of the tokens: all are renewed or none."""
        now = self.catch_up()
        messages = [self._locked(token) for token in lock_tokens]
        if any(self._session_of(message) is not None for message in messages):
            raise faults.not_allowed("The lock of a message in a session is the session's: use renew-session-lock.")
        for token in lock_tokens:
            self._extend_lock(self._take_back(token), now)
        return [message.locked_until for message in messages]

    def _locked(self, token: UUID) -> StoredMessage:
        """The message that this token has locked, or has had if nobody took it since; a fault if there is none."""
        message = self._locks.get(token)
        if message is None:
            former = self._former_locks.find(token, self._context.time)
            message = None if former is None else self.messages.get(former.sequence_number)
        if message is not None and token not in self._enlisted:
            return message
        if self.sessions is not None:
            raise faults.ServiceBusFault(
                410,
                "com.microsoft:session-lock-lost",
                f"The session lock was lost, or the message was settled before. Lock token: {token}.",
            )
        raise faults.message_lock_lost(token)

    def _take_back(self, token: UUID) -> StoredMessage:
        """A message that `_locked` has found, under its lock again if that was a former one."""
        message = self._locks.get(token)
        if message is None:
            message = self._locked(token)
            self._former_locks.forget(message.sequence_number)
            message.lock_token, message.holder = token, FORMER_HOLDER
            self._locks[token] = message
            self._extend_lock(message, self._context.time)
        return message

    def _session_of(self, message: StoredMessage) -> Session | None:
        """The session whose lock holds this message, if that is how it is held."""
        if self.sessions is None or message.session_id is None:
            return None
        session = self.sessions.get(message.session_id)
        return session if session is not None and message.sequence_number in session.locked else None

    def release_holder(self, holder: Holder, *, messages: bool) -> None:
        """The holder is gone: its sessions are free at once, and so are its messages if `messages`. Nothing here counts as a failed
        delivery. Messages that nobody takes can still be settled by the tokens of these locks, while they would have lasted."""
        self.catch_up()
        if self.sessions is not None:
            for session in [session for session in self.sessions if session.holder == holder]:
                self._free_session(session, count=False)
        if messages:
            for message in [message for message in self._locks.values() if message.holder == holder]:
                token, until = message.lock_token, message.locked_until
                self._unlock(message, count=False)
                if token is not None and message.sequence_number in self.messages:
                    self._former_locks.add(token, FormerLock(message.sequence_number, until))

    def _unlock(self, message: StoredMessage, *, count: bool) -> None:
        """The message is receivable again, unless that was one time too often or too late."""
        self._drop_lock(message)
        if count:
            message.delivery_count += 1
            limit = self.settings.max_delivery_count
            if limit is not None and message.delivery_count >= limit:
                self._dead_letter(
                    message,
                    "MaxDeliveryCountExceeded",
                    f"Message could not be consumed after {message.delivery_count} delivery attempts.",
                )
                return
            self._record_update(message)
        if message.state is MessageState.ACTIVE:
            if message.expires_at is not None and message.expires_at <= self._context.time:
                self._expire(message)
            else:
                self._make_receivable(message)

    def _record_update(self, message: StoredMessage) -> None:
        self._context.record(MessageUpdated, self.path, message.sequence_number, int(message.state), message.delivery_count)

    # Settling

    def check_settle(self, lock_tokens: Sequence[UUID], disposition: Disposition) -> None:
        """A fault if not all of these can be settled so."""
        if not lock_tokens:
            raise faults.argument_error("There is no lock token in the request.")
        for token in lock_tokens:
            self._locked(token)
        if disposition.status is DispositionStatus.SUSPENDED:
            if self.kind.is_sub_queue:
                raise faults.not_allowed(f"A message of '{self.path}' is dead-lettered already.")
            for text in (disposition.deadletter_reason, disposition.deadletter_description):
                if text is not None and len(text) > MAX_DEAD_LETTER_TEXT:
                    raise faults.argument_out_of_range(
                        f"A dead-letter reason or description has at most {MAX_DEAD_LETTER_TEXT} characters, not {len(text)}."
                    )

    def settle(self, lock_tokens: Sequence[UUID], disposition: Disposition) -> None:
        """Settle locked messages: all or none. A lock that ended is a fault, message-lock-lost or session-lock-lost."""
        self.catch_up()
        self.check_settle(lock_tokens, disposition)
        self.settle_checked(lock_tokens, disposition)

    def settle_checked(self, lock_tokens: Sequence[UUID], disposition: Disposition) -> None:
        """Settle what `check_settle` found right at this same moment: for a transaction, which checks all before it settles any."""
        for token in dict.fromkeys(lock_tokens):
            self._settle_one(self._take_back(token), disposition)

    def _settle_one(self, message: StoredMessage, disposition: Disposition) -> None:
        status = disposition.status
        if status is DispositionStatus.COMPLETED:
            self._remove(message)
            return
        modified = with_application_properties(message.bare, disposition.properties_to_modify)
        if status is DispositionStatus.SUSPENDED:
            message.bare = modified
            self._dead_letter(message, disposition.deadletter_reason, disposition.deadletter_description)
            return
        if modified is not message.bare:
            message.bare = modified
            message.changed()
            self._record_whole(message)
        if status is DispositionStatus.DEFERED:
            self._drop_lock(message)
            message.state = MessageState.DEFERRED
            message.changed()
            self._record_update(message)
        else:
            self._unlock(message, count=status is DispositionStatus.ABANDONED)

    def enlist(self, lock_tokens: Sequence[UUID], disposition: Disposition) -> None:
        """A transaction settles these when it commits; until then nobody else can, and the locks go on."""
        self.catch_up()
        self.check_settle(lock_tokens, disposition)
        for token in lock_tokens:
            self._take_back(token)
        self._enlisted.update(lock_tokens)

    def unlist(self, lock_tokens: Sequence[UUID]) -> None:
        self._enlisted.difference_update(lock_tokens)

    def _record_whole(self, message: StoredMessage) -> None:
        self._context.record(MessageStored, self.path, message)

    # Leaving

    def _dead_letter(self, message: StoredMessage, reason: str | None, description: str | None) -> None:
        """Move a message to the dead-letter queue, or to where the entity forwards its dead letters."""
        self._remove(message)
        self._to_dead_letter(message, reason, description)

    def dead_letter_arrival(self, message: IncomingMessage, enqueued_sequence_number: int, reason: str, description: str) -> None:
        """A message that comes to this entity and cannot stand in it."""
        stored = self._new(message, self._numbers.issue(message), enqueued_sequence_number)
        self._to_dead_letter(stored, reason, description)

    def _to_dead_letter(self, message: StoredMessage, reason: str | None, description: str | None) -> None:
        assert self.dead_letter is not None, "a sub-queue dead-letters nothing"
        message.bare = _dead_letter_properties(message.bare, reason, description)
        message.lock_token, message.holder, message.locked_until = None, None, 0
        message.changed()
        forward_to = self.settings.forward_dead_lettered_messages_to
        if forward_to is not None:
            incoming = message.as_incoming()
            if self._forward(forward_to, incoming, message.enqueued_sequence_number, 0, self.path) is None:
                return
        self.dead_letter.adopt(message)

    def _expire(self, message: StoredMessage) -> None:
        if self.settings.dead_lettering_on_message_expiration:
            self._dead_letter(message, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self._remove(message)

    # Time

    def next_due(self) -> int | None:
        dues = [super().next_due()]
        # A message that left, or a lock that was settled or renewed, leaves its entry behind; those in front are cleared here.
        while self._expiry and not self._is_to_expire(*self._expiry[0]):
            heappop(self._expiry)
        if self._expiry:
            dues.append(self._expiry[0][0])
        while self._lock_ends and not self._is_lock_end(*self._lock_ends[0]):
            self._lock_ends.popleft()
        if self._lock_ends:
            dues.append(self._lock_ends[0][0])
        if self.sessions is not None:
            dues.append(self.sessions.next_due())
        return min((due for due in dues if due is not None), default=None)

    def run_due(self, now: int) -> None:
        super().run_due(now)
        while self._lock_ends and self._lock_ends[0][0] <= now:
            end, token = self._lock_ends.popleft()
            if self._is_lock_end(end, token):
                self._unlock(self._locks[token], count=True)
        if self.sessions is not None:
            while (session := self.sessions.pop_due(now)) is not None:
                holder = session.holder
                assert holder is not None, "only a held session has a lock that ends"
                self._context.emit(SessionLockLost(self.path, session.session_id, holder))
                self._free_session(session, count=True)
        while self._expiry and self._expiry[0][0] <= now:
            due, number = heappop(self._expiry)
            message = self.messages.get(number)
            if message is not None and self._is_to_expire(due, number):
                self._expire(message)

    def _is_lock_end(self, end: int, token: UUID) -> bool:
        message = self._locks.get(token)
        return message is not None and message.locked_until == end

    def _is_to_expire(self, due: int, sequence_number: int) -> bool:
        # A locked message expires when it is unlocked, a deferred one never: both by the service's design.
        message = self.messages.get(sequence_number)
        return message is not None and message.expires_at == due and message.is_receivable

    # Sessions, as far as receiving needs them

    def _held_session(self, session_id: str | None, holder: Holder) -> Session | None:
        if self.sessions is None:
            if session_id is not None:
                raise faults.not_allowed(f"'{self.path}' has no sessions.")
            return None
        if session_id is None:
            raise faults.not_allowed(
                f"It is not possible for an entity that requires sessions to create a non-sessionful message receiver: '{self.path}'."
            )
        session = self.sessions.get(session_id)
        if session is None or session.holder != holder:
            raise faults.session_lock_lost(session_id)
        return session

    def _free_session(self, session: Session, *, count: bool) -> None:
        """Nobody holds the session any more; what was locked in it is receivable again."""
        for message in list(session.locked.values()):
            self._unlock(message, count=count)
        session.holder, session.locked_until = None, 0
        self._settle_waiting(session)
        self._context.emit(SessionAvailable(self.path))

    def _settle_waiting(self, session: Session) -> None:
        assert self.sessions is not None, "only a session entity has sessions"
        if self.sessions.settle_waiting(session):
            self._context.emit(SessionAvailable(self.path))

    def _peek_index(self, session_id: str | None) -> SequenceIndex[StoredMessage] | None:
        if session_id is None or self.sessions is None:
            return super()._peek_index(session_id)
        session = self.sessions.get(session_id)
        return None if session is None else session.messages

    # Recovery

    def restore_update(self, sequence_number: int, state: int, delivery_count: int) -> None:
        super().restore_update(sequence_number, state, delivery_count)
        message = self.messages.get(sequence_number)
        if message is not None and self.sessions is not None and message.session_id is not None:
            # The session may have waited for this message alone.
            self._settle_waiting(self.sessions.get_or_create(message.session_id))

    def restore_removal(self, sequence_number: int) -> None:
        message = self.messages.get(sequence_number)
        super().restore_removal(sequence_number)
        if message is not None:
            self._forget(message)


def _dead_letter_properties(bare: bytes, reason: str | None, description: str | None) -> bytes:
    given = ((DEAD_LETTER_REASON, reason), (DEAD_LETTER_ERROR_DESCRIPTION, description))
    return with_application_properties(bare, Map((key, text) for key, text in given if text is not None))
