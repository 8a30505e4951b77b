"""Deleting all messages of an entity, or of one session, that were enqueued before a time (wire-facts.md, section 2).

The service deletes some of them with each request and says how many: at most as many as one request may be about, which depends on the
tier and is told by no document alike. So a purge asks with one fixed time until there is nothing left, and for fewer at once where it is
refused.

The one rule: only an answer of none is the end. A lost answer is no matter but for the count: what it may have deleted was to be deleted,
and the next request is about what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from spark_sb_mgmt.client import EntityClient, Messages
from spark_sb_mgmt.client.peeking import SCHEDULED
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import ArgumentError, SbMgmtError
from spark_sb_mgmt.operations.delete import SAFE_MESSAGE_COUNT, batch_delete_messages
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.times import to_datetime, to_milliseconds

_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
# How often answers of one purge may be lost; those to all that was in flight, which are lost at once, count as one.
_MOST_LOST: Final = 5
# Of what is left, how much is looked at.
_LOOKED_AT: Final = 100


class Limit:
    """How many messages one request may be about, as far as answers have told; one for all purges of a task."""

    def __init__(self, most: int) -> None:
        self.count = most

    def gives_way(self, asked: int, error: SbMgmtError) -> bool:
        """Whether to ask for fewer: `count` is less then."""
        if not isinstance(error, ArgumentError):
            return False
        if asked > SAFE_MESSAGE_COUNT:
            fewer = SAFE_MESSAGE_COUNT
        elif error.condition == _OUT_OF_RANGE and asked > 1:
            fewer = asked // 2
        else:
            return False
        self.count = min(self.count, fewer)
        return True


class Purge:
    """One entity or session. Messages enqueued at `before_ms` or later stay."""

    def __init__(self, limit: Limit, before_ms: int, session_id: str | None = None) -> None:
        self._limit = limit
        self._before_ms = before_ms
        self.session_id = session_id
        self.deleted = 0
        self._lost = 0
        self._losses = 0
        # The last answer was that there is nothing to delete.
        self.is_over = False
        self._left: list[int] = []

    def next_request(self) -> tuple[int, Request[int]]:
        """For how many it asks, and the request."""
        most = self._limit.count
        return most, batch_delete_messages(most, self._before_ms, self.session_id)

    def answered(self, asked: int, outcome: Outcome[int], *, was_in_flight: bool = False) -> None:
        """Raises what is the end of it. `was_in_flight`: beside a request whose answer was lost."""
        if not isinstance(outcome, SbMgmtError):
            self.deleted += outcome
            self.is_over = outcome == 0
        elif outcome.may_have_taken_effect and (was_in_flight or self._losses < _MOST_LOST):
            self._lost += 1
            self._losses += 0 if was_in_flight else 1
        elif not self._limit.gives_way(asked, outcome):
            raise outcome

    def run(self, entity: EntityClient) -> None:
        """To its end, with as many requests in flight as there are by default once there is something to delete."""
        self._ask(entity, 1, lambda: self.is_over or self.deleted > 0)
        if not self.is_over:
            self._ask(entity, None, lambda: self.is_over)
            # While others were in flight, none left was no answer to rely on: they may have held what was left.
            self.is_over = False
            self._ask(entity, 1, lambda: self.is_over)
        self.seen(entity.call(self.look()))

    def _ask(self, entity: EntityClient, depth: int | None, enough: Callable[[], bool]) -> None:
        asked: dict[int, int] = {}
        # Requests before this one were in flight when an answer was lost.
        since_loss = 0

        def requests() -> Iterator[Request[int]]:
            for position in count():
                if enough():
                    return
                asked[position], request = self.next_request()
                yield request

        for position, outcome in entity.pipeline(requests(), depth):
            losses = self._losses
            self.answered(asked.pop(position), outcome, was_in_flight=position < since_loss)
            if self._losses > losses:
                since_loss = max([position, *asked]) + 1

    def look(self) -> Request[Messages]:
        """What shows whether older messages are left."""
        return peek_message(0, _LOOKED_AT, self.session_id)

    def seen(self, messages: Messages) -> None:
        for message in messages:
            time = message.enqueued_time
            if message.state != SCHEDULED and time is not None and to_milliseconds(time) < self._before_ms:
                self._left.append(message.sequence_number)

    def __str__(self) -> str:
        before = to_datetime(self._before_ms).isoformat(timespec="milliseconds")
        least = "at least " if self._lost else ""
        said = f"deleted {least}{self.deleted} messages that were enqueued before {before}"
        if self._lost:
            said += f" (answers that were lost: {self._lost})"
        if self._left:
            said += (
                f"; {len(self._left)} older ones that a look showed are left, because they are locked, from sequence number "
                f"{self._left[0]} on"
            )
        return f"{said}; locked and scheduled messages are not deleted"
