"""Rows to the entries of schedule-message requests: when, by which id, with which stamp, and how many in one request.

The one rule: a task that is tried again makes the same messages of the same rows: ids that rows do not have, and what `spreadSeconds` adds,
follow from the job, the partition and the place of the row in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.amqp.arrow_encode import EncodedMessages, encode_messages
from spark_sb_mgmt.amqp.columns import TIMESTAMP
from spark_sb_mgmt.amqp.message import Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.native_encode import Stamps, encode_plain_entries
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.operations.schedule import ENTRY, EncodedEntries, encode_entry
from spark_sb_mgmt.operations.times import to_milliseconds
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import ScheduleOptions
from spark_sb_mgmt.spark.writing import job_stamp
from spark_sb_mgmt.spark.writing.write_operation import Job, TaskAttempt
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems
from spark_sb_mgmt.spark.writing.write_schema import WRITE_COLUMNS

# What stands around the entries in a request: properties and application-properties, some 250 bytes of them, and the heads of the body.
ENVELOPE_BYTES: Final = 400
# A time that was to come, or now, when rows were made may be past when their job starts: Spark takes a while to get there, on a cold start
# the longest. Not longer than that, since what is enqueued at once cannot be taken back.
_WHILE_MS: Final = 60_000
# Rows that are encoded at once: enough for the fixed cost of a column not to count, and not so many that their bytes do.
_ROWS, _BYTES = 2_000, 4 * 1024 * 1024

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Entries:
    """Encoded rows. `places` are theirs in the partition, `ids` what they are called at the service."""

    rows: pa.RecordBatch
    places: Places
    encoded: EncodedEntries
    ids: pa.Array

    def __len__(self) -> int:
        return len(self.encoded)

    def cut(self, start: int, end: int) -> Entries:
        count = end - start
        return Entries(self.rows.slice(start, count), self.places[start:end], self.encoded.cut(start, end), self.ids.slice(start, count))


class RowEncoder:
    """The rows of one attempt."""

    def __init__(self, options: ScheduleOptions, job: Job, attempt: TaskAttempt) -> None:
        self._options = options
        self._job = job
        self._attempt = attempt
        self._stamp = job_stamp.attempt_prefix(job.id, attempt)
        self._id = f"{job.id}-{attempt.partition}-"
        self._random = np.random.default_rng([*job.id.encode(), attempt.partition])

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return row_problems(rows, table.SCHEDULE, not_before_ms=_earliest_ms(self._job))

    def timed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the time that each is scheduled for. Draws at random: once for each row, in their order."""
        name = "scheduled_enqueue_time"
        if name in rows.schema.names:
            given = pc.cast(rows.column(name), TIMESTAMP)
        else:
            assert self._options.scheduled_enqueue_time is not None, "the column or the option is there"
            given = pa.repeat(pa.scalar(self._options.scheduled_enqueue_time, TIMESTAMP), rows.num_rows)
        if self._options.spread_seconds:
            longest = int(self._options.spread_seconds * 1_000_000)
            late = pa.array(self._random.integers(0, longest, rows.num_rows, endpoint=True))
            given = pc.add(pc.cast(given, pa.int64()), late).cast(TIMESTAMP)
        at = rows.schema.get_field_index(name)
        return rows.append_column(name, given) if at < 0 else rows.set_column(at, name, given)

    def encoded(self, rows: pa.RecordBatch, places: Places) -> Entries:
        """Raises EncodeError or InvalidArgumentError with the row in `row`."""
        known = WRITE_COLUMNS[table.SCHEDULE]
        sent = rows.select([name for name in rows.schema.names if name in known or name in self._options.property_columns])
        if "amqp_message" not in sent.schema.names and "properties" not in sent.schema.names:
            sent = self._with_ids(sent, places)
        stamps = Stamps(job_stamp.KEY, self._stamp, places)
        plain = encode_plain_entries(sent, ENTRY, property_columns=self._options.property_columns, stamps=stamps)
        if plain is not None:
            return Entries(rows, places, EncodedEntries(*plain), sent.column("message_id"))
        messages = encode_messages(
            sent,
            now_ms=self._job.started_ms,
            property_columns=self._options.property_columns,
            stamps=(stamps.key, stamps.texts()),
        )
        self._fill_ids(messages, places)
        entries = [
            encode_entry(wire, identifier or "", session, partition, via, row=row)
            for row, (wire, identifier, session, partition, via) in enumerate(
                zip(
                    messages.messages,
                    messages.message_id,
                    messages.session_id,
                    messages.partition_key,
                    messages.via_partition_key,
                    strict=True,
                )
            )
        ]
        return Entries(rows, places, EncodedEntries.of(entries), pa.array(messages.message_id, pa.string()))

    def _with_ids(self, rows: pa.RecordBatch, places: Places) -> pa.RecordBatch:
        at = rows.schema.get_field_index("message_id")
        if at >= 0 and not rows.column(at).null_count:
            return rows
        ids = pc.binary_join_element_wise(self._id, pc.cast(pa.array(places), pa.string()), "")
        return rows.append_column("message_id", ids) if at < 0 else rows.set_column(at, "message_id", pc.coalesce(rows.column(at), ids))

    def _fill_ids(self, messages: EncodedMessages, places: Places) -> None:
        """Messages whose sections have no message-id get one there too: what the entry around them says is not kept."""
        for row, identifier in enumerate(messages.message_id):
            if identifier is None:
                own = f"{self._id}{places[row]}"
                message = decode_message(messages.messages[row])
                properties = replace(message.properties or Properties(), message_id=own)
                messages.messages[row] = encode_message(replace(message, properties=properties))
                messages.message_id[row] = own


def pieces(rows: pa.RecordBatch, least: int = 1) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows in pieces that are encoded at once, of `least` rows where there are so many; each with where it starts."""
    size = max(1, rows.nbytes // max(rows.num_rows, 1))
    count = min(max(_ROWS, least), max(1, _BYTES // size))
    for start in range(0, rows.num_rows, count):
        yield start, rows.slice(start, count)


def requests_of(entries: Entries, most: int, most_bytes: int | None) -> Iterator[Entries]:
    """Entries in requests of at most so many messages and bytes, in their order. One that is too large alone is a request of its own."""
    bounds = entries.encoded.bounds
    room = None if most_bytes is None else most_bytes - ENVELOPE_BYTES
    start = 0
    while start < len(entries):
        end = min(start + most, len(entries))
        if room is not None:
            fits = int(np.searchsorted(bounds, bounds[start] + room, "right")) - 1
            end = min(end, max(fits, start + 1))
        yield entries.cut(start, end)
        start = end


def check_time(options: ScheduleOptions, job: Job) -> None:
    """Raise for an option that would enqueue everything at once."""
    given, earliest = options.scheduled_enqueue_time, _earliest_ms(job)
    if given is not None and earliest is not None and to_milliseconds(given) < earliest:
        raise InvalidArgumentError("option scheduledEnqueueTime", f"is {given.isoformat()}, which is past: it must be a time to come")


def _earliest_ms(job: Job) -> int | None:
    """What is scheduled for a time that is past is enqueued at once, and can never be taken back: it is taken for a mistake, unless it is
    only just past. A micro-batch that is done again after hours finds times past that were not; it must not stop its query for ever."""
    return None if job.is_replayable else job.started_ms - _WHILE_MS


def problem_of(error: EncodeError | InvalidArgumentError) -> str:
    """What is wrong with a row, without the place in its piece."""
    return error.problem if isinstance(error, EncodeError) else f"{error.argument} {error.problem}"
