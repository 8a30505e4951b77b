"""The class PySpark knows: name and schema of the `sbmgmt` data source."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_sb_mgmt.spark.schema import message_schema


class ServiceBusManagementDataSource(DataSource):
    """Messages of Azure Service Bus over its request-response ($management) operations.

    Name: `sbmgmt`

    Schema: the message columns of `spark_sb_mgmt.amqp.columns.DEFAULT_COLUMNS`. Columns that are there on request only are asked for
    with `.schema(...)`, which also leaves out columns that are not wanted.

    Reading and writing are not there yet: PySpark answers an action on the DataFrame with its own "not implemented" error.

    Examples:
        >>> spark.read.format("sbmgmt").load().printSchema()
        >>> spark.read.format("sbmgmt").schema("sequence_number long, body binary").load()
    """

    @classmethod
    def name(cls) -> str:
        return "sbmgmt"

    def schema(self) -> StructType:
        return message_schema()
