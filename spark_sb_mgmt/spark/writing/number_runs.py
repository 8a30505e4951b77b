"""Sequence numbers as runs of neighbours.

The one rule: a run is a range with an exclusive end; runs ascend, and neither overlap nor touch. What a task scheduled is mostly one run
for each of its requests, so that it can be remembered, and told to the driver, for any number of rows; where it is not, runs are joined
across their gaps, and `is_exact` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS
from spark_sb_mgmt.connection.planning import partition_range

Runs: TypeAlias = list[tuple[int, int]]
Numbers: TypeAlias = npt.NDArray[np.int64]

# 16 bytes each: a quarter of a megabyte, which goes to the driver for each task.
MOST_RUNS: Final = 16_384


def runs_of(numbers: Iterable[int] | Numbers) -> Runs:
    """Numbers in any order, also some twice."""
    given = np.sort(numbers if isinstance(numbers, np.ndarray) else np.fromiter(numbers, np.int64))
    if not len(given):
        return []
    after_gaps = np.flatnonzero(np.diff(given) > 1) + 1
    starts = given[np.concatenate(([0], after_gaps))].tolist()
    ends = (given[np.concatenate((after_gaps - 1, [-1]))] + 1).tolist()
    return list(zip(starts, ends, strict=True))


def joined(ranges: Iterable[tuple[int, int]]) -> Runs:
    """Ranges in any order as runs."""
    runs: Runs = []
    for start, end in sorted(ranges):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        elif start < end:
            runs.append((start, end))
    return runs


def without(ranges: Runs, taken: Runs) -> Runs:
    """What of the ranges is in none of `taken`; both are runs."""
    left: Runs = []
    at = 0
    for start, end in ranges:
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        next_taken = at
        while next_taken < len(taken) and taken[next_taken][0] < end:
            if taken[next_taken][0] > start:
                left.append((start, taken[next_taken][0]))
            start = taken[next_taken][1]
            next_taken += 1
        if start < end:
            left.append((start, end))
    return left


def above(highest: Mapping[int, int]) -> Runs:
    """All numbers but those up to the highest of each partition that had one."""
    passed = [(partition_range(partition)[0], number + 1) for partition, number in highest.items()]
    return without([(0, END_OF_NUMBERS)], joined(passed))


def numbers_in(runs: Runs, at_once: int) -> Iterator[Any]:
    """The numbers of the runs, as arrays of at most so many."""
    for start, end in runs:
        for first in range(start, end, at_once):
            yield np.arange(first, min(end, first + at_once))


@dataclass
class KnownNumbers:
    """Numbers that are added as they become known. `is_exact` False: `runs` hold others besides."""

    most_runs: int = MOST_RUNS
    is_exact: bool = True
    _runs: Runs = field(default_factory=list)

    def add(self, numbers: Iterable[int] | Numbers) -> None:
        self._runs += runs_of(numbers)
        if len(self._runs) > 2 * self.most_runs:
            self._shorten()

    @property
    def runs(self) -> Runs:
        self._shorten()
        return self._runs

    def _shorten(self) -> None:
        self._runs = joined(self._runs)
        if len(self._runs) <= self.most_runs:
            return
        self.is_exact = False
        edges = np.array(self._runs)
        gaps = edges[1:, 0] - edges[:-1, 1]
        # Half of what there may be, so that this is not done for each number that is added.
        widest = np.sort(np.argpartition(gaps, -(self.most_runs // 2))[-(self.most_runs // 2) :])
        starts = edges[np.concatenate(([0], widest + 1)), 0].tolist()
        ends = edges[np.concatenate((widest, [len(edges) - 1])), 1].tolist()
        self._runs = list(zip(starts, ends, strict=True))
