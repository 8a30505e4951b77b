"""Reading on a standalone cluster: a master and two workers as processes, the package shipped as a zip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_sb_mgmt.emulator import Emulator
from tests.cluster.conftest import COUNT
from tests.cluster.shipping import ON_THE_CLUSTER, finished_driver, last_line, package_zip

WRONG_KEY = "d3JvbmcgYnV0IHNlY3JldCBhbGwgdGhlIHNhbWU="

DRIVER = (
    ON_THE_CLUSTER
    + """
spark = (
    builder.config("spark.submit.pyFiles", given["zip"])
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", "file:" + given["events"])
    .getOrCreate()
)
import spark_sb_mgmt
from spark_sb_mgmt.emulator import Fault
from spark_sb_mgmt.emulator.control import EmulatorControl
spark_sb_mgmt.register(spark)

def read(connection_string, **options):
    return spark.read.format("sbmgmt").options(connectionString=connection_string, **options).load()

df = read(given["connection_string"], queue="orders", numPartitions=6)

def where(batches):
    import os, pyarrow, spark_sb_mgmt
    for batch in batches:
        here = {"file": [spark_sb_mgmt.__file__] * len(batch), "directory": [os.getcwd()] * len(batch)}
        yield pyarrow.RecordBatch.from_pydict({"number": batch.column(0), **here})

def every_message_once(rows):
    return sorted(row.number for row in rows) == list(range(1, given["count"] + 1))

rows = df.select("sequence_number").mapInArrow(where, "number long, file string, directory string").collect()
found = {
    "every_message_once": every_message_once(rows),
    "from_zip": all("sbmgmt.zip" in row.file for row in rows),
    "executors": len({row.directory for row in rows}),
}

# One answer does not come for a minute, and the rest of the tasks are done: Spark starts a copy of the one that waits.
control = EmulatorControl.connect(given["connection_string"])
again = read(given["connection_string"], queue="orders", numPartitions=6, maxRetries=0).selectExpr("sequence_number as number")
again.rdd.getNumPartitions()
key = control.faults.add(Fault("delay", operation="peek-message", skip=3, seconds=60.0, when="after"))
found["every_message_once_with_copies"] = every_message_once(again.collect())
found["delayed"] = control.faults.hits(key)

# What fails is in the event log with all its words.
parts = given["connection_string"].split(";")
wrong = ";".join("SharedAccessKey=" + given["wrong_key"] if part.startswith("SharedAccessKey=") else part for part in parts)
try:
    read(wrong, queue="orders").count()
except Exception as error:
    found["refused"] = "needs the right Listen" in str(error)
control.faults.add(Fault("fail", operation="peek-message", skip=8, count=None))
try:
    read(given["connection_string"], queue="orders", numPartitions=6, maxRetries=0).collect()
except Exception as error:
    found["failed"] = "a fault was scripted" in str(error)
spark.stop()
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def found(emulator: Emulator, master: str, directory: Path) -> dict[str, Any]:
    """What one application saw."""
    (directory / "events").mkdir()
    known = {
        "master": master,
        "zip": str(package_zip(directory)),
        "events": str(directory / "events"),
        "wrong_key": WRONG_KEY,
        "count": COUNT,
    }
    done = finished_driver(DRIVER, {**known, "connection_string": emulator.connection_string}, directory)
    (directory / "driver.log").write_text(done.stdout + done.stderr)
    return dict(last_line(done))


def test_a_queue_is_read_by_two_executors_with_the_package_as_a_zip(found: dict[str, Any]) -> None:
    assert {name: found[name] for name in ("every_message_once", "from_zip", "executors")} == {
        "every_message_once": True,
        "from_zip": True,
        "executors": 2,
    }


def test_a_task_of_which_spark_starts_a_copy_gives_no_row_twice(found: dict[str, Any], directory: Path) -> None:
    assert (found["every_message_once_with_copies"], found["delayed"]) == (True, 1)
    assert '"Speculative":true' in written(directory / "events")


def test_no_file_that_spark_wrote_has_a_secret(found: dict[str, Any], emulator: Emulator, directory: Path) -> None:
    """Failed stages are there with the whole text of their exceptions."""
    assert (found["refused"], found["failed"]) == (True, True)
    assert "a fault was scripted" in written(directory / "events")
    key = dict(part.partition("=")[::2] for part in emulator.connection_string.split(";") if part)["SharedAccessKey"]
    everything = written(directory)
    assert "SparkListenerApplicationEnd" in everything
    assert [secret for secret in (key, WRONG_KEY) if secret in everything] == []


def written(directory: Path) -> str:
    """All text below a directory."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix not in (".jar", ".zip"))
    return "\n".join(path.read_text(errors="replace") for path in files)
