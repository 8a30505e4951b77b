"""Changes between two commits, gathered and then written at once.

The one rule: of each thing only what is so at the commit is written. A message that came and went in between is not inserted; one that
moved is a removal there and an arrival here, in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from spark_sb_mgmt.amqp.encode import encode_value, utf8
from spark_sb_mgmt.emulator.entities import changes
from spark_sb_mgmt.emulator.storage.rules import encode_rule
from spark_sb_mgmt.errors import EncodeError
from spark_sb_mgmt.model import Rule

# So many new message ids of an entity, and those beyond its window are dropped: rare enough to cost nothing, often enough to stay small.
PURGE_EVERY = 1000
# A time that a sender gave may be greater than what an integer of SQLite holds; nobody lives to see the difference.
_MAX_INTEGER = 2**63 - 1
_PLAIN_HEADER = (None, None, None)

_PUT_MESSAGE = """
    INSERT OR REPLACE INTO messages (
        entity, sequence_number, enqueued_sequence_number, enqueued_time, ttl, expires_at, scheduled_enqueue_time, session_id,
        dead_letter_source, header, delivery_annotations, annotation_items, annotations, bare, state, delivery_count
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REMOVE_MESSAGE = "DELETE FROM messages WHERE entity = ? AND sequence_number = ?"
_UPDATE_MESSAGE = "UPDATE messages SET state = ?, delivery_count = ? WHERE entity = ? AND sequence_number = ?"
_PUT_NUMBERS = """
    INSERT INTO numbers (entity, partition_id, last) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET last = max(last, excluded.last)
"""
_PUT_SESSION_STATE = "INSERT OR REPLACE INTO session_states (entity, session_id, state, updated) VALUES (?, ?, ?, ?)"
_REMOVE_SESSION_STATE = "DELETE FROM session_states WHERE entity = ? AND session_id = ?"
_PUT_MESSAGE_ID = "INSERT OR IGNORE INTO message_ids (entity, time, message_id) VALUES (?, ?, ?)"
_PURGE_MESSAGE_IDS = "DELETE FROM message_ids WHERE entity = ? AND time <= ?"
_PUT_ENTITY = "INSERT OR IGNORE INTO entities (id, path) VALUES (?, ?)"
_OWN_RULES = "UPDATE entities SET own_rules = 1 WHERE id = ?"
_CLEAR_RULES = "DELETE FROM rules WHERE entity = ?"
_PUT_RULE = """
    INSERT INTO rules (entity, name, description) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET description = excluded.description
"""
_REMOVE_RULE = "DELETE FROM rules WHERE entity = ? AND name = ?"


class Pending:
    """`entities`: the numbers of the lower-case paths that the database knows."""

    def __init__(self, entities: Iterable[tuple[str, int]]) -> None:
        # By lower-case path, and by path as records spell it.
        self._ids = dict(entities)
        self._last_id = max(self._ids.values(), default=0)
        self._windows: dict[int, int] = {}
        # Of each entity, new message ids since the last purge, and the latest time of one. The first ids after a start purge:
        # otherwise those of short lives would add up.
        self._unpurged: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            changes.MessageStored: self._message_stored,
            changes.MessageUpdated: self._message_updated,
            changes.MessageRemoved: self._message_removed,
            changes.NumbersIssued: self._numbers_issued,
            changes.SessionStateSet: self._session_state_set,
            changes.MessageIdSeen: self._message_id_seen,
            changes.MessageIdsKept: self._message_ids_kept,
            changes.RulesCleared: self._rules_cleared,
            changes.RulePut: self._rule_put,
            changes.RuleRemoved: self._rule_removed,
        }
        self._new_entities: list[tuple[int, bytes]] = []
        # By entity and sequence number: the row, or None for a removal.
        self._messages: dict[tuple[int, int], tuple[Any, ...] | None] = {}
        # State and delivery count of messages that are in the database as they are otherwise.
        self._updates: dict[tuple[int, int], tuple[int, int]] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._session_states: dict[tuple[int, bytes], tuple[bytes, int] | None] = {}
        self._message_ids: list[tuple[int, int, bytes]] = []
        # Statements in order: rules change rarely, and their order means something.
        self._rules: list[tuple[str, tuple[Any, ...]]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing need be written. That an entity has a number is written with the first that is known of it."""
        return not (self._messages or self._updates or self._numbers or self._session_states or self._message_ids or self._rules)

    def clear(self) -> None:
        """All is written."""
        for gathered in (self._new_entities, self._message_ids, self._rules):
            gathered.clear()
        for latest in (self._messages, self._updates, self._numbers, self._session_states):
            latest.clear()

    # Gathering

    def add(self, change: changes.Change) -> None:
        entity = self._ids.get(change.entity)
        if entity is None:
            entity = self._number_of(change.entity)
        self._handlers[type(change)](change, entity)

    def _number_of(self, path: str) -> int:
        key = path.lower()
        entity = self._ids.get(key)
        if entity is None:
            self._last_id += 1
            entity = self._ids[key] = self._last_id
            self._new_entities.append((entity, utf8(key)))
        self._ids[path] = entity
        return entity

    def _message_stored(self, change: changes.MessageStored, entity: int) -> None:
        message = change.message
        key = entity, message.sequence_number
        self._updates.pop(key, None)
        self._messages[key] = (
            entity,
            message.sequence_number,
            message.enqueued_sequence_number,
            message.enqueued_time,
            _integer(message.ttl),
            _integer(message.expires_at),
            _integer(message.scheduled_enqueue_time),
            None if message.session_id is None else utf8(message.session_id),
            None if message.dead_letter_source is None else utf8(message.dead_letter_source),
            None if message.header == _PLAIN_HEADER else encode_value(message.header),
            message.delivery_annotations,
            message.annotation_items,
            message.annotations,
            message.bare,
            int(message.state),
            message.delivery_count,
        )

    def _message_updated(self, change: changes.MessageUpdated, entity: int) -> None:
        key = entity, change.sequence_number
        row = self._messages.get(key)
        if row is not None:
            self._messages[key] = (*row[:-2], change.state, change.delivery_count)
        elif key not in self._messages:
            self._updates[key] = change.state, change.delivery_count

    def _message_removed(self, change: changes.MessageRemoved, entity: int) -> None:
        self._messages[entity, change.sequence_number] = None

    def _numbers_issued(self, change: changes.NumbersIssued, entity: int) -> None:
        key = entity, change.partition_id
        self._numbers[key] = max(change.last, self._numbers.get(key, 0))

    def _session_state_set(self, change: changes.SessionStateSet, entity: int) -> None:
        # A session without state is as one whose state was never set, and need not be remembered.
        self._session_states[entity, utf8(change.session_id)] = None if change.state is None else (change.state, change.updated)

    def _message_id_seen(self, change: changes.MessageIdSeen, entity: int) -> None:
        self._message_ids.append((entity, change.time, utf8(change.message_id)))
        self._unpurged[entity] = self._unpurged.get(entity, PURGE_EVERY) + 1
        self._latest[entity] = max(change.time, self._latest.get(entity, change.time))

    def _message_ids_kept(self, change: changes.MessageIdsKept, entity: int) -> None:
        # Only for us to know: the configuration says it again at the next start.
        self._windows[entity] = change.window

    def _rules_cleared(self, change: changes.RulesCleared, entity: int) -> None:
        self._rules += ((_OWN_RULES, (entity,)), (_CLEAR_RULES, (entity,)))

    def _rule_put(self, change: changes.RulePut, entity: int) -> None:
        rule = change.rule
        if not isinstance(rule.description, Rule):
            raise EncodeError(f"rule '{rule.name}' has a {type(rule.description).__name__} for a description, not a Rule")
        self._rules.append((_PUT_RULE, (entity, utf8(rule.name.lower()), encode_rule(rule.description))))

    def _rule_removed(self, change: changes.RuleRemoved, entity: int) -> None:
        self._rules.append((_REMOVE_RULE, (entity, utf8(change.rule_name.lower()))))

    # Writing

    def write(self, connection: sqlite3.Connection) -> None:
        """All of it into the transaction that is open."""
        many = connection.executemany
        if self._new_entities:
            many(_PUT_ENTITY, self._new_entities)
        if self._messages:
            removed = [key for key, row in self._messages.items() if row is None]
            if removed:
                many(_REMOVE_MESSAGE, removed)
            if len(removed) < len(self._messages):
                many(_PUT_MESSAGE, [row for row in self._messages.values() if row is not None])
        if self._updates:
            many(_UPDATE_MESSAGE, [(*update, *key) for key, update in self._updates.items()])
        if self._numbers:
            many(_PUT_NUMBERS, [(*key, last) for key, last in self._numbers.items()])
        if self._session_states:
            many(_REMOVE_SESSION_STATE, [key for key, state in self._session_states.items() if state is None])
            many(_PUT_SESSION_STATE, [(*key, *state) for key, state in self._session_states.items() if state is not None])
        if self._message_ids:
            many(_PUT_MESSAGE_ID, self._message_ids)
            self._purge_message_ids(connection)
        for statement, values in self._rules:
            connection.execute(statement, values)

    def _purge_message_ids(self, connection: sqlite3.Connection) -> None:
        for entity in {entity for entity, _, _ in self._message_ids}:
            if self._unpurged[entity] >= PURGE_EVERY and entity in self._windows:
                connection.execute(_PURGE_MESSAGE_IDS, (entity, self._latest[entity] - self._windows[entity]))
                self._unpurged[entity] = 0


def _integer(value: int | None) -> int | None:
    return value if value is None or value <= _MAX_INTEGER else _MAX_INTEGER
