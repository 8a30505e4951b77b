"""The columns of each read operation, and those of them that `.schema(...)` asks for (CONTRACT sections 1.2 and 2).

The one rule: what is read is exactly what was asked for, in its order, since PySpark takes nothing else; a name or type that there is not
is an error that lists what there is. Every column may be null: whether a message has a value is for its sender to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql.types import DataType, StructType

from spark_sb_mgmt.amqp.columns import COLUMNS, TIMESTAMP, TYPED_MAP
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.schema import spark_schema, spark_type
from spark_sb_mgmt.spark.suggestions import did_you_mean

STATUS: Final = "status"
SESSION_STATE: Final = "session_state"
CORRELATION_FILTER: Final = pa.struct(
    [*(pa.field(key.replace("-", "_"), pa.string()) for key in names.CORRELATION_FIELDS), pa.field(names.PROPERTIES, TYPED_MAP)]
)
SESSION_COLUMNS: Final = pa.schema([("entity", pa.string()), ("session_id", pa.string()), (SESSION_STATE, pa.binary())])
RULE_COLUMNS: Final = pa.schema(
    [
        ("entity", pa.string()),
        ("rule_name", pa.string()),
        ("filter_type", pa.string()),
        ("sql_expression", pa.string()),
        ("correlation_filter", CORRELATION_FILTER),
        ("action_type", pa.string()),
        ("action_expression", pa.string()),
        ("created_at", TIMESTAMP),
    ]
)
_MESSAGE_COLUMNS: Final = pa.schema([(name, column.type) for name, column in COLUMNS.items()])
# Before 4.1 PySpark loses the rows of a batch that has no columns.
KEEPS_ROWS_WITHOUT_COLUMNS: Final = not pyspark.__version__.startswith("4.0.")
_ON_REQUEST: Final = frozenset(name for name, column in COLUMNS.items() if column.on_request)


@dataclass(frozen=True)
class ReadColumns:
    """The columns of a read, in their order; `arrow` is the schema that every batch must have."""

    arrow: pa.Schema

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.arrow.names)

    @property
    def message_columns(self) -> tuple[str, ...]:
        """For the decoder: those that it knows. `status` is added by who knows which messages were missing."""
        return tuple(name for name in self.arrow.names if name in COLUMNS)

    def __contains__(self, name: str) -> bool:
        return name in self.arrow.names


def read_schema(operation: str, on_missing: str | None = None) -> StructType:
    """The schema of a read where `.schema(...)` says nothing: all columns but those on request."""
    available = _available(operation, on_missing)
    return spark_schema(pa.schema([field for field in available if field.name not in _ON_REQUEST]))


def read_columns(asked: StructType, operation: str, on_missing: str | None = None) -> ReadColumns:
    """The columns that a schema asks for, checked against those that the operation has."""
    available = _available(operation, on_missing)
    wrong = partial(_wrong, available=available)
    if not asked.fields and not KEEPS_ROWS_WITHOUT_COLUMNS:
        raise InvalidArgumentError(".schema(...)", f"has no columns, and this PySpark counts no rows then: name one of {listed(available)}")
    seen: set[str] = set()
    for field in asked:
        if field.name not in available.names:
            hint = did_you_mean(field.name, available.names)
            if field.name == STATUS and operation == table.RECEIVE:
                hint = "; it is there when option onMissing is report"
            raise wrong(field.name, f"is unknown to {operation}{hint}")
        if field.name in seen:
            raise wrong(field.name, "is named twice")
        seen.add(field.name)
        expected = spark_type(available.field(field.name).type)
        if field.dataType != expected:
            raise wrong(field.name, _wrong_type(field.dataType, expected))
        if not field.nullable:
            raise wrong(field.name, "is NOT NULL, but it may be null: leave NOT NULL out")
    return ReadColumns(pa.schema([available.field(name) for name in asked.names]))


def _available(operation: str, on_missing: str | None) -> pa.Schema:
    if operation == table.SESSIONS:
        return SESSION_COLUMNS
    if operation == table.RULES:
        return RULE_COLUMNS
    if operation == table.RECEIVE and on_missing == "report":
        return _MESSAGE_COLUMNS.append(pa.field(STATUS, pa.string()))
    return _MESSAGE_COLUMNS


def _wrong_type(given: DataType, expected: DataType) -> str:
    if given.simpleString() == expected.simpleString():
        return f"is {given.simpleString()} with a part that is NOT NULL: every part may be null"
    return f"is {given.simpleString()}: it must be {expected.simpleString()}; cast it after reading"


def _wrong(name: str, problem: str, *, available: pa.Schema) -> InvalidArgumentError:
    return InvalidArgumentError(f"column {name:.80}", f"of .schema(...) {problem}. There are {listed(available)}")


def listed(schema: pa.Schema, only: Sequence[str] | None = None) -> str:
    """Columns with their types, as a schema's text has them."""
    fields = [field for field in schema if only is None or field.name in only]
    return ", ".join(f"{field.name} {spark_type(field.type).simpleString()}" for field in fields)
