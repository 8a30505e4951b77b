"""The class PySpark knows: name and schema of the `sbmgmt` data source, and which reader does what.

The one rule: thin. Options are read by `options`; the rest is the readers' and writers' own.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options.objects import PeekOptions, ReadOptions, ReceiveOptions, SessionsOptions
from spark_sb_mgmt.spark.options.parsing import is_for_streams, read_options, stream_read_options, write_options
from spark_sb_mgmt.spark.reading.deferred_reader import DeferredReader
from spark_sb_mgmt.spark.reading.peek_reader import PeekReader
from spark_sb_mgmt.spark.reading.read_schema import read_columns, read_schema
from spark_sb_mgmt.spark.reading.refused_stream import RefusedStreamReader
from spark_sb_mgmt.spark.reading.rules_reader import RulesReader
from spark_sb_mgmt.spark.reading.sessions_reader import SessionsReader
from spark_sb_mgmt.spark.reading.stream_reader import PeekStreamReader
from spark_sb_mgmt.spark.writing.stream_writer import StreamWriter
from spark_sb_mgmt.spark.writing.writer import ManagementWriter, check_mode


class ServiceBusManagementDataSource(DataSource):
    """Messages, sessions and rules of Azure Service Bus over its request-response ($management) operations.

    Name: `sbmgmt`

    Schema: by option `operation`; for messages the columns of `spark_sb_mgmt.amqp.columns.DEFAULT_COLUMNS`. Columns that are there on
    request only are asked for with `.schema(...)`, which also leaves out columns that are not wanted.

    Options: `spark_sb_mgmt.spark.options.table`.

    A DataFrame's plan is made at its first action and then stays: what arrives later is read by a new `load()`. (PySpark 4.0 makes a new
    plan for each action.)

    Examples:
        >>> spark.read.format("sbmgmt").option("connectionString", cs).option("queue", "orders").load()
        >>> spark.read.format("sbmgmt").schema("sequence_number long, body binary").option("queue", "orders").load()
        >>> spark.readStream.format("sbmgmt").option("queue", "orders").option("startingSequenceNumber", "earliest").load()
    """

    @classmethod
    def name(cls) -> str:
        return "sbmgmt"

    def schema(self) -> StructType:
        # Spark asks for it before it says whether this is for a batch or a stream.
        if is_for_streams(self.options):
            return read_schema(stream_read_options(self.options).operation)
        options = read_options(self.options)
        return read_schema(options.operation, _on_missing(options))

    # PySpark gives `schema` by its name in some versions, so that is its name here.
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        columns = read_columns(schema, options.operation, _on_missing(options))
        if isinstance(options, PeekOptions):
            return PeekReader(options, columns)
        if isinstance(options, ReceiveOptions):
            return DeferredReader(options, columns)
        if isinstance(options, SessionsOptions):
            return SessionsReader(options, columns)
        return RulesReader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            options = stream_read_options(self.options)
            return PeekStreamReader(options, read_columns(schema, options.operation))
        except InvalidArgumentError as problem:
            return RefusedStreamReader(problem)

    # So are these: `schema` and `overwrite` are given by name.
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        check_mode(overwrite)
        return ManagementWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        check_mode(overwrite, "outputMode")
        return StreamWriter(write_options(self.options), schema)


def _on_missing(options: ReadOptions) -> str | None:
    return options.on_missing if isinstance(options, ReceiveOptions) else None
