"""The columns of each write operation, checked before anything is sent (CONTRACT section 1.3).

The one rule: a DataFrame is written only if every column of it has a use. One that is missing, unknown or of another type, and both or
neither of two alternatives, is one error on the driver that says what to do.

What AMQP can carry is for the encoder to say: the columns of schedule-message are shown to it as a batch without rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import DataType, StructType, TimestampNTZType

from spark_sb_mgmt.amqp.arrow_encode import SENDER_COLUMNS, encode_messages
from spark_sb_mgmt.amqp.columns import COLUMNS, TIMESTAMP, TYPED_MAP
from spark_sb_mgmt.errors import EncodeError, InvalidArgumentError
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.objects import ScheduleOptions, SettleOptions, WriteOptions
from spark_sb_mgmt.spark.reading.read_schema import RULE_COLUMNS
from spark_sb_mgmt.spark.schema import arrow_type, spark_type
from spark_sb_mgmt.spark.suggestions import closest, did_you_mean

_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
_TEXT: Final = (pa.string(),)
# A correlation filter as it is read, or with properties that are all strings. Which of its fields a struct has is looked at apart.
_FILTERS: Final = (RULE_COLUMNS.field("correlation_filter").type,)

# For each operation its columns, each with the types that it may have.
WRITE_COLUMNS: Final[dict[str, dict[str, tuple[pa.DataType, ...]]]] = {
    table.SCHEDULE: {name: (column.type,) for name, column in COLUMNS.items() if name in SENDER_COLUMNS},
    table.CANCEL: {"sequence_number": (pa.int64(),)},
    table.SETTLE: {
        "disposition_status": _TEXT,
        "lock_token": _TEXT,
        "sequence_number": (pa.int64(),),
        "session_id": _TEXT,
        "deadletter_reason": _TEXT,
        "deadletter_description": _TEXT,
        "properties_to_modify": (_TEXT_MAP, TYPED_MAP),
    },
    table.RENEW_LOCK: {"lock_token": _TEXT},
    table.RENEW_SESSION_LOCK: {"session_id": _TEXT},
    table.SET_SESSION_STATE: {"session_id": _TEXT, "session_state": (pa.binary(),)},
    table.ADD_RULE: {field.name: (field.type,) for field in RULE_COLUMNS},
    table.REMOVE_RULE: {"rule_name": _TEXT},
    table.PURGE: {"session_id": _TEXT},
}
# Taken too, since nothing is lost by it: text as its UTF-8, which is what Spark's Kafka sink makes of a string, and smaller integers.
_TEXT_TOO: Final = (pa.string(),)
_SMALLER: Final = (pa.int32(), pa.int16(), pa.int8())
_TAKEN_TOO: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "body": _TEXT_TOO,
    "session_state": _TEXT_TOO,
    "sequence_number": _SMALLER,
    "time_to_live_ms": _SMALLER,
}
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    table.SCHEDULE: (),
    table.CANCEL: ("sequence_number",),
    table.SETTLE: (),
    table.RENEW_LOCK: ("lock_token",),
    table.RENEW_SESSION_LOCK: ("session_id",),
    table.SET_SESSION_STATE: ("session_id", "session_state"),
    table.ADD_RULE: ("rule_name",),
    table.REMOVE_RULE: ("rule_name",),
    table.PURGE: (),
}
# What a rule that was read says of itself, and what nobody can send.
NOT_SENT: Final = {table.ADD_RULE: frozenset(("entity", "created_at"))}

RECEIPT_COLUMNS: Final = pa.schema(
    [
        ("message_id", pa.string()),
        ("sequence_number", pa.int64()),
        ("lock_token", pa.string()),
        ("status", pa.string()),
        ("status_code", pa.int32()),
        ("error_condition", pa.string()),
        ("status_description", pa.string()),
        ("expiration", TIMESTAMP),
    ]
)


@dataclass(frozen=True)
class WriteColumns:
    """The columns of a write. `sent` go to the service; `row_key`, of type `row_key_type`, goes to the receipts."""

    operation: str
    sent: tuple[str, ...]
    property_columns: tuple[str, ...] = ()
    row_key: str | None = None
    row_key_type: pa.DataType | None = None

    @property
    def receipts(self) -> pa.Schema:
        """The schema of the receipts: the same for every operation, but for `row_key`."""
        return RECEIPT_COLUMNS if self.row_key is None else pa.schema([pa.field("row_key", self.row_key_type), *RECEIPT_COLUMNS])


def write_columns(given: StructType, options: WriteOptions) -> WriteColumns:
    """The columns of a DataFrame that is to be written, checked against what the operation takes."""
    operation, known = options.operation, WRITE_COLUMNS[options.operation]
    _check_twice(given)
    properties = options.property_columns if isinstance(options, ScheduleOptions) else ()
    _check_properties(given, properties, known)
    key_type = _row_key_type(given, options.row_key)
    sent, unknown = [], []
    for field in given:
        name = field.name
        if name in properties:
            sent.append(name)
        elif name in known:
            _check_type(name, field.dataType, known[name])
            if name not in NOT_SENT.get(operation, ()):
                sent.append(name)
        elif name != options.row_key and not _may_be_ignored(name, given, operation):
            unknown.append(name)
    if unknown:
        raise _unknown(unknown, operation)
    _check_required(given, operation)
    if isinstance(options, ScheduleOptions):
        _check_alternatives(given, "scheduled_enqueue_time", "scheduledEnqueueTime", options.scheduled_enqueue_time)
        if not given.names:
            # PySpark makes rows without columns a batch of no rows: they would be lost without a word.
            raise InvalidArgumentError("DataFrame", "has no columns, and Spark loses such rows: add one, such as message_id or body")
        _check_encoder(given, sent, properties)
    if isinstance(options, SettleOptions):
        _check_alternatives(given, "disposition_status", "dispositionStatus", options.disposition_status)
        _check_settle(given)
    return WriteColumns(operation, tuple(sent), properties, options.row_key, key_type)


def sent_type(operation: str, name: str, given: pa.DataType) -> pa.DataType:
    """The type that a column of a checked DataFrame is sent with."""
    return WRITE_COLUMNS[operation][name][0] if name in WRITE_COLUMNS[operation] and given in _TAKEN_TOO.get(name, ()) else given


def column_error(name: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"column {name:.80}", problem)


def _check_twice(given: StructType) -> None:
    twice = next((name for at, name in enumerate(given.names) if name in given.names[:at]), None)
    if twice is not None:
        raise column_error(twice, "is there twice: rename or drop one")


def _check_properties(given: StructType, properties: tuple[str, ...], known: dict[str, tuple[pa.DataType, ...]]) -> None:
    for name in properties:
        if name in known:
            raise InvalidArgumentError("option propertyColumns", f"names {name!r:.80}, which has a meaning of its own: rename the column")
        if name not in given.names:
            hint = did_you_mean(name, given.names)
            raise InvalidArgumentError("option propertyColumns", f"names {name!r:.80}{hint}: the DataFrame has {', '.join(given.names)}")
        if isinstance(given[name].dataType, TimestampNTZType):
            raise column_error(name, "is timestamp_ntz, which says no time zone: cast it to timestamp")
        if arrow_type(given[name].dataType) is None:
            raise column_error(
                name, f"is {given[name].dataType.simpleString()}, which no application property can be: cast it to a scalar or a string"
            )


def _row_key_type(given: StructType, row_key: str | None) -> pa.DataType | None:
    if row_key is None:
        return None
    if row_key not in given.names:
        hint = did_you_mean(row_key, given.names)
        raise InvalidArgumentError("option rowKey", f"is {row_key!r:.80}{hint}: the DataFrame has {', '.join(given.names)}")
    found = arrow_type(given[row_key].dataType)
    if found is None:
        raise InvalidArgumentError("option rowKey", f"is {row_key!r:.80}, a {given[row_key].dataType.simpleString()}: it must be a scalar")
    return found


def _check_type(name: str, given: DataType, allowed: tuple[pa.DataType, ...]) -> None:
    wanted = [spark_type(one) for one in allowed]
    # Whether parts of it may be null is for rows to show.
    if name == "correlation_filter":
        _check_filter(given, wanted[0])
    elif given.simpleString() not in [one.simpleString() for one in wanted] and arrow_type(given) not in _TAKEN_TOO.get(name, ()):
        names = " or ".join(one.simpleString() for one in wanted)
        cast = f", so cast it, as in CAST({name} AS {names.upper()})" if arrow_type(wanted[0]) is not None else ""
        raise column_error(name, f"is {given.simpleString()}: it must be {names}{cast}")


def _check_filter(given: DataType, whole: DataType) -> None:
    """A struct with any of the fields of a correlation filter, in any order; `properties` may also be strings."""
    assert isinstance(whole, StructType)
    if not isinstance(given, StructType):
        raise column_error("correlation_filter", f"is {given.simpleString()}: it must be a struct of any of {', '.join(whole.names)}")
    for field in given:
        if field.name not in whole.names:
            hint = did_you_mean(field.name, whole.names)
            raise column_error("correlation_filter", f"has the field {field.name!r:.80}{hint}: there are {', '.join(whole.names)}")
        allowed = [whole[field.name].dataType.simpleString()]
        if field.name == "properties":
            allowed.append(spark_type(_TEXT_MAP).simpleString())
        if field.dataType.simpleString() not in allowed:
            problem = f"has {field.name} as {field.dataType.simpleString()}: it must be {' or '.join(allowed)}"
            raise column_error("correlation_filter", problem)


def _may_be_ignored(name: str, given: StructType, operation: str) -> bool:
    """A purge needs no columns, and a DataFrame has some. But one that is nearly `session_id` would purge everything by mistake."""
    return operation == table.PURGE and "session_id" not in given.names and closest(name, ["session_id"]) is None


def _unknown(names: list[str], operation: str) -> InvalidArgumentError:
    """All of them at once: of a DataFrame that was read there are many, and nobody wants to be told of them one by one."""
    brokers = [name for name in names if operation == table.SCHEDULE and name in COLUMNS]
    strangers = [name for name in names if name not in brokers]
    problems = []
    if brokers:
        subject, verb, it = _as_subject(brokers)
        problems.append((subject, f"{verb} set by the broker, not by a sender: drop {it}"))
    if strangers:
        known = WRITE_COLUMNS[operation]
        subject, verb, it = _as_subject(strangers)
        hint = did_you_mean(strangers[0], known) if len(strangers) == 1 else ""
        instead = f", or name {it} in option propertyColumns" if operation == table.SCHEDULE else ""
        problems.append((subject, f"{verb} unknown to {operation}{hint}: drop {it}{instead}. There are {', '.join(known)}"))
    (subject, problem), *more = problems
    return InvalidArgumentError(subject, "; ".join([problem, *(f"{other} {what}" for other, what in more)]))


def _as_subject(names: list[str]) -> tuple[str, str, str]:
    """Columns as the subject of a sentence, with its verb and its pronoun."""
    shown = ", ".join(f"{name:.80}" for name in names)
    return (f"column {shown}", "is", "it") if len(names) == 1 else (f"columns {shown}", "are", "them")


def _check_required(given: StructType, operation: str) -> None:
    for name in REQUIRED[operation]:
        if name not in given.names:
            raise column_error(name, f"is missing: {operation} needs {' and '.join(REQUIRED[operation])}")


def _check_alternatives(given: StructType, column: str, option: str, value: object) -> None:
    if column in given.names and value is not None:
        raise column_error(column, f"is there, and option {option} is given: leave one of the two out")
    if column not in given.names and value is None:
        raise column_error(column, f"is missing: add it, or set option {option} for all rows")


def _check_settle(given: StructType) -> None:
    both = [name for name in ("lock_token", "sequence_number") if name in given.names]
    if len(both) == 2:
        raise column_error(
            "lock_token", "is there, and sequence_number too: keep lock_token to settle by it, sequence_number to lock first"
        )
    if not both:
        raise column_error("lock_token", "is missing: add it, or sequence_number, by which messages are locked and settled in one step")


def _check_encoder(given: StructType, sent: list[str], properties: tuple[str, ...]) -> None:
    schema = pa.schema([(name, arrow_type(given[name].dataType) if name in properties else COLUMNS[name].type) for name in sent])
    try:
        encode_messages(pa.RecordBatch.from_pylist([], schema), now_ms=0, property_columns=properties)
    except EncodeError as problem:
        raise InvalidArgumentError("DataFrame", f"cannot be scheduled: {problem}") from None
