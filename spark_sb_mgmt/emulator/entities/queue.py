"""A queue, a subscription, or a sub-queue of one, as receivers and management requests see it: the operations on sessions, and purging.

The one rule: a session has one holder. Whoever names a holder must be it; a management request that names none may read and set
state, which the service's own clients do over a link that it knows.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.changes import SessionStateSet
from spark_sb_mgmt.emulator.entities.context import Context
from spark_sb_mgmt.emulator.entities.events import Holder
from spark_sb_mgmt.emulator.entities.locking import LockingEntity, QueueKind
from spark_sb_mgmt.emulator.entities.message import MAX_ID_LENGTH, MessageState
from spark_sb_mgmt.emulator.entities.numbers import SequenceNumbers
from spark_sb_mgmt.emulator.entities.sessions import Session, SessionLock, SessionTable
from spark_sb_mgmt.emulator.entities.settings import QueueSettings

__all__ = ["ALL_SESSIONS", "Counts", "Queue", "QueueKind", "SessionLock"]

# last-updated-time with which get-message-sessions means all sessions (wire-facts.md section 2): the year 10000.
ALL_SESSIONS = 253_402_300_800_000
# Of one batch-delete-messages: the greater of the two limits that are documented (wire-facts.md section 2).
MAX_BATCH_DELETE = 4000


class Counts(NamedTuple):
    """How many messages are in which state; a locked one is active or deferred as well."""

    active: int
    deferred: int
    scheduled: int
    locked: int


class Queue(LockingEntity):
    """Every entity that messages are received from."""

    def __init__(
        self,
        path: str,
        context: Context,
        settings: QueueSettings,
        kind: QueueKind = QueueKind.QUEUE,
        numbers: SequenceNumbers | None = None,
    ) -> None:
        super().__init__(path, context, settings, kind, numbers)
        if not kind.is_sub_queue:
            # Nothing expires, is counted out, grouped or forwarded in a sub-queue; it waits to be looked at.
            plain = QueueSettings(
                lock_duration=settings.lock_duration,
                max_delivery_count=None,
                enable_partitioning=settings.enable_partitioning,
                max_message_size=settings.max_message_size,
            )
            self.dead_letter = self._sub_queue(QueueKind.DEAD_LETTER, plain)
            self.transfer_dead_letter = self._sub_queue(QueueKind.TRANSFER_DEAD_LETTER, plain)

    def _sub_queue(self, kind: QueueKind, settings: QueueSettings) -> Queue:
        return Queue(f"{self.path}/{kind.value}", self._context, settings, kind, self._numbers)

    def counts(self) -> Counts:
        """Counted anew, for tests and tools: linear."""
        states = [message.state for message in self.messages.values()]
        active, deferred, scheduled = (states.count(state) for state in MessageState)
        return Counts(active, deferred, scheduled, len(self._locks))

    # Sessions

    def accept_session(self, holder: Holder, session_id: str | None) -> SessionLock | None:
        """Lock a session for `holder`: the named one, which need not have messages, or the one that waits longest.

        None if no session waits: `SessionAvailable` tells when to ask again. A named session that another holds is a fault.
        """
        now = self.catch_up()
        self.check_receive()
        sessions = self._session_table()
        if session_id is None:
            session = sessions.next_waiting()
            if session is None:
                return None
        else:
            if len(session_id) > MAX_ID_LENGTH:
                raise faults.argument_out_of_range(f"A session id has at most {MAX_ID_LENGTH} characters.")
            existing = sessions.get(session_id)
            if existing is not None and existing.holder not in (None, holder):
                raise faults.session_cannot_be_locked(session_id)
            session = sessions.get_or_create(session_id)
        sessions.lock(session, holder, now + self.settings.lock_duration)
        self._context.watch(self)
        self._settle_waiting(session)
        return SessionLock(session.session_id, session.locked_until)

    def release_session(self, holder: Holder, session_id: str) -> None:
        """The holder closes its session; what it had locked there is receivable again, and no delivery is counted."""
        self.catch_up()
        session = self._session_table().get(session_id)
        if session is not None and session.holder == holder:
            self._free_session(session, count=False)

    def renew_session_lock(self, session_id: str, holder: Holder | None = None) -> int:
        """The new end of a session's lock."""
        now = self.catch_up()
        session = self._locked_session(session_id, holder)
        self._session_table().extend(session, now + self.settings.lock_duration)
        return session.locked_until

    def get_session_state(self, session_id: str, holder: Holder | None = None) -> bytes | None:
        self.catch_up()
        if holder is not None:
            self._locked_session(session_id, holder)
        session = self._session_table().get(session_id)
        return None if session is None else session.state

    def set_session_state(self, session_id: str, state: bytes | None, holder: Holder | None = None) -> None:
        """Set the state of a session; None clears it."""
        now = self.catch_up()
        if holder is not None:
            self._locked_session(session_id, holder)
        if state is not None and len(state) > self.max_message_size:
            raise faults.message_size_exceeded(
                f"The session state of {len(state)} bytes exceeds the limit of {self.max_message_size} bytes."
            )
        self.restore_session_state(session_id, state, now)
        self._context.record(SessionStateSet, self.path, session_id, state, now)

    def restore_session_state(self, session_id: str, state: bytes | None, updated: int) -> None:
        session = self._session_table().get_or_create(session_id)
        session.state, session.state_updated = state, updated
        self._settle_waiting(session)

    def get_message_sessions(self, last_updated_time: int, skip: int, top: int) -> list[str]:
        """Ids of sessions, in order: with `ALL_SESSIONS` those that have messages or state, else those whose state was set later."""
        self.catch_up()
        if skip < 0 or top <= 0:
            raise faults.argument_out_of_range(f"skip must not be negative and top must be positive, not {skip} and {top}.")
        if last_updated_time == ALL_SESSIONS:
            ids = [session.session_id for session in self._session_table() if session.messages or session.state is not None]
        else:
            ids = [
                session.session_id
                for session in self._session_table()
                if session.state is not None and session.state_updated is not None and session.state_updated > last_updated_time
            ]
        return sorted(ids)[skip : skip + top]

    def _session_table(self) -> SessionTable:
        if self.sessions is None:
            raise faults.not_allowed(f"'{self.path}' has no sessions: it was not created with RequiresSession.")
        return self.sessions

    def _locked_session(self, session_id: str, holder: Holder | None) -> Session:
        session = self._session_table().get(session_id)
        if session is None or session.holder is None or (holder is not None and session.holder != holder):
            raise faults.session_lock_lost(session_id)
        return session

    # Purging

    def batch_delete(self, message_count: int, enqueued_before: int, *, session_id: str | None = None) -> int:
        """Delete up to `message_count` messages that were enqueued before a time; how many were. Locked and scheduled ones stay."""
        self.catch_up()
        if self.is_partitioned:
            raise faults.not_allowed(f"batch-delete-messages is not there for partitioned entities such as '{self.path}'.")
        if not 0 < message_count <= MAX_BATCH_DELETE:
            raise faults.argument_out_of_range(f"message-count must be from 1 to {MAX_BATCH_DELETE}, not {message_count}.")
        index = self._peek_index(session_id)
        doomed = []
        for message in () if index is None else index.values():
            if message.lock_token is None and message.state is not MessageState.SCHEDULED and message.enqueued_time < enqueued_before:
                doomed.append(message)
                if len(doomed) == message_count:
                    break
        for message in doomed:
            self._remove(message)
        return len(doomed)
