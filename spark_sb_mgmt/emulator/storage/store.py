"""The journal that keeps the state of a namespace in a data directory.

The one rule: when `commit` returns, all that was appended before is on disk; when it raises, nothing may be acknowledged any more, and the
store takes no further commit. What is in the database is the state after the last commit that was completed, whole.

State of an entity that is no longer configured stays in the database: it is there again when the entity is. The file does not shrink;
the room of what was removed is used again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from spark_sb_mgmt.amqp.decode import decode_single
from spark_sb_mgmt.amqp.types import Value
from spark_sb_mgmt.emulator.entities.changes import (
    Change,
    MessageIdSeen,
    MessageStored,
    NumbersIssued,
    RulePut,
    RulesCleared,
    SessionStateSet,
)
from spark_sb_mgmt.emulator.entities.message import MessageState, StoredMessage
from spark_sb_mgmt.emulator.entities.rules import RuleCompiler
from spark_sb_mgmt.emulator.storage.database import FILE_NAME, StorageError, connect
from spark_sb_mgmt.emulator.storage.pending import Pending
from spark_sb_mgmt.emulator.storage.rules import decode_rule
from spark_sb_mgmt.errors import EncodeError, SbMgmtError


class Store:
    """Open it with `Store.open`. One thread at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path, compile_rule: RuleCompiler) -> None:
        self._connection = connection
        self._path = path
        self._compile_rule = compile_rule
        self._failure: str | None = None
        try:
            self._pending = Pending((_text(path), entity) for path, entity in connection.execute("SELECT path, id FROM entities"))
        except _UNREADABLE as error:
            raise _damaged(path, error) from error

    @classmethod
    def open(cls, data_dir: Path, *, compile_rule: RuleCompiler) -> Store:
        """The store of a directory, which is made if it is not there.

        A `StorageError` if another emulator has it open, it cannot be written, or what is in it is not ours to use.
        """
        connection = connect(data_dir)
        try:
            return cls(connection, data_dir / FILE_NAME, compile_rule)
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the directory. What was not committed is lost, as it was not acknowledged; closing twice is harmless."""
        self._connection.close()

    # Writing

    def append(self, change: Change, /) -> None:
        """A change that belongs to the next commit."""
        try:
            self._pending.add(change)
        except EncodeError as error:
            # The state in memory has the change and the disk never will: nothing after it can be kept either.
            self._failure = f"a change of '{change.entity}' cannot be kept in {self._path}: {error}."
            raise StorageError(self._failure) from error

    def commit(self) -> None:
        """All that was appended is on disk."""
        if self._failure is not None:
            raise StorageError(self._failure)
        if self._pending.is_empty:
            return
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._pending.write(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            self._failure = (
                f"{self._path} cannot be written: {error}. "
                "What was not acknowledged may be lost; make room or mend the disk, and start again."
            )
            raise StorageError(self._failure) from error
        except BaseException:
            # Interrupted: all of it is still pending, and writing it again changes nothing.
            self._roll_back()
            raise
        self._pending.clear()

    def _roll_back(self) -> None:
        # SQLite has done so itself after most errors.
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    # Reading

    def read(self) -> Iterator[Change]:
        """What was committed, as records that restore it, one by one; commit nothing until all are taken."""
        try:
            yield from self._read()
        except _UNREADABLE as error:
            raise _damaged(self._path, error) from error

    def _read(self) -> Iterator[Change]:
        rows = self._connection.execute
        paths = {entity: _text(path) for entity, path in rows("SELECT id, path FROM entities")}
        yield from self._read_rules(paths)
        for entity, partition_id, last in rows("SELECT entity, partition_id, last FROM numbers"):
            yield NumbersIssued(paths[entity], partition_id, last)
        for entity, message_id, time in rows("SELECT entity, message_id, time FROM message_ids ORDER BY entity, time"):
            yield MessageIdSeen(paths[entity], _text(message_id), time)
        for entity, session_id, state, updated in rows("SELECT entity, session_id, state, updated FROM session_states"):
            yield SessionStateSet(paths[entity], _text(session_id), state, updated)
        for entity, *columns in rows(_MESSAGES):
            yield MessageStored(paths[entity], _message(*columns))

    def _read_rules(self, paths: dict[int, str]) -> Iterator[Change]:
        for (entity,) in self._connection.execute("SELECT id FROM entities WHERE own_rules"):
            yield RulesCleared(paths[entity])
        for entity, encoded in self._connection.execute("SELECT entity, description FROM rules ORDER BY position"):
            description = decode_rule(encoded)
            try:
                rule = self._compile_rule(description)
            except SbMgmtError as error:
                raise StorageError(f"{self._path}: rule '{description.name}' of '{paths[entity]}' cannot be used: {error}") from error
            yield RulePut(paths[entity], rule)


# What reading raises where pages or values are not what we wrote; a DecodeError is a ValueError.
_UNREADABLE = (sqlite3.Error, LookupError, TypeError, ValueError, AttributeError, OverflowError)


def _damaged(path: Path, error: Exception) -> StorageError:
    return StorageError(f"{path} cannot be read: {error}. Restore it from a copy, or choose another data directory.")


_MESSAGES = """
    SELECT entity, sequence_number, enqueued_sequence_number, enqueued_time, bare, state, delivery_count, ttl, expires_at,
        scheduled_enqueue_time, session_id, dead_letter_source, header, delivery_annotations, annotations, annotation_items
    FROM messages ORDER BY entity, sequence_number
"""
_STATES = {int(state): state for state in MessageState}


def _message(
    sequence_number: int,
    enqueued_sequence_number: int,
    enqueued_time: int,
    bare: bytes,
    state: int,
    delivery_count: int,
    ttl: int | None,
    expires_at: int | None,
    scheduled_enqueue_time: int | None,
    session_id: bytes | None,
    dead_letter_source: bytes | None,
    header: bytes | None,
    delivery_annotations: bytes,
    annotations: bytes,
    annotation_items: int,
) -> StoredMessage:
    return StoredMessage(
        sequence_number,
        enqueued_sequence_number,
        enqueued_time,
        bare=bare,
        state=_STATES[state],
        delivery_count=delivery_count,
        ttl=ttl,
        expires_at=expires_at,
        scheduled_enqueue_time=scheduled_enqueue_time,
        session_id=None if session_id is None else _text(session_id),
        dead_letter_source=None if dead_letter_source is None else _text(dead_letter_source),
        header=(None, None, None) if header is None else _header(header),
        delivery_annotations=delivery_annotations,
        annotations=annotations,
        annotation_items=annotation_items,
    )


# There are few different headers among millions of messages, which share them so.
@lru_cache(maxsize=256)
def _header(encoded: bytes) -> tuple[Value, Value, Value]:
    durable, priority, first_acquirer = decode_single(encoded)
    return durable, priority, first_acquirer


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
