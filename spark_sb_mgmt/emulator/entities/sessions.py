"""Sessions of one entity: who holds which, what waits in each, and the state that applications keep there.

The one rule: a session that nobody holds and that has messages to receive is in `_waiting`, and nothing else is; so the next available
session is found at once, the one that waits longest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from spark_sb_mgmt.emulator.entities.events import Holder
from spark_sb_mgmt.emulator.entities.index import SequenceIndex
from spark_sb_mgmt.emulator.entities.message import StoredMessage
from spark_sb_mgmt.emulator.entities.numbers import delivery_key, sequence_number_of


class SessionLock(NamedTuple):
    session_id: str
    locked_until: int


class Session:
    """One session: its messages, its lock, its state."""

    __slots__ = ("_ready", "holder", "locked", "locked_until", "messages", "session_id", "state", "state_updated")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.messages: SequenceIndex[StoredMessage] = SequenceIndex()
        self._ready: list[int] = []
        # Messages whose lock lives and dies with the session's.
        self.locked: dict[int, StoredMessage] = {}
        self.holder: Holder | None = None
        self.locked_until = 0
        self.state: bytes | None = None
        self.state_updated: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self.messages and self.state is None and self.holder is None

    def add_ready(self, sequence_number: int) -> None:
        heappush(self._ready, delivery_key(sequence_number))

    def has_ready(self) -> bool:
        # Messages that left while they waited are forgotten only when they come to the front.
        while self._ready:
            message = self.messages.get(sequence_number_of(self._ready[0]))
            if message is not None and message.is_receivable:
                return True
            heappop(self._ready)
        return False

    def pop_ready(self) -> StoredMessage | None:
        if not self.has_ready():
            return None
        return self.messages.get(sequence_number_of(heappop(self._ready)))


class SessionTable:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._waiting: dict[str, None] = {}
        self._expiry: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def get_or_create(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    def settle_waiting(self, session: Session) -> bool:
        """Put a session where it belongs after any change; True if it can now be accepted and could not before."""
        session_id = session.session_id
        if session.is_empty:
            self._sessions.pop(session_id, None)
        if session.holder is None and session.has_ready():
            newly = session_id not in self._waiting
            self._waiting[session_id] = None
            return newly
        self._waiting.pop(session_id, None)
        return False

    def next_waiting(self) -> Session | None:
        for session_id in self._waiting:
            return self._sessions[session_id]
        return None

    def lock(self, session: Session, holder: Holder, until: int) -> None:
        session.holder = holder
        self.extend(session, until)

    def extend(self, session: Session, until: int) -> None:
        session.locked_until = until
        for message in session.locked.values():
            message.locked_until = until
            message.changed()
        heappush(self._expiry, (until, session.session_id))

    def next_due(self) -> int | None:
        while self._expiry:
            until, session_id = self._expiry[0]
            session = self._sessions.get(session_id)
            if session is not None and session.holder is not None and session.locked_until == until:
                return until
            heappop(self._expiry)
        return None

    def pop_due(self, now: int) -> Session | None:
        due = self.next_due()
        if due is None or due > now:
            return None
        return self._sessions[heappop(self._expiry)[1]]
