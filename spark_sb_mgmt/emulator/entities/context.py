"""What every entity of a namespace shares: time, lock tokens, the journal, events, and the way to another entity.

The one rule: nothing outside comes in but through here, so that a test owns time and chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Protocol
from uuid import UUID

from spark_sb_mgmt.emulator.entities.changes import Change, Journal
from spark_sb_mgmt.emulator.entities.events import Event

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.entities.message import IncomingMessage

_P = ParamSpec("_P")
# Milliseconds since the Unix epoch.
Clock = Callable[[], int]

# Auto-forwarding ends here, so that a circle of entities does too.
MAX_FORWARD_HOPS = 4


class Timed(Protocol):
    """Something that happens by itself when its time has come."""

    def next_due(self) -> int | None: ...

    def run_due(self, now: int) -> None: ...


class Destination(Protocol):
    """An entity that another one forwards to."""

    path: str

    def check_send(self, message: IncomingMessage) -> None: ...

    def accept_forwarded(
        self, message: IncomingMessage, enqueued_sequence_number: int, hops: int, dead_letter_source: str | None
    ) -> None: ...


class Context:
    def __init__(self, clock: Clock, new_lock_token: Callable[[], UUID], journal: Journal | None) -> None:
        self._clock = clock
        # The time of the operation that is under way: within one, time stands still, so that what was checked still holds.
        self.time = 0
        self.new_lock_token = new_lock_token
        self._journal = journal
        # Insertion-ordered, and each event once however often it occurred.
        self._events: dict[Event, None] = {}
        # Entities that have something due at some time; they enter when they schedule it and leave when nothing is left.
        self._timed: dict[Timed, None] = {}
        self.find: Callable[[str], Destination]

    def tick(self) -> int:
        """Look at the clock. Time never goes back: a lock that expired stays expired whatever the machine's clock does."""
        self.time = max(self.time, self._clock())
        return self.time

    def record(self, change: Callable[_P, Change], *given: _P.args, **named: _P.kwargs) -> None:
        """A change of this kind. It is not even made where nobody keeps it."""
        if self._journal is not None:
            self._journal.append(change(*given, **named))

    @property
    def records(self) -> bool:
        """Whether anybody keeps changes."""
        return self._journal is not None

    def emit(self, event: Event) -> None:
        self._events[event] = None

    def take_events(self) -> list[Event]:
        if not self._events:
            return []
        events = list(self._events)
        self._events.clear()
        return events

    def watch(self, timed: Timed) -> None:
        self._timed[timed] = None

    def next_event(self) -> int | None:
        earliest: int | None = None
        for timed in list(self._timed):
            due = timed.next_due()
            if due is None:
                del self._timed[timed]
            elif earliest is None or due < earliest:
                earliest = due
        return earliest

    def advance(self, now: int) -> None:
        self.time = max(self.time, now)
        # Again until nothing is left: what one entity activates, another may have to expire or pass on.
        due_found = True
        while due_found:
            due_found = False
            for timed in list(self._timed):
                due = timed.next_due()
                if due is not None and due <= self.time:
                    timed.run_due(self.time)
                    due_found = True
