"""Locks for rows that name deferred messages by their numbers: the first of the two steps in which they are settled.

The service locks all messages of a request or none, of one partition and one session; `deferred` finds what is in the way.

The one rule: what was locked is settled, given back, or known to be lost; a row whose message cannot be locked ends here, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.client import EntityClient, Messages
from spark_sb_mgmt.connection.planning import PARTITION_SHIFT
from spark_sb_mgmt.errors import MESSAGE_NOT_FOUND, RemoteProtocolError, SbMgmtError
from spark_sb_mgmt.operations.envelope import NOT_FOUND
from spark_sb_mgmt.spark.reading.deferred import Asked, DeferredMessages, Patience, Status, give_back, look, shown
from spark_sb_mgmt.spark.writing.dispositions import DISPOSITION_COLUMNS, by_disposition
from spark_sb_mgmt.spark.writing.row_groups import codes_of
from spark_sb_mgmt.spark.writing.sessions import no_sessions
from spark_sb_mgmt.spark.writing.write_operation import FAILED, OF_THE_WHOLE, UNKNOWN, Receipt, TaskAttempt, failure

_LOG: Final = logging.getLogger(__name__)
# The column that a row has once its message is locked. Its type keeps it out of the names of rows.
LOCK: Final = "_lock"
_REASONS: Final = {
    Status.MISSING: "there is no message of this number: it was settled before, or never there",
    Status.NOT_DEFERRED: "its message stands here and is not deferred: only deferred messages can be taken by their numbers",
    Status.LOCKED: "its message is locked by another receiver, or by a read of this application: it is free when that lock ends",
}
_NO_SESSIONS: Final = "has no sessions: leave column session_id out, or make it null"


class RowLocks:
    """The locks of one attempt. `disposition_status` is the option's."""

    def __init__(
        self, entity: EntityClient, attempt: TaskAttempt, page_size: int, disposition_status: str | None, patience: Patience | None = None
    ) -> None:
        self._entity = entity
        self._attempt = attempt
        self._page_size = page_size
        self._status = disposition_status
        self._patience = patience or Patience()
        self._started = self._patience.clock()
        self._receiving: DeferredMessages | None = None
        # Not known until a row names one.
        self._has_sessions: bool | None = None
        # What is locked at this moment, with its session.
        self._held: dict[UUID, str | None] = {}

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch | Receipt]:
        """The rows with their locks, as they are taken; receipts for those that could not be."""
        refused: list[tuple[Sequence[int], SbMgmtError]] = []

        def note(numbers: Sequence[int], error: SbMgmtError) -> None:
            if isinstance(error, OF_THE_WHOLE):
                raise error
            refused.append((numbers, error))

        if self._names_sessions_in_vain(rows):
            named = rows.column("session_id").is_valid()
            yield Receipt(rows.filter(named), FAILED, None, None, f"{self._entity.path!r} {_NO_SESSIONS}")
            rows = rows.filter(pc.invert(named))
        if not rows.num_rows:
            return
        mine = _Numbered(rows)
        self._receiving = self._receiver(note)
        for messages in self._receiving.receive_asked(mine.asked(self._page_size)):
            locked = mine.with_locks(messages)
            sessions = locked.column("session_id").to_pylist() if "session_id" in locked.schema.names else [None] * locked.num_rows
            self._held.update(zip(tokens_of(locked), sessions, strict=True))
            yield locked
        not_received, self._receiving = self._receiving.not_received, None
        for status in _REASONS:
            found = [number for number, reason in not_received.items() if reason is status]
            if found:
                yield from self._not_locked(mine.of(found), status)
        for numbers, error in refused:
            problem = failure(mine.of(numbers), error)
            yield replace(problem, status_description=f"it could not be locked, so it was not settled: {problem.status_description}")

    def _names_sessions_in_vain(self, rows: pa.RecordBatch) -> bool:
        if "session_id" not in rows.schema.names or rows.column("session_id").null_count == rows.num_rows:
            return False
        if self._has_sessions is None:
            self._has_sessions = no_sessions(self._entity) is None
        return not self._has_sessions

    def _receiver(self, refused: Any) -> DeferredMessages:
        patience, repeated = self._patience, self._attempt.may_not_be_first
        # What a killed attempt has locked was locked before this one started.
        left = patience.seconds - (patience.clock() - self._started)
        if repeated and left > 0:
            patience = replace(patience, seconds=left)
        return DeferredMessages(
            self._entity, page_size=self._page_size, was_killed=repeated and left > 0, patience=patience, refused=refused
        )

    def _not_locked(self, rows: pa.RecordBatch, status: Status) -> Iterator[Receipt]:
        for disposition, some in by_disposition(rows, self._status):
            if status is Status.MISSING and disposition.removes and self._attempt.may_not_be_first:
                text = "its message is gone: another attempt of this task settled it, or it was gone before"
                _LOG.warning(
                    "%d deferred messages of %s were gone when a repeated task came to them, most likely because an earlier attempt "
                    "settled them (sequence numbers %s)",
                    some.num_rows,
                    self._entity.path,
                    shown(_numbers(some).tolist()),
                )
                yield Receipt(some, UNKNOWN, NOT_FOUND, MESSAGE_NOT_FOUND, text, fails=False)
            else:
                yield Receipt(some, FAILED, NOT_FOUND, MESSAGE_NOT_FOUND, _REASONS[status])

    def gone(self, rows: pa.RecordBatch) -> Any:
        """Which of these messages are not there any more: a mask."""
        sessions = rows.column("session_id").to_pylist() if "session_id" in rows.schema.names else [None] * rows.num_rows
        numbers = _numbers(rows).tolist()
        found = look(self._entity, dict(zip(numbers, sessions, strict=True)))
        return np.array([found[number] is Status.MISSING for number in numbers])

    def ended(self, rows: pa.RecordBatch) -> None:
        """These locks are no more: used up, or lost."""
        for token in tokens_of(rows):
            self._held.pop(token, None)

    def give_back(self, rows: pa.RecordBatch) -> None:
        """What could not be settled is as it was before."""
        self._give_back({token: self._held[token] for token in tokens_of(rows) if token in self._held})

    def release(self) -> None:
        """Give back all that is locked, also what is just being asked for."""
        if self._receiving is not None:
            self._receiving.stop()
        self._give_back(self._held)

    def _give_back(self, locks: dict[UUID, str | None]) -> None:
        for session in set(locks.values()):
            give_back(self._entity, [token for token in locks if locks[token] == session], session)
        self._held = {token: session for token, session in self._held.items() if token not in locks}


