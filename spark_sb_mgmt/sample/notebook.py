"""Where a notebook's Service Bus is: a namespace of the user's, or the shop on an emulator inside the notebook.

The one rule: a connection string that is given is used, and nothing is put there; only an emulator of its own is filled.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import shop
from spark_sb_mgmt.sample.shop import Day

CONNECTION_STRING: Final = "SBMGMT_CONNECTION_STRING"
# On Databricks: secret `connection-string` of scope `sbmgmt`.
SECRET: Final = ("sbmgmt", "connection-string")


@dataclass(frozen=True)
class ServiceBus:
    """What a notebook works on. `day` says what is there to be found; of a namespace of the user's, nobody knows (None)."""

    connection_string: str
    day: Day | None = None
    emulator: Emulator | None = None

    def __repr__(self) -> str:
        return "ServiceBus(a namespace of yours)" if self.emulator is None else f"ServiceBus({self.emulator!r}, {self.day!r})"

    def name(self, variable: str, default: str) -> str:
        """The entity that an environment variable names; on the emulator, the shop's."""
        return default if self.emulator is not None else os.environ.get(variable, default)


def service_bus(spark: Any, dbutils: Any = None, day: Day = Day()) -> ServiceBus:  # noqa: B008 - frozen
    """By environment variable, by secret of Databricks, or the shop on a new emulator."""
    connection_string = os.environ.get(CONNECTION_STRING) or _secret(dbutils)
    if connection_string:
        return ServiceBus(connection_string)
    # The official SDK is only needed here.
    from spark_sb_mgmt.sample.traffic import fill

    emulator = Emulator.start(shop.CONFIG, host=_host(spark))
    fill(emulator.connection_string, day)
    return ServiceBus(emulator.connection_string, day, emulator)


def _secret(dbutils: Any) -> str | None:
    scope, key = SECRET
    if dbutils is None or scope not in [one.name for one in dbutils.secrets.listScopes()]:
        return None
    return str(dbutils.secrets.get(scope, key))


def _host(spark: Any) -> str:
    """An address of this machine that the executors can reach."""
    if spark.conf.get("spark.master", "local").startswith("local"):
        return "127.0.0.1"
    return str(spark.conf.get("spark.driver.host"))
