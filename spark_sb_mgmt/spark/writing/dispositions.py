"""What rows want done with their messages (CONTRACT section 1.3, update-disposition).

The one rule: rows with one disposition are one request, however many they are; what cannot be said to the service is told of its rows
before any is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from spark_sb_mgmt.amqp.typed_text import section_from_typed
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.errors import LocalProtocolError
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.settle import update_disposition
from spark_sb_mgmt.spark.writing.row_groups import groups
from spark_sb_mgmt.spark.writing.write_rows import RowProblem

DISPOSITION_COLUMNS: Final = ("session_id", "disposition_status", "deadletter_reason", "deadletter_description", "properties_to_modify")
_ANY_TOKEN: Final = UUID(int=0)


@dataclass(frozen=True)
class Disposition:
    """One of these, as `update_disposition` is asked for it."""

    status: str
    deadletter_reason: str | None = None
    deadletter_description: str | None = None
    properties_to_modify: Map | None = None
    session_id: str | None = None

    @property
    def removes(self) -> bool:
        """Whether the message leaves the entity, which a peek shows."""
        return self.status in (names.COMPLETED, names.SUSPENDED)

    def request(self, tokens: Iterable[UUID | str]) -> Request[None]:
        return update_disposition(
            self.status,
            tokens,
            self.deadletter_reason,
            self.deadletter_description,
            self.properties_to_modify,
            self.session_id,
        )


def disposition_of(rows: pa.RecordBatch, status: str | None) -> Disposition:
    """That of rows that have one; `status` is the option's, for rows without the column. Raises LocalProtocolError for what cannot be
    sent."""
    cells: dict[str, Any] = {name: rows.column(name)[0].as_py() for name in DISPOSITION_COLUMNS if name in rows.schema.names}
    properties = cells.get("properties_to_modify")
    return Disposition(
        cells.get("disposition_status") or str(status),
        cells.get("deadletter_reason"),
        cells.get("deadletter_description"),
        None if properties is None else _properties(properties),
        cells.get("session_id"),
    )


def _properties(pairs: Sequence[tuple[str, Any]]) -> Map | None:
    """Typed values with their types; a plain string is one, and null is null."""
    entries = []
    for key, value in pairs:
        plain = ("null", None) if value is None else ("string", value)
        entries.append((key, (value["type"] or "null", value["value"]) if isinstance(value, dict) else plain))
    return section_from_typed(entries, "string")


def by_disposition(rows: pa.RecordBatch, status: str | None) -> Iterator[tuple[Disposition, pa.RecordBatch]]:
    for group in groups(rows, DISPOSITION_COLUMNS):
        yield disposition_of(group, status), group


def disposition_problems(rows: pa.RecordBatch, status: str | None) -> list[RowProblem]:
    """What cannot be said to the service: of properties nearly always, since the rest is checked with all other columns."""
    if "properties_to_modify" not in rows.schema.names:
        return []
    numbered = rows.select([name for name in DISPOSITION_COLUMNS if name in rows.schema.names])
    numbered = pa.RecordBatch.from_arrays([*numbered.columns, pa.array(range(rows.num_rows))], [*numbered.schema.names, "row"])
    found = []
    for group in groups(numbered, DISPOSITION_COLUMNS):
        try:
            disposition_of(group, status).request([_ANY_TOKEN])
        except LocalProtocolError as problem:
            found += [RowProblem(row, f"properties_to_modify cannot be sent: {problem}") for row in group.column("row").to_pylist()]
    return found
