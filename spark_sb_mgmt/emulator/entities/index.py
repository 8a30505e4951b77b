"""Messages in order of sequence number: a sorted map that stays fast at a million entries.

The one rule: nothing here is linear in the number of messages. Numbers arrive almost always in ascending order, leave in any order, and
a peek starts anywhere, so the keys live in sorted chunks of bounded length and the values in a dict.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

# Long enough that the list of chunks stays short, short enough that inserting into one is a small memory move.
CHUNK = 1024


class SequenceIndex(Generic[T]):
    """A map from sequence number to `T`, iterated in ascending order from any number."""

    __slots__ = ("_chunks", "_items", "_last")

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._chunks: list[list[int]] = []
        # The greatest number of each chunk, to find a chunk by bisection.
        self._last: list[int] = []

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, sequence_number: int) -> bool:
        return sequence_number in self._items

    def get(self, sequence_number: int) -> T | None:
        return self._items.get(sequence_number)

    def find(self, sequence_numbers: Iterable[int]) -> list[T | None]:
        """The item of each number, None where there is none."""
        return list(map(self._items.get, sequence_numbers))

    def first(self) -> int | None:
        """The smallest number."""
        return self._chunks[0][0] if self._chunks else None

    def add(self, sequence_number: int, item: T) -> None:
        if sequence_number in self._items:
            raise ValueError(f"sequence number {sequence_number} is there already")
        self._items[sequence_number] = item
        last = self._last
        if not last or sequence_number > last[-1]:
            if last and len(self._chunks[-1]) < CHUNK:
                self._chunks[-1].append(sequence_number)
                last[-1] = sequence_number
            else:
                self._chunks.append([sequence_number])
                last.append(sequence_number)
            return
        at = bisect_left(last, sequence_number)
        chunk = self._chunks[at]
        insort(chunk, sequence_number)
        if len(chunk) > 2 * CHUNK:
            self._chunks[at : at + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            last[at : at + 1] = [chunk[CHUNK - 1], chunk[-1]]

    def add_all(self, items: Mapping[int, T]) -> None:
        """As `add` one by one; at once where their numbers come in order, behind all that are there."""
        numbers = list(items)
        last = self._last
        if numbers != sorted(numbers) or (numbers and last and numbers[0] <= last[-1]):
            for number, item in items.items():
                self.add(number, item)
            return
        self._items.update(items)
        at = 0
        if last and len(self._chunks[-1]) < CHUNK:
            at = CHUNK - len(self._chunks[-1])
            self._chunks[-1] += numbers[:at]
            last[-1] = self._chunks[-1][-1]
        for start in range(at, len(numbers), CHUNK):
            self._chunks.append(numbers[start : start + CHUNK])
            last.append(self._chunks[-1][-1])

    def pop(self, sequence_number: int) -> T:
        item = self._items.pop(sequence_number)
        at = bisect_left(self._last, sequence_number)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, sequence_number)]
        if not chunk:
            del self._chunks[at], self._last[at]
        else:
            self._last[at] = chunk[-1]
        return item

    def pop_all(self, sequence_numbers: Sequence[int]) -> list[T]:
        """As `pop` one by one; at once where they are neighbours."""
        items = [self._items.pop(number) for number in sequence_numbers]
        numbers = sorted(sequence_numbers)
        done = 0
        while done < len(numbers):
            at = bisect_left(self._last, numbers[done])
            chunk = self._chunks[at]
            here = numbers[done : bisect_right(numbers, self._last[at])]
            start, end = bisect_left(chunk, here[0]), bisect_right(chunk, here[-1])
            if end - start == len(here):
                del chunk[start:end]
            else:
                for number in here:
                    del chunk[bisect_left(chunk, number)]
            if not chunk:
                del self._chunks[at], self._last[at]
            else:
                self._last[at] = chunk[-1]
            done += len(here)
        return items

    def values_from(self, sequence_number: int) -> Iterator[T]:
        """The items at or after a number, ascending. The index must not change while the iterator is in use."""
        items = self._items
        at = bisect_left(self._last, sequence_number)
        if at == len(self._chunks):
            return
        chunk = self._chunks[at]
        for number in chunk[bisect_left(chunk, sequence_number) :]:
            yield items[number]
        for later in range(at + 1, len(self._chunks)):
            for number in self._chunks[later]:
                yield items[number]

    def values(self) -> Iterator[T]:
        return self.values_from(-(2**63))
