"""What PySpark's own search for data sources finds: it imports every module named pyspark_* and asks it for `DefaultSource`.

Importing this module imports nothing else: an error here would hide the data sources of every other package from the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_sb_mgmt import ServiceBusManagementDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> type[DefaultSource]:
    if name == "DefaultSource":
        from spark_sb_mgmt import ServiceBusManagementDataSource

        return ServiceBusManagementDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
