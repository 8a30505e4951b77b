"""The rows of one task through its operation: checked, asked, answered, receipted.

The one rule: whatever happens, what was sent is waited for. A task that fails in the midst sends no more, but takes every answer that is
still under way, so that its operation knows what it did and can undo it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import SbMgmtError, TransactionError, TransportError
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.spark.options.objects import WriteOptions
from spark_sb_mgmt.spark.writing.receipts import ReceiptsWriter
from spark_sb_mgmt.spark.writing.write_operation import FAILED, Receipt, Result, Step, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import row_name

# Rows of a task that are named in the error of its job.
MOST_NAMED: Final = 3


@dataclass
class Failures:
    """The rows of a task that failed: how many, how many of these a lost attempt may explain, and the first of them in words."""

    count: int = 0
    explicable: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, row_key: str | None, problem: str, is_explicable: bool = False) -> None:
        self.count += rows.num_rows
        self.explicable += rows.num_rows if is_explicable else 0
        for row in range(min(rows.num_rows, MOST_NAMED - len(self.named))):
            self.named.append(f"{row_name(rows, row, row_key)}: {problem}")


class TaskRun:
    """One attempt. `rows` were done with, `failures` are those among them that count as such. Without options, as with their defaults."""

    def __init__(
        self, task: WriteTask, entity: EntityClient, options: WriteOptions | None = None, receipts: ReceiptsWriter | None = None
    ) -> None:
        self._task = task
        self._entity = entity
        self._receipts = receipts
        self._row_key = None if options is None else options.row_key
        self._fails = options is None or options.on_error == "fail"
        self._transactional = bool(getattr(options, "transactional", False))
        self._most_retries = 0 if options is None else options.connection.max_retries
        self._given = 0
        self._again: deque[Step[Any]] = deque()
        self._stopped = False
        self.rows = 0
        self.failures = Failures()

    @property
    def has_failed(self) -> bool:
        """Whether a row failed in a job that is to fail for it."""
        return self._fails and self.failures.count > 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All rows to their receipts, or up to the first that stops the task. Raises what is not about rows."""
        error: Exception | None = None
        results = self._results(batches)
        while True:
            for step, outcome in self._answers(results):
                try:
                    self._take(self._task.answered(step, outcome))
                except Exception as problem:
                    # The first is why; what fails after it fails because of it.
                    error = error or problem
                    self._stopped = True
            if error is not None:
                raise error
            if self._stopped or not self._again:
                break
        assert self._stopped or self.rows == self._given, f"{self._given} rows were given, {self.rows} have receipts"

    def _results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        for batch in batches:
            self._given += batch.num_rows
            rows = self._sendable(batch)
            if self._stopped:
                return
            if rows.num_rows:
                yield from self._task.requests(rows)
        yield from self._task.last_requests()

    def _sendable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can be sent. With `onError=fail` one that cannot is the end of the task, before anything of its batch is sent."""
        problems = self._task.problems(rows)
        if not problems:
            return rows
        if self._fails:
            self._stopped = True
        for row, problem in problems:
            self._record(Receipt(rows.slice(row, 1), FAILED, None, None, problem))
        kept = np.ones(rows.num_rows, bool)
        kept[[problem.row for problem in problems]] = False
        return rows.filter(pa.array(kept))

    def _answers(self, results: Iterator[Result]) -> Iterator[tuple[Step[Any], Outcome[Any]]]:
        if self._transactional:
            for step in self._steps(results):
                yield step, self._in_transaction(step.request)
            return
        asked: dict[int, Step[Any]] = {}
        for position, outcome in self._entity.pipeline(self._requests(results, asked)):
            yield asked.pop(position), outcome

    def _requests(self, results: Iterator[Result], asked: dict[int, Step[Any]]) -> Iterator[Request[Any]]:
        for position, step in enumerate(self._steps(results)):
            asked[position] = step
            yield step.request

    def _steps(self, results: Iterator[Result]) -> Iterator[Step[Any]]:
        """The next to send, as there is room: what an answer asked for before what has not been looked at."""
        while not self._stopped:
            result = self._again.popleft() if self._again else next(results, None)
            if result is None:
                return
            if isinstance(result, Receipt):
                self._record(result)
            else:
                yield result

    def _in_transaction(self, request: Request[Any]) -> Outcome[Any]:
        """A request in a transaction of its own, in another one if it was lost with its connection: the service rolled it back then."""
        attempts = 0
        while True:
            try:
                with self._entity.transaction() as transaction:
                    return transaction.call(request)
            except SbMgmtError as problem:
                attempts += 1
                rolled_back = isinstance(problem, (TransactionError, TransportError)) and not problem.may_have_taken_effect
                if not rolled_back or attempts > self._most_retries:
                    return problem

    def _take(self, results: Iterable[Result]) -> None:
        for result in results:
            if isinstance(result, Receipt):
                self._record(result)
            else:
                self._again.append(result)

    def _record(self, receipt: Receipt) -> None:
        self.rows += receipt.rows.num_rows
        if not receipt.is_ok and receipt.fails:
            self.failures.add(receipt.rows, self._row_key, receipt.status_description or receipt.status, receipt.is_explicable)
            if self._fails and self._task.stops_at_failure:
                self._stopped = True
        if self._receipts is not None:
            self._receipts.add(receipt)
