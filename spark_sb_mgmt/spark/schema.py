"""Spark types and Arrow types, one for the other.

The one rule: columns are defined once, as Arrow fields (`spark_sb_mgmt.amqp.columns`, `read_schema`): from 4.2 on PySpark compares the
schema of a record batch with the Arrow form of the DataFrame's schema field by field, so the two may not be written down apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.columns import schema as arrow_schema

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.string(): StringType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
}
_ARROW_TYPES: dict[DataType, pa.DataType] = {spark: arrow for arrow, spark in _SPARK_TYPES.items()}


def message_schema(names: Iterable[str] = DEFAULT_COLUMNS) -> StructType:
    """The schema of the named message columns, in the order given."""
    return spark_schema(arrow_schema(names))


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema of ours in Spark's types."""
    return StructType([_spark_field(field) for field in schema])


def spark_type(arrow_type: pa.DataType) -> DataType:
    """The Spark type of a column of ours."""
    if pa.types.is_map(arrow_type):
        value = arrow_type.item_field
        return MapType(spark_type(arrow_type.key_type), spark_type(value.type), value.nullable)
    if pa.types.is_struct(arrow_type):
        return StructType([_spark_field(field) for field in arrow_type])
    return _SPARK_TYPES[arrow_type]


def arrow_type(spark: DataType) -> pa.DataType | None:
    """The Arrow type that Spark sends a scalar as; None for what is no scalar."""
    if isinstance(spark, DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    return _ARROW_TYPES.get(spark)


def _spark_field(field: pa.Field) -> StructField:
    return StructField(field.name, spark_type(field.type), field.nullable)
