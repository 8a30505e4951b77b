"""Reading on a standalone cluster: a master and two workers as processes, the package shipped as a zip."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from spark_sb_mgmt.emulator import Emulator
from tests.cluster.shipping import environment, package_zip, run_driver

DRIVER = """
import json, sys
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.master(given["master"])
    .config("spark.ui.enabled", "false")
    .config("spark.cores.max", "2")
    .config("spark.executor.cores", "1")
    .config("spark.executor.memory", "512m")
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.submit.pyFiles", given["zip"])
    .getOrCreate()
)
import spark_sb_mgmt
spark_sb_mgmt.register(spark)
df = spark.read.format("sbmgmt").options(connectionString=given["connection_string"], queue="orders", numPartitions=6).load()

def where(batches):
    import os, pyarrow, spark_sb_mgmt
    for batch in batches:
        here = {"file": [spark_sb_mgmt.__file__] * len(batch), "directory": [os.getcwd()] * len(batch)}
        yield pyarrow.RecordBatch.from_pydict({"number": batch.column(0), **here})

rows = df.select("sequence_number").mapInArrow(where, "number long, file string, directory string").collect()
print(json.dumps({
    "every_message_once": sorted(row.number for row in rows) == list(range(1, 3001)),
    "from_zip": all("sbmgmt.zip" in row.file for row in rows),
    "executors": len({row.directory for row in rows}),
}))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    processes = [_start(directory, "master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        _wait_for_port(port, processes[0])
        for name in ("worker-1", "worker-2"):
            own = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(directory / name)]
            processes.append(_start(directory, name, f"{deploy}.worker.Worker", *own, url))
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def _start(directory: Path, name: str, *command: str) -> subprocess.Popen[bytes]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with open(directory / f"{name}.log", "wb") as log:
        return subprocess.Popen([str(spark_class), *command], env=environment(), stdout=log, stderr=log, cwd=directory)


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the master ended"
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        # Refused at once: give the machine to the master.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise AssertionError("the master did not open its port")


def test_a_queue_is_read_by_two_executors_with_the_package_as_a_zip(emulator: Emulator, master: str, tmp_path: Path) -> None:
    given = {"master": master, "zip": str(package_zip(tmp_path)), "connection_string": emulator.connection_string}
    assert run_driver(DRIVER, given, tmp_path) == {"every_message_once": True, "from_zip": True, "executors": 2}
