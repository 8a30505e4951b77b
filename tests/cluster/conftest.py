"""An emulator with a filled queue, for drivers in other processes, and a standalone cluster of Spark.

The workers have addresses of their own, both of this machine: Spark starts no second copy of a task on the host of the first.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyspark
import pytest

from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator
from tests.cluster.shipping import environment

# More than the batch that a reader hands over at once.
COUNT = 6_000


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """Queue `orders` has so many messages, scheduled: they stand to be peeked as any others do."""
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": "orders"}]}]}}) as running:
        with ManagementClient.from_connection_string(running.connection_string) as client, client.entity("orders") as orders:
            for start in range(0, COUNT, 500):
                orders.schedule_message([ScheduledMessage(f"body {at}", tomorrow, str(at)) for at in range(start, start + 500)])
        yield running


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the cluster and its driver write is all below it."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="session")
def master(directory: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    processes = [_start(directory, "master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        _wait_for_port(port, processes[0])
        for name, host in (("worker-1", "127.0.0.1"), ("worker-2", "127.0.0.2")):
            own = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(directory / name)]
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
