"""Which scheduled messages are due when.

The one rule: what stands here is what is scheduled now. A message that is cancelled leaves at once, so that no one comes across it later;
messages of one time share one entry, because they come by the thousand and are due together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_sb_mgmt.emulator.entities.index import SequenceIndex

# The numbers of messages by the time for which they are scheduled.
ByTime = Mapping[int, Sequence[int]]


class Schedule:
    def __init__(self) -> None:
        # By time, the numbers of the messages that are due then. One alone is just that: a set takes 200 bytes.
        self._due: SequenceIndex[int | set[int]] = SequenceIndex()
        # Those of the earliest time once it has come, the last first, and that time.
        self._popping: list[int] = []
        self._popping_time = 0

    def add(self, numbers_by_time: ByTime) -> None:
        new: dict[int, int | set[int]] = {}
        for time, numbers in numbers_by_time.items():
            due = self._due.get(time)
            if isinstance(due, set):
                due.update(numbers)
            elif due is not None:
                self._due.pop(time)
                new[time] = {due, *numbers}
            else:
                new[time] = set(numbers) if len(numbers) > 1 else numbers[0]
        self._due.add_all(new)

    def discard(self, numbers_by_time: ByTime) -> None:
        """These are not due any more, if they were."""
        empty = []
        for time, numbers in numbers_by_time.items():
            due = self._due.get(time)
            if isinstance(due, set):
                due.difference_update(numbers)
                if not due:
                    empty.append(time)
            elif due in numbers:
                empty.append(time)
        self._due.pop_all(empty)

    def next_due(self) -> int | None:
        """The earliest time."""
        return self._popping_time if self._popping else self._due.first()

    def pop_due(self, now: int) -> int | None:
        """The message that comes next, in the order of times and then of numbers, if it is due by `now`; it is in the schedule no more."""
        if not self._popping:
            time = self._due.first()
            if time is None or time > now:
                return None
            due = self._due.pop(time)
            self._popping_time, self._popping = time, sorted(due, reverse=True) if isinstance(due, set) else [due]
        return self._popping.pop()
