"""What all tests share: one Spark session a process, and how hypothesis runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# CI repeats itself: a failure there is a change of ours, not a new random case. Developers look for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Every JVM that a test starts, in whatever process: jobs here are many and short, and compiling quickly rather than well halves their time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark; its time zone is not UTC, so that a time taken for local shows."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("sbmgmt-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    with warnings.catch_warnings():
        # Py4J leaves its sockets to the garbage collector when the session ends.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
