"""Writing on a standalone cluster whose executors are killed, whose tasks run twice, and whose jobs fail or are cancelled: what stands
afterwards, counted by the official SDK."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient

from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator
from tests.cluster.shipping import ON_THE_CLUSTER, finished_driver, last_line

QUEUES = ("killed", "copied", "failed", "stopped", "taken-back")
ROWS = 1_200
# One application for all of them; an executor that is killed is replaced after some seconds.
pytestmark = pytest.mark.timeout(300)

DRIVER = (
    ON_THE_CLUSTER
    + """
import os, signal, threading
from pathlib import Path
from pyspark.sql import functions as F

spark = builder.getOrCreate()
import spark_sb_mgmt
from spark_sb_mgmt.emulator import Fault
from spark_sb_mgmt.emulator.control import EmulatorControl
spark_sb_mgmt.register(spark)
control = EmulatorControl.connect(given["connection_string"])
found = {}

def save(df, queue, operation="schedule-message"):
    '''Why the job failed, or nothing.'''
    writer = df.write.format("sbmgmt").mode("append").option("connectionString", given["connection_string"])
    options = {"queue": queue, "operation": operation, "maxBatchMessages": 20, "pipelineDepth": 2}
    try:
        writer.options(**options).save()
    except Exception as error:
        return str(error)

# Rows come out of a shuffle: with its executor a task loses its input too, and its stage runs again.
rows = spark.range(0, given["rows"], 1, 4).repartition(4).select(
    F.format_string("order-%05d", "id").alias("message_id"),
    F.lit(b"x").alias("body"),
    F.expr("current_timestamp() + interval 1 day").alias("scheduled_enqueue_time"),
)

def executors():
    '''The processes of our executors.'''
    ours = f":{spark.conf.get('spark.driver.port')}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and b"java" in command.partition(b"\\0")[0] and ours in command:
            found.append(int(path.name))
    return found

def when(operation, requests, what):
    '''Do something as soon as there were so many requests of the job.'''
    stop, already = threading.Event(), control.requests.get(operation, 0)
    def run():
        for _ in range(1200):
            if control.requests.get(operation, 0) >= already + requests:
                return what()
            stop.wait(0.05)
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def kill_executor():
    os.kill(executors()[0], signal.SIGKILL)
    found["killed"] = found.get("killed", 0) + 1

def waiting(operation, queue, skip):
    '''One request is carried out, and its answer does not come for a minute.'''
    return control.faults.add(Fault("delay", operation=operation, entity=queue, skip=skip, seconds=60.0, when="after"))

waiting("schedule-message", "killed", 12)
thread = when("schedule-message", 14, kill_executor)
found["killed_job"] = save(rows, "killed")
thread.join()

numbers = spark.createDataFrame([(number,) for number in given["numbers"]], "sequence_number long").repartition(2)
waiting("cancel-scheduled-message", "taken-back", 5)
thread = when("cancel-scheduled-message", 7, kill_executor)
found["taken_back_job"] = save(numbers, "taken-back", "cancel-scheduled-message")
thread.join()

waiting("schedule-message", "copied", 12)
found["copied_job"] = save(rows, "copied")

waiting("schedule-message", "stopped", 12)
thread = when("schedule-message", 14, spark.sparkContext.cancelAllJobs)
found["stopped_job"] = save(rows, "stopped") is not None
thread.join()

broken = rows.withColumn("body", F.expr("if(message_id = 'order-00777', raise_error('no such order'), body)"))
found["failed_job"] = "no such order" in save(broken, "failed")
spark.stop()
print(json.dumps(found))
"""
)


class Written(NamedTuple):
    """What the driver said, its log, and the entities that it left."""

    said: dict[str, Any]
    log: str
    standing: dict[str, Counter[str]]


@pytest.fixture(scope="module")
def written(master: str, directory: Path) -> Iterator[Written]:
    config = {"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": name} for name in QUEUES]}]}}
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    with Emulator.start(config) as emulator:
        with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity("taken-back") as entity:
            numbers = entity.schedule_message([ScheduledMessage(b"", tomorrow, f"standing-{at}") for at in range(400)])
        known = {"master": master, "connection_string": emulator.connection_string, "rows": ROWS, "numbers": numbers[:390]}
        done = finished_driver(DRIVER, known, directory, timeout=240.0)
        with ServiceBusClient.from_connection_string(emulator.connection_string) as sdk:
            yield Written(last_line(done), done.stderr, {name: standing(sdk, name) for name in QUEUES})


def standing(sdk: ServiceBusClient, queue: str) -> Counter[str]:
    found: Counter[str] = Counter()
    start = 0
    with sdk.get_queue_receiver(queue) as receiver:
        while page := receiver.peek_messages(250, sequence_number=start):
            found.update(str(message.message_id) for message in page)
            start = (page[-1].sequence_number or 0) + 1
    return found


EVERY_ROW_ONCE = Counter(f"order-{at:05d}" for at in range(ROWS))


def test_a_killed_executor_leaves_each_row_once(written: Written) -> None:
    assert written.said["killed"] == 2
    assert written.said["killed_job"] is None
    assert written.standing["killed"] == EVERY_ROW_ONCE
    assert "messages of lost task attempts are cancelled at killed" in written.log


def test_a_cancel_whose_executor_is_killed_is_finished(written: Written) -> None:
    assert written.said["taken_back_job"] is None
    assert written.standing["taken-back"] == Counter(f"standing-{at}" for at in range(390, 400))


def test_a_task_of_which_spark_starts_a_copy_leaves_each_row_once(written: Written) -> None:
    assert written.said["copied_job"] is None
    assert written.standing["copied"] == EVERY_ROW_ONCE
    assert "messages of lost task attempts are cancelled at copied" in written.log


def test_a_job_that_is_cancelled_leaves_nothing(written: Written) -> None:
    assert written.said["stopped_job"]
    assert written.standing["stopped"] == Counter()


def test_a_job_whose_rows_cannot_be_made_leaves_nothing_of_any_attempt(written: Written) -> None:
    assert written.said["failed_job"]
    assert written.standing["failed"] == Counter()
