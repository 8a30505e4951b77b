"""Which scheduled messages are due when.

The one rule: what stands here is what is scheduled now. A message that is cancelled leaves at once, so that no one comes across it later;
messages of one time share one entry, because they come by the thousand and are due together.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_sb_mgmt.emulator.entities.index import SequenceIndex


class Schedule:
    def __init__(self) -> None:
        # By time, the numbers of the messages that are due then.
        self._due: SequenceIndex[set[int]] = SequenceIndex()

    def add(self, time: int, sequence_numbers: Iterable[int]) -> None:
        due = self._due.get(time)
        if due is None:
            self._due.add(time, set(sequence_numbers))
        else:
            due.update(sequence_numbers)

    def discard(self, time: int, sequence_numbers: Iterable[int]) -> None:
        """These are not due any more, if they were."""
        due = self._due.get(time)
        if due is not None:
            due.difference_update(sequence_numbers)
            if not due:
                self._due.pop(time)

    def next_due(self) -> int | None:
        """The earliest time."""
        return self._due.first()

    def take_due(self, now: int) -> list[int]:
        """The messages of the earliest time in order of their numbers, if it has come by `now`; they are in the schedule no more."""
        time = self._due.first()
        return [] if time is None or time > now else sorted(self._due.pop(time))
