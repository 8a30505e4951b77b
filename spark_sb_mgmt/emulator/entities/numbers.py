"""Sequence numbers and partitions: 63-bit numbers that only grow; with partitions, the partition id in the top 16 bits.

The one rule: a number is given once, in this life or the next: each is recorded before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from spark_sb_mgmt.emulator.entities.changes import NumbersIssued
from spark_sb_mgmt.emulator.entities.context import Context
from spark_sb_mgmt.emulator.entities.message import IncomingMessage

PARTITION_COUNT = 16
PARTITION_SHIFT = 48
_LOW_BITS = (1 << PARTITION_SHIFT) - 1


def partition_of(sequence_number: int) -> int:
    return sequence_number >> PARTITION_SHIFT


def delivery_key(sequence_number: int) -> int:
    """A key by which messages are delivered: in order within a partition, and no partition before the others."""
    return (sequence_number & _LOW_BITS) << 16 | (sequence_number >> PARTITION_SHIFT)


def sequence_number_of(key: int) -> int:
    """The inverse of `delivery_key`."""
    return (key & 0xFFFF) << PARTITION_SHIFT | key >> 16


class SequenceNumbers:
    """The counter of one entity, which its sub-queues share: a dead-lettered message keeps its number."""

    def __init__(self, entity: str, partitioned: bool, context: Context) -> None:
        self._entity = entity
        self.partitioned = partitioned
        self._context = context
        self._last: dict[int, int] = {}
        self._turn = 0

    def issue(self, message: IncomingMessage) -> int:
        partition_id = self._partition(message) if self.partitioned else 0
        last = self._last.get(partition_id, 0) + 1
        self._last[partition_id] = last
        self._context.record(NumbersIssued, self._entity, partition_id, last)
        return partition_id << PARTITION_SHIFT | last

    def issue_all(self, messages: Sequence[IncomingMessage]) -> list[int]:
        """A number for each."""
        if self.partitioned or not messages:
            return [self.issue(message) for message in messages]
        before = self._last.get(0, 0)
        last = self._last[0] = before + len(messages)
        self._context.record(NumbersIssued, self._entity, 0, last)
        return list(range(before + 1, last + 1))

    def restore(self, partition_id: int, last: int) -> None:
        self._last[partition_id] = max(last, self._last.get(partition_id, 0))

    def _partition(self, message: IncomingMessage) -> int:
        # What must stay in order, or be compared with its like, stands in one partition.
        key = message.session_id or message.partition_key
        if key is not None:
            return crc32(key.encode("utf-8", "surrogateescape")) % PARTITION_COUNT
        self._turn = (self._turn + 1) % PARTITION_COUNT
        return self._turn