class _Numbered:
    """Rows by their numbers, each of which is there once."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self._order = np.argsort(_numbers(rows))
        self._sorted = _numbers(rows)[self._order]

    def asked(self, page_size: int) -> Iterator[Asked]:
        """Requests for all of them. Rows of one disposition come together, so that what is locked in one request is settled in few."""
        rows, numbers = self._rows, _numbers(self._rows)
        names = [name for name in DISPOSITION_COLUMNS if name in rows.schema.names]
        dispositions = codes_of([rows.column(name) for name in names], rows.num_rows)
        has_session = "session_id" in names
        sessions = codes_of([rows.column("session_id")] if has_session else [], rows.num_rows)
        partitions = numbers >> PARTITION_SHIFT
        order = np.lexsort((numbers, dispositions, partitions, sessions))
        together = np.flatnonzero(np.diff(sessions[order]) | np.diff(partitions[order])) + 1
        for part in np.split(order, together):
            session = rows.column("session_id")[int(part[0])].as_py() if has_session else None
            for start in range(0, len(part), page_size):
                yield Asked(numbers[part[start : start + page_size]].tolist(), session)

    def of(self, numbers: Any) -> pa.RecordBatch:
        """The rows of some of their numbers."""
        places = np.minimum(np.searchsorted(self._sorted, numbers), len(self._sorted) - 1)
        if (self._sorted[places] != numbers).any():
            raise RemoteProtocolError("the answer has a message that was not asked for")
        return self._rows.take(pa.array(self._order[places]))

    def with_locks(self, messages: Messages) -> pa.RecordBatch:
        answer = decode_responses([messages.response], ["sequence_number", "lock_token"])
        rows = self.of(_numbers(answer))
        return pa.RecordBatch.from_arrays([*rows.columns, answer.column("lock_token").cast(pa.binary())], [*rows.schema.names, LOCK])


def is_locked(rows: pa.RecordBatch) -> bool:
    """Whether the rows name their messages by numbers, and have locks of ours."""
    return LOCK in rows.schema.names


def tokens_of(rows: pa.RecordBatch) -> list[UUID]:
    """The lock tokens of rows, ours or their own."""
    texts = rows.column(LOCK).cast(pa.string()) if is_locked(rows) else rows.column("lock_token")
    return [UUID(text) for text in texts.to_pylist()]


def _numbers(rows: pa.RecordBatch) -> Any:
    return rows.column("sequence_number").to_numpy(zero_copy_only=False)
