"""What a Python worker leaves behind that is killed with SIGKILL in the middle of a read, and what the next attempt makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from spark_sb_mgmt.emulator import Emulator, Fault
from tests.cluster.conftest import COUNT
from tests.cluster.shipping import finished_driver, last_line

DRIVER = """
import json, os, signal, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import spark_sb_mgmt
from spark_sb_mgmt.emulator import Fault
from spark_sb_mgmt.emulator.control import EmulatorControl

given = json.loads(sys.argv[1])
# Where the driver's planners find it; the tasks have it from them.
os.environ["SBMGMT_CONNECTION_STRING"] = given["connection_string"]
spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark_sb_mgmt.register(spark)
control = EmulatorControl.connect(given["connection_string"])
operation = given["options"]["operation"]

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def workers():
    '''Our executor's, forked by its daemon; not the daemon itself, nor those that plan.'''
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            above, ours = [int(path.name)], False
            while above[-1] > 1 and not ours:
                above.append(parent(above[-1]))
                ours = above[-1] == os.getpid()
            is_worker = all(b"pyspark.daemon\\0pyspark.worker" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in above[:2])
        except OSError:
            continue
        if ours and is_worker:
            found.append(above[0])
    return found

killed = []

def kill():
    '''When the read has asked so often, of which one answer does not come.'''
    stop = threading.Event()
    for _ in range(1200):
        if control.requests.get(operation, 0) >= given["asked"]:
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            return
        stop.wait(0.05)

df = spark.read.format("sbmgmt").options(**given["options"]).load()
df.rdd.getNumPartitions()
given["asked"] += control.requests.get(operation, 0)
control.faults.add(Fault(**given["fault"]))
thread = threading.Thread(target=kill)
thread.start()
numbers = sorted(row.sequence_number for row in df.select("sequence_number").collect())
thread.join()
print(json.dumps({"numbers": numbers, "killed": len(killed)}))
"""
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT5S"}}]}]}}
DEFERRED = 10


@pytest.fixture
def deferred() -> Iterator[Emulator]:
    """Queue `orders` has ten deferred messages; its locks last five seconds."""
    with Emulator.start(CONFIG) as running, ServiceBusClient.from_connection_string(running.connection_string) as sdk:
        with sdk.get_queue_sender("orders") as sender, sdk.get_queue_receiver("orders") as receiver:
            sender.send_messages([ServiceBusMessage(f"body {at}") for at in range(DEFERRED)])
            left = DEFERRED
            while left:
                for message in receiver.receive_messages(left, max_wait_time=5):
                    receiver.defer_message(message)
                    left -= 1
        yield running


def given(emulator: Emulator, asked: int, fault: Fault, **options: str) -> dict[str, object]:
    """Kill when so many requests were made since the plan, of which the fault keeps one from being answered."""
    known = {"queue": "orders", "operation": str(fault.operation), "numPartitions": "1", **options}
    return {"connection_string": emulator.connection_string, "options": known, "asked": asked, "fault": asdict(fault)}


def test_a_peek_that_was_killed_is_read_again_and_every_message_is_one_row(emulator: Emulator, tmp_path: Path) -> None:
    """Most of its rows were handed to Spark already, which forgets them."""
    fault = Fault("lose-reply", operation="peek-message", skip=50)
    done = finished_driver(DRIVER, given(emulator, COUNT // 100, fault, pageSize="100"), tmp_path)
    assert last_line(done) == {"numbers": list(range(1, COUNT + 1)), "killed": 1}


def test_locks_of_a_killed_attempt_are_waited_for_and_the_log_says_so(deferred: Emulator, tmp_path: Path) -> None:
    """All ten were locked when it was killed: nobody was left to give them back."""
    fault = Fault("lose-reply", operation="receive-by-sequence-number", skip=1)
    done = finished_driver(DRIVER, given(deferred, 2, fault, sequenceNumbers="1-10", pageSize="5"), tmp_path)
    assert last_line(done) == {"numbers": list(range(1, DEFERRED + 1)), "killed": 1}
    assert "10 deferred messages of orders are locked, perhaps by an earlier attempt of this task that was killed" in done.stderr
    assert "waiting up to 310 s for their locks to end (sequence numbers 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)" in done.stderr
