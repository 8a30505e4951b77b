"""A PySpark data source for the request-response ($management) side of Azure Service Bus.

The public names, and nothing more: importing this package imports neither Spark nor the AMQP engine, so that a tool which only wants
one layer (the codec, the emulator) does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sb_mgmt.errors import SbMgmtError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sb_mgmt.spark.datasource import ServiceBusManagementDataSource

__all__ = ["SbMgmtError", "ServiceBusManagementDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("sbmgmt")` known to this session; not needed, and harmless, where the wheel is installed.

    A thread of your own has to call it too before it writes: Spark looks for the format of a write in the session that is active in its
    thread, and a new thread has none."""
    from pyspark.errors import AnalysisException

    from spark_sb_mgmt.spark.datasource import ServiceBusManagementDataSource

    try:
        spark.dataSource.register(ServiceBusManagementDataSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses a name that its own search has found, which it has where the wheel is installed; newer ones replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    # By this PySpark makes a session the active one of the thread.
    spark.createDataFrame([], "nothing int")


def __getattr__(name: str) -> type[ServiceBusManagementDataSource]:
    if name == "ServiceBusManagementDataSource":
        from spark_sb_mgmt.spark.datasource import ServiceBusManagementDataSource

        return ServiceBusManagementDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
