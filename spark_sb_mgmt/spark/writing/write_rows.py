"""What is wrong with rows, told before any of them is sent (CONTRACT section 1.3).

The one rule: pure, whole columns at a time, and a row is named as its owner knows it: by its `rowKey`, else by the values that tell it
apart. Of several things wrong with a row the first is told.

Whether a message is too large only its encoding shows; `row_error` names its row the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp.columns import BODY_TYPES
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.arguments import LONGEST_DEADLETTER_TEXT, LONGEST_EXPRESSION, LONGEST_ID, LONGEST_RULE_NAME
from spark_sb_mgmt.operations.settle import DISPOSITIONS
from spark_sb_mgmt.operations.times import to_datetime
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.writing.write_schema import REQUIRED, WRITE_COLUMNS, sent_type

# What tells a row apart, where nobody said by which column.
_TELLING: Final = ("message_id", "sequence_number", "lock_token", "session_id", "rule_name", "correlation_id", "subject")
_MOST_SHOWN: Final = 3
# With hyphens or without, as Python reads a UUID; braces and `urn:uuid:` are nobody's lock token.
_UUID: Final = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
# Columns that may be null everywhere but here; the operations' own required columns come on top.
_NEVER_NULL: Final = {
    table.SCHEDULE: ("scheduled_enqueue_time", "amqp_message"),
    table.SETTLE: ("disposition_status", "lock_token", "sequence_number"),
    table.PURGE: ("session_id",),
}
# The one that may: a session's state that is null is cleared.
_MAY_BE_NULL: Final = frozenset(("session_state",))
_LONGEST: Final = {
    "message_id": LONGEST_ID,
    "session_id": LONGEST_ID,
    "partition_key": LONGEST_ID,
    "via_partition_key": LONGEST_ID,
    "deadletter_reason": LONGEST_DEADLETTER_TEXT,
    "deadletter_description": LONGEST_DEADLETTER_TEXT,
    "rule_name": LONGEST_RULE_NAME,
    "sql_expression": LONGEST_EXPRESSION,
    "action_expression": LONGEST_EXPRESSION,
}
_PLAIN_TYPES: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class RowProblem(NamedTuple):
    """What is wrong with a row of a batch, in words that follow its name."""

    row: int
    problem: str


def plain_batch(batch: pa.RecordBatch, operation: str) -> pa.RecordBatch:
    """The batch with the types that checks and encoder know, whatever spark.sql.execution.arrow.useLargeVarTypes made of them, and
    whatever else was taken for a column."""
    plain = pa.schema([field.with_type(sent_type(operation, field.name, _plain_type(field.type))) for field in batch.schema])
    return batch if plain.equals(batch.schema) else batch.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return _PLAIN_TYPES.get(kind, kind)


def row_problems(
    batch: pa.RecordBatch, operation: str, *, disposition_status: str | None = None, not_before_ms: int | None = None
) -> list[RowProblem]:
    """What is wrong with the rows of a write, ascending, one for each row at most. `disposition_status` is the option's, for all rows;
    `not_before_ms`, if given, is the earliest time that a message may be scheduled for."""
    found: dict[int, str] = {}

    def wrong(mask: pa.Array, say: Callable[[int], str]) -> None:
        for row in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
            found.setdefault(row, say(row))

    # A row key is not sent, whatever its name.
    columns = {name: batch.column(name) for name in batch.schema.names if name in WRITE_COLUMNS[operation]}
    for name in (*REQUIRED[operation], *_NEVER_NULL.get(operation, ())):
        if name in columns and name not in _MAY_BE_NULL:
            wrong(pc.is_null(columns[name]), lambda row, name=name: f"{name} is null, and {operation} needs it")  # type: ignore[misc]
    for name, longest in _LONGEST.items():
        if name in columns and pa.types.is_string(columns[name].type):
            _check_length(name, columns[name], longest, wrong)
    _check_values(columns, wrong)
    if operation == table.SETTLE:
        _check_settle(columns, batch.num_rows, disposition_status, wrong)
    if operation == table.SCHEDULE and not_before_ms is not None and "scheduled_enqueue_time" in columns:
        _check_time(columns["scheduled_enqueue_time"], not_before_ms, wrong)
    return [RowProblem(row, found[row]) for row in sorted(found)]


_Wrong = Callable[[pa.Array, Callable[[int], str]], None]


def _check_length(name: str, column: pa.Array, longest: int, wrong: _Wrong) -> None:
    lengths = pc.utf8_length(column)
    wrong(pc.greater(lengths, longest), lambda row: f"{name} has {lengths[row]} characters, {longest} at most are allowed")
    if name in ("rule_name", "sql_expression", "action_expression"):
        wrong(pc.equal(lengths, 0), lambda row: f"{name} is empty")


def _check_values(columns: dict[str, pa.Array], wrong: _Wrong) -> None:
    if "lock_token" in columns:
        tokens = columns["lock_token"]
        wrong(pc.invert(pc.match_substring_regex(tokens, _UUID)), lambda row: f"lock_token is {_shown(tokens[row])}, which is no UUID")
    for name in ("sequence_number", "time_to_live_ms"):
        if name in columns:
            wrong(pc.less(columns[name], 0), lambda row, name=name: f"{name} is {columns[name][row]}: it must be 0 or more")  # type: ignore[misc]
    for name, allowed in (("disposition_status", tuple(DISPOSITIONS)), ("body_type", BODY_TYPES)):
        if name in columns:
            unknown = pc.and_(pc.is_valid(columns[name]), pc.invert(pc.is_in(columns[name], pa.array(allowed))))
            wrong(
                unknown,
                lambda row, name=name, allowed=allowed: f"{name} is {_shown(columns[name][row])}: it must be one of {', '.join(allowed)}",  # type: ignore[misc]
            )


def _check_settle(columns: dict[str, pa.Array], rows: int, disposition_status: str | None, wrong: _Wrong) -> None:
    status = columns.get("disposition_status", pa.repeat(pa.scalar(disposition_status, pa.string()), rows))
    for name in ("deadletter_reason", "deadletter_description"):
        if name in columns:
            beside = pc.and_(pc.is_valid(columns[name]), pc.not_equal(status, names.SUSPENDED))
            wrong(beside, lambda row, name=name: f"{name} is only for disposition_status suspended, not {status[row]}: make it null")  # type: ignore[misc]
    if "properties_to_modify" in columns:
        beside = pc.and_(pc.is_valid(columns["properties_to_modify"]), pc.equal(status, names.COMPLETED))
        wrong(beside, lambda row: "properties_to_modify is not for disposition_status completed, which leaves no message: make it null")


def _check_time(column: pa.Array, not_before_ms: int, wrong: _Wrong) -> None:
    earliest = pa.scalar(not_before_ms * 1000, pa.int64())
    times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())

    def say(row: int) -> str:
        given, first = to_datetime(times[row].as_py() // 1000), to_datetime(not_before_ms)
        return f"scheduled_enqueue_time is {given.isoformat()}, which is before {first.isoformat()}"

    wrong(pc.less(times, earliest), say)


def row_name(batch: pa.RecordBatch, row: int, row_key: str | None = None) -> str:
    """A row as its owner knows it: by its key, else by up to three values that tell it apart."""
    if row_key is not None:
        return f"row with {row_key}={_shown(batch.column(row_key)[row])}"
    telling = [name for name in _TELLING if name in batch.schema.names]
    others = [field.name for field in batch.schema if field.name not in telling and not _is_wide(field.type)]
    shown = [(name, batch.column(name)[row]) for name in (*telling, *others)]
    values = [f"{name}={_shown(value)}" for name, value in shown if value.is_valid][:_MOST_SHOWN]
    return f"row with {', '.join(values)}" if values else f"row {row} of its batch"


def row_error(batch: pa.RecordBatch, problem: RowProblem, row_key: str | None, operation: str) -> InvalidArgumentError:
    """The error about a row, for a job that is to fail."""
    return InvalidArgumentError(f"{row_name(batch, problem.row, row_key)}:", problem.problem, operation=operation)


def check_rows(batch: pa.RecordBatch, operation: str, row_key: str | None, problems: Sequence[RowProblem]) -> None:
    """Raise for the first of the problems, saying how many rows have one."""
    if problems:
        more = f" ({len(problems)} rows of this batch cannot be sent)" if len(problems) > 1 else ""
        first = problems[0]
        raise row_error(batch, RowProblem(first.row, first.problem + more), row_key, operation)


def _is_wide(kind: pa.DataType) -> bool:
    """Whether values are too long, or no text at all, to name a row by."""
    return bool(pa.types.is_binary(kind) or pa.types.is_nested(kind))


def _shown(value: pa.Scalar) -> str:
    found: Any = value.as_py()
    text = found if isinstance(found, str) else str(found)
    return f"{text[:60]}..." if len(text) > 60 else text
