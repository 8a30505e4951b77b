"""What the Spark-facing tests need on the oldest PySpark."""

from __future__ import annotations

import pyspark
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Up to 4.0, collect() leaves the socket it fetched its rows through to the garbage collector (pyspark.util._load_from_socket). Newer
    # ones close it, so there an unclosed socket is still an error.
    if pyspark.__version__.startswith("4.0."):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
