"""A stream that cannot be, because of its options or columns.

The one rule: the error that says so is the one people see. What `streamReader()` raises is hidden by PySpark behind an error of its own
(it stops the reader also where there is none yet), so there is a reader, and whatever is asked of it raises what was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_sb_mgmt.errors import SbMgmtError


class RefusedStreamReader(DataSourceStreamReader):
    """Raises the same error, whatever Spark begins with: a new query with its first offset, one that is started again with another."""

    def __init__(self, error: SbMgmtError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
