"""What each command does, given its arguments and an entity.

The one rule: results go to standard output, everything else to standard error; nothing is changed that was not asked for twice, by the
command and by its confirmation.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS, schema
from spark_sb_mgmt.cli.progress import Progress
from spark_sb_mgmt.cli.tables import table
from spark_sb_mgmt.client.entity import EntityClient
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.model import CorrelationFilter, Rule, SqlFilter, SqlRuleAction

# What fits a terminal.
SHOWN_COLUMNS: Final = ("sequence_number", "state", "message_id", "session_id", "subject", "enqueued_time", "delivery_count", "body")
_SHOWN_ROWS: Final = 25
_DELETED_AT_A_TIME: Final = 500
# Pages gathered into one row group.
_GATHERED: Final = 40


def peek(entity: EntityClient, given: Namespace) -> int:
    """Messages as a table, or all that is in them to a Parquet file."""
    names = _columns(given.columns, DEFAULT_COLUMNS if given.to else SHOWN_COLUMNS)
    if given.max is None and given.to is None:
        given.max = _SHOWN_ROWS
    batches = _batches(entity, given, names)
    if given.to is None:
        shown = pa.Table.from_batches(batches, schema(names))
        print(table(names, zip(*(column.to_pylist() for column in shown.columns), strict=True)))
        if shown.num_rows == given.max:
            print(f"the first {given.max}: --max N shows more, --to FILE.parquet takes all", file=sys.stderr)
        return 0
    total = _most(entity, given.session, given.from_sequence_number, given.until_sequence_number)
    _to_parquet(batches, Path(given.to), names, min(total, given.max) if given.max else total)
    return 0


def _to_parquet(batches: Iterator[pa.RecordBatch], target: Path, names: tuple[str, ...], total: int) -> None:
    # A file that is not whole must not look as if it were: it gets its name when it is.
    partial = target.with_name(f"{target.name}.partial")
    try:
        with pq.ParquetWriter(partial, schema(names)) as writer, Progress("messages", total) as progress:
            for batch in batches:
                writer.write_batch(batch)
                progress.add(batch.num_rows)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _most(entity: EntityClient, session_id: str | None, start: int = 0, end: int | None = None) -> int:
    """How many messages there are at most: numbers have gaps, so it is less where some are gone."""
    extents = entity.extents(session_id)
    return sum(max(0, min(one.highest + 1, end or one.highest + 1) - max(one.lowest, start)) for one in extents)


def _columns(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return default
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InvalidArgumentError("--columns", f"has no {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return names


def _batches(entity: EntityClient, given: Namespace, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """In the order in which pages come; a table on the terminal is peeked page after page, so that it is in the order of the numbers."""
    left = given.max
    gathered: list[pa.RecordBatch] = []
    pages = entity.peek_range(
        given.from_sequence_number, given.until_sequence_number, session_id=given.session, depth=None if given.to else 1
    )
    for page in pages:
        batch = decode_responses([page.response], names, entity=entity.path)
        for part in page.keep:
            kept = batch.slice(part.start, part.stop - part.start)
            if left is not None:
                kept = kept.slice(0, left)
                left -= kept.num_rows
            gathered.append(kept)
        if len(gathered) >= _GATHERED:
            yield from pa.Table.from_batches(gathered, schema(names)).combine_chunks().to_batches()
            gathered = []
        if left == 0:
            break
    if gathered:
        yield from pa.Table.from_batches(gathered, schema(names)).combine_chunks().to_batches()


def sessions(entity: EntityClient, given: Namespace) -> int:
    ids = entity.get_message_sessions(given.since)
    if not given.state:
        print(table(["session_id"], [[session_id] for session_id in ids]))
        return 0
    rows = []
    with Progress("sessions", len(ids)) as progress:
        for session_id in ids:
            rows.append([session_id, entity.get_session_state(session_id)])
            progress.add(1)
    print(table(["session_id", "session_state"], rows))
    return 0


def rules(entity: EntityClient, given: Namespace) -> int:
    print(table(["rule_name", "filter", "action"], [[rule.name, _filter(rule), _action(rule)] for rule in entity.enumerate_rules()]))
    return 0


def _filter(rule: Rule) -> str:
    if isinstance(rule.filter, SqlFilter):
        return rule.filter.expression
    if isinstance(rule.filter, CorrelationFilter):
        own = {one.name: getattr(rule.filter, one.name) for one in fields(rule.filter) if one.name != "properties"}
        given = {**{name: value for name, value in own.items() if value is not None}, **rule.filter.properties}
        return ", ".join(f"{name} = {value!r}" for name, value in given.items())
    return type(rule.filter).__name__.removesuffix("Filter").lower()


def _action(rule: Rule) -> str:
    return rule.action.expression if isinstance(rule.action, SqlRuleAction) else ""


def purge(entity: EntityClient, given: Namespace, ask: Callable[[], str] = input) -> int:
    """Delete what was enqueued before one moment; what comes meanwhile stays."""
    before = given.before or datetime.now(timezone.utc)
    if not given.yes:
        where = entity.path if given.session is None else f"session {given.session!r} of {entity.path}"
        print(
            f"Delete every message of {where} enqueued before {before.isoformat(timespec='seconds')}? There are "
            f"{_most(entity, given.session):,} at most, of any time. This cannot be undone. Type the entity's name: ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        try:
            answer = ask()
        except EOFError:
            answer = ""
        if answer.strip() != entity.path:
            print("nothing was deleted", file=sys.stderr)
            return 1
    total = 0
    with Progress("messages deleted") as progress:
        while deleted := entity.batch_delete_messages(_DELETED_AT_A_TIME, before, given.session):
            total += deleted
            progress.add(deleted)
    print(total)
    return 0
