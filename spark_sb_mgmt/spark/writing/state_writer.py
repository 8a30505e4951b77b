"""set-session-state: the state of a session to each row, null clears it (wire-facts.md, section 1.1).

The one rule: a row is ok if the session had this state when the row was done. A request whose answer was lost is looked into: if the state
is another, it was not carried out, and is sent again. A repeated task sets the same states once more.

Rows have no order, so a session that is there twice in a batch of rows is a mistake; in different tasks nobody sees it, and one of the two
states stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.operations.sessions import set_session_state
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.writing.renew_writer import SessionTask
from spark_sb_mgmt.spark.writing.row_groups import one_for_each_row, repeated
from spark_sb_mgmt.spark.writing.write_operation import Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem


class SetSessionStates(WriteOperation):
    """Sets or clears what applications keep in sessions."""

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return SetSessionStateTask(entity)


class SetSessionStateTask(SessionTask):
    operation = table.SET_SESSION_STATE

    def __init__(self, entity: EntityClient) -> None:
        self._entity = entity

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        why = "which state is to stay cannot be told, so keep one row for each session"
        return one_for_each_row(super().problems(rows), repeated(rows, "session_id", rows.column("session_id"), why))

    def step(self, row: pa.RecordBatch) -> Step[None]:
        session, state = _cells(row)
        return Step(set_session_state(session, state), row)

    def answered(self, step: Step[None], outcome: Outcome[None]) -> Iterator[Result]:
        if not isinstance(outcome, SbMgmtError):
            yield Receipt(step.rows)
        elif step.is_to_be_looked_for(outcome):
            session, state = _cells(step.rows)
            if self._entity.get_session_state(session) == state:
                yield Receipt(step.rows, status_description="the answer was lost, and a look shows that the state is this one")
            else:
                yield replace(step, lost=step.lost + 1)
        else:
            yield self.failed(step, outcome)


def _cells(row: pa.RecordBatch) -> tuple[str, bytes | None]:
    return row.column("session_id")[0].as_py(), row.column("session_state")[0].as_py()
