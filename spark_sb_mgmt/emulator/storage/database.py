"""The database file in the data directory: made, recognised, and held by one process.

The one rule: nothing is written to a file before it is known to be ours and of a format that we know.

The write-ahead log with synchronous=FULL is synced at every commit, so a commit that returned survives power loss. The exclusive locking
mode takes SQLite's own lock at the first access and keeps it until the connection closes, also by SIGKILL: there is no lock file to be
left behind.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from spark_sb_mgmt.errors import SbMgmtError

FILE_NAME = "emulator.sqlite3"
# "sbEm": by this a file is known to be an emulator's.
APPLICATION_ID = 0x7362456D
FORMAT = 1

# Current state, not a log: the file is bounded by the most that ever stood in it at a time.
# Texts are blobs, because text that was read from invalid UTF-8 is none to SQLite.
_SCHEMA = (
    # Entities are known by number, their lower-case paths stand here once.
    """
    CREATE TABLE entities (
        id INTEGER PRIMARY KEY,
        path BLOB NOT NULL UNIQUE,
        -- 1: the rules of this subscription are those of the table, not the configuration's.
        own_rules INTEGER NOT NULL DEFAULT 0
    )
    """,
    # With a rowid: SQLite keeps a row of up to a page in one piece only in such a table.
    """
    CREATE TABLE messages (
        entity INTEGER NOT NULL,
        sequence_number INTEGER NOT NULL,
        enqueued_sequence_number INTEGER NOT NULL,
        enqueued_time INTEGER NOT NULL,
        state INTEGER NOT NULL,
        delivery_count INTEGER NOT NULL,
        ttl INTEGER,
        expires_at INTEGER,
        scheduled_enqueue_time INTEGER,
        session_id BLOB,
        dead_letter_source BLOB,
        header BLOB,
        delivery_annotations BLOB NOT NULL,
        annotation_items INTEGER NOT NULL,
        annotations BLOB NOT NULL,
        bare BLOB NOT NULL,
        UNIQUE (entity, sequence_number)
    )
    """,
    """
    CREATE TABLE numbers (
        entity INTEGER NOT NULL,
        partition_id INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (entity, partition_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE session_states (
        entity INTEGER NOT NULL,
        session_id BLOB NOT NULL,
        state BLOB NOT NULL,
        updated INTEGER NOT NULL,
        UNIQUE (entity, session_id)
    )
    """,
    # By time, as they are restored and dropped. An id that came again after its window stands twice until the first is dropped.
    """
    CREATE TABLE message_ids (
        entity INTEGER NOT NULL,
        time INTEGER NOT NULL,
        message_id BLOB NOT NULL,
        PRIMARY KEY (entity, time, message_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE rules (
        -- In the order in which rules were added.
        position INTEGER PRIMARY KEY,
        entity INTEGER NOT NULL,
        -- In lower case.
        name BLOB NOT NULL,
        description BLOB NOT NULL,
        UNIQUE (entity, name)
    )
    """,
)


class StorageError(SbMgmtError):
    """State cannot be kept on disk, or not be read from there. Whoever gets it must acknowledge nothing more."""


def connect(data_dir: Path) -> sqlite3.Connection:
    """The database in a directory, both made if they are not there; nobody else can open it until it is closed."""
    _make_directory(data_dir)
    path = data_dir / FILE_NAME
    # SQLite calls it a disk error. Asked, not tried: closing a file again would let go of the lock of a store that this process has open.
    if path.is_file() and not os.access(path, os.W_OK):
        raise StorageError(f"{path} is read-only: make it writable for this user, or choose another data directory.")
    try:
        # One thread at a time uses it, but not always the one that opened it.
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _cannot_open(data_dir, path, error) from error
    try:
        _prepare(connection, path)
        # The names of the files themselves must survive power loss too.
        _sync_directory(data_dir)
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise _cannot_open(data_dir, path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    is_new = _check_format(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StorageError(f"{path}: the file system does not support a write-ahead log; choose a data directory on a local disk.")
    connection.execute("PRAGMA synchronous=FULL")
    # Also where nothing is to be made: a file that cannot be written is found out now.
    connection.execute("BEGIN IMMEDIATE")
    if is_new:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.execute("COMMIT")


def _check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the database is yet to be made; an error if it is not ours to use."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application_id, version, tables) == (0, 0, 0):
        return True
    if application_id != APPLICATION_ID:
        raise StorageError(f"{path} is the database of another program; choose another data directory.")
    if version > FORMAT:
        raise StorageError(
            f"{path} has format {version}, and this version of the emulator knows formats up to {FORMAT}: "
            "use the newer version that wrote it, or choose another data directory."
        )
    if version != FORMAT:
        raise StorageError(f"{path} has format {version}, which no version of the emulator has written; restore it from a copy.")
    return False


def _cannot_open(data_dir: Path, path: Path, error: sqlite3.Error | OSError) -> StorageError:
    # By text: the error codes are there only from Python 3.11 on.
    problem = str(error)
    if "locked" in problem:
        return StorageError(f"the data directory {data_dir} is in use by another emulator: stop it, or choose another directory.")
    if "not a database" in problem:
        return StorageError(f"{path} is not a database: remove it if nothing in it is needed, or choose another data directory.")
    if "malformed" in problem:
        return StorageError(f"{path} is damaged ({problem}): restore it from a copy, or choose another data directory.")
    return StorageError(f"{path} cannot be opened for writing: {problem}. Choose a data directory that this user may write.")


def _make_directory(data_dir: Path) -> None:
    try:
        missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
        data_dir.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync_directory(path.parent)
    except OSError as error:
        raise StorageError(f"the data directory {data_dir} cannot be made: {error.strerror}.") from error


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
