"""The message columns as Spark types.

The columns themselves are defined once, as Arrow fields, in `spark_sb_mgmt.amqp.columns`: from 4.2 on PySpark compares the schema of a
record batch with the Arrow form of the DataFrame's schema field by field, so the two may not be written down apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.columns import schema as arrow_schema

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def message_schema(names: Iterable[str] = DEFAULT_COLUMNS) -> StructType:
    """The schema of the named message columns, in the order given."""
    return StructType([_spark_field(field) for field in arrow_schema(names)])


def _spark_field(field: pa.Field) -> StructField:
    return StructField(field.name, _spark_type(field.type), field.nullable)


def _spark_type(arrow_type: pa.DataType) -> DataType:
    if pa.types.is_map(arrow_type):
        value = arrow_type.item_field
        return MapType(_spark_type(arrow_type.key_type), _spark_type(value.type), value.nullable)
    if pa.types.is_struct(arrow_type):
        return StructType([_spark_field(field) for field in arrow_type])
    return _SPARK_TYPES[arrow_type]
