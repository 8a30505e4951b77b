"""The mistakes a new user makes first. Each ends in a message that names the way out: these are the messages, as Spark shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

import spark_sb_mgmt
from spark_sb_mgmt.emulator import Emulator

ROOT = Path(__file__).parents[2]
CLOUD = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0"
Load = Callable[..., DataFrame]
Save = Callable[..., None]


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    queues = [
        {"Name": "orders"},
        {"Name": "by-customer", "Properties": {"RequiresSession": True}},
    ]
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": queues}]}}) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as sdk, sdk.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("an order"))
        yield running


@pytest.fixture
def load(spark: SparkSession, emulator: Emulator) -> Load:
    spark_sb_mgmt.register(spark)

    def read(connection_string: str = emulator.connection_string, **options: str) -> DataFrame:
        reader = spark.read.format("sbmgmt").option("connectionString", connection_string).option("maxRetries", 0)
        return reader.options(**options).load()

    return read


def message_of(mistake: Callable[[], object]) -> str:
    """What the user reads: the last line of the error, before Spark's own code for it."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what Spark raises is Spark's to choose
        mistake()
    said = str(caught.value)
    assert "SAS_KEY_VALUE" not in said
    assert "c2VjcmV0" not in said
    return next(line for line in said.splitlines() if "spark_sb_mgmt.errors." in line)


def test_no_entity(load: Load) -> None:
    assert "option queue is missing: name the entity by queue, topic, topic with subscription, or entityPath" in message_of(load)


def test_no_connection_string(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_sb_mgmt.register(spark)
    said = message_of(lambda: spark.read.format("sbmgmt").option("queue", "orders").load())
    assert "option connectionString is missing, and SBMGMT_CONNECTION_STRING is not set on the driver" in said


def test_wrong_key(load: Load, emulator: Emulator) -> None:
    wrong = emulator.connection_string.replace("SharedAccessKey=", "SharedAccessKey=not-")
    said = message_of(lambda: load(wrong, queue="orders").collect())
    assert "needs the right Listen there: check the key's name and value, and the rights of its policy" in said


def test_wrong_queue_name(load: Load) -> None:
    said = message_of(lambda: load(queue="ordesr").collect())
    assert "There is no entity 'ordesr' in this namespace: check the name. A queue is named by option queue" in said


def test_a_session_asked_of_a_queue_without_sessions(load: Load) -> None:
    said = message_of(lambda: load(queue="orders", sessionId="customer-1").collect())
    assert "leave option sessionId out: it is for queues and subscriptions that require sessions" in said


def test_sessions_asked_of_a_queue_without_sessions(load: Load) -> None:
    said = message_of(lambda: load(queue="orders", operation="get-message-sessions").collect())
    assert "Only queues and subscriptions that require sessions have any: check that 'orders' does" in said


def test_missing_column_of_a_read(load: Load, spark: SparkSession, emulator: Emulator) -> None:
    reader = spark.read.format("sbmgmt").option("connectionString", emulator.connection_string).option("queue", "orders")
    said = message_of(lambda: reader.schema("sequence_numbr long").load().collect())
    assert "column sequence_numbr of .schema(...) is unknown to peek-message, did you mean sequence_number" in said


@pytest.fixture
def save(spark: SparkSession, emulator: Emulator) -> Save:
    spark_sb_mgmt.register(spark)

    def write(rows: DataFrame, mode: str = "append", **options: str) -> None:
        writer = rows.write.format("sbmgmt").mode(mode).option("connectionString", emulator.connection_string)
        writer.options(**options).save()

    return write


def test_missing_column_of_a_write(save: Save, spark: SparkSession, emulator: Emulator) -> None:
    said = message_of(lambda: save(spark.createDataFrame([("1",)], "message_id string"), queue="orders"))
    assert "column scheduled_enqueue_time is missing: add it, or set option scheduledEnqueueTime for all rows" in said
    assert emulator.counts("orders")["scheduled"] == 0


def test_column_that_means_nothing(save: Save, spark: SparkSession) -> None:
    rows = spark.createDataFrame([("1", "eu")], "message_id string, region string")
    said = message_of(lambda: save(rows, queue="orders", scheduledEnqueueTime="2099-01-01"))
    assert "column region is unknown to schedule-message: drop it, or name it in option propertyColumns" in said


def test_wrong_mode(save: Save, spark: SparkSession) -> None:
    said = message_of(lambda: save(spark.range(1), mode="overwrite", queue="orders"))
    assert 'would have to empty the entity first: use mode("append")' in said


def test_message_without_a_session_for_a_queue_with_sessions(save: Save, spark: SparkSession, emulator: Emulator) -> None:
    rows = spark.createDataFrame([("1",)], "message_id string")
    said = message_of(lambda: save(rows, queue="by-customer", scheduledEnqueueTime="2099-01-01"))
    assert "row with message_id=1" in said
    assert "Entities that have session support enabled can only receive messages that have the SessionId set" in said
    assert emulator.counts("by-customer")["scheduled"] == 0


def test_misspelt_option(load: Load) -> None:
    said = message_of(lambda: load(queue="orders", fromSequenceNum="7"))
    assert "option fromsequencenum is unknown, did you mean fromSequenceNumber?" in said


def test_plain_tcp_to_the_cloud_is_refused_before_anything_is_sent(load: Load) -> None:
    said = message_of(lambda: load(f"{CLOUD};UseDevelopmentEmulator=true", queue="orders"))
    assert "contoso.servicebus.windows.net in the cloud, where that is not safe: leave UseDevelopmentEmulator out" in said


def test_tls_to_the_emulator(load: Load, emulator: Emulator) -> None:
    encrypted = emulator.connection_string.replace("UseDevelopmentEmulator=true", "UseDevelopmentEmulator=false")
    said = message_of(lambda: load(encrypted, queue="orders").collect())
    assert "if it is an emulator, add UseDevelopmentEmulator=true to the connection string" in said


def test_no_java(tmp_path: Path) -> None:
    """What `make demo` and `make test` say where there is none and it may not be installed."""
    nowhere = {"PATH": str(tmp_path), "SBMGMT_JAVA_PLACES": str(tmp_path / "*")}
    command = [sys.executable, str(ROOT / "scripts" / "prerequisites.py"), "java"]
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "Java 17 or newer is needed by Spark" in done.stderr
    assert "or set JAVA_HOME to it" in done.stderr


def test_no_mode(load: Load, spark: SparkSession, emulator: Emulator) -> None:
    """Spark's own words; the README's troubleshooting finds them."""
    writer = spark.range(1).write.format("sbmgmt").option("connectionString", emulator.connection_string).option("queue", "orders")
    with pytest.raises(AnalysisException, match='cannot be written in the "ErrorIfExists" mode'):
        writer.save()


def test_partitioning(spark: SparkSession, emulator: Emulator) -> None:
    """Spark's own words; the README's troubleshooting finds them."""
    writer = spark.range(1).write.format("sbmgmt").mode("append").option("connectionString", emulator.connection_string)
    with pytest.raises(IllegalArgumentException, match="The provided partitioning or clustering columns do not match"):
        writer.option("queue", "orders").partitionBy("id").save()


# A driver whose Python workers have not got the package, as on a cluster where nobody installed or shipped it.
UNSHIPPED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
import spark_sb_mgmt
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
said = []
for register in (False, True):
    if register:
        spark_sb_mgmt.register(spark)
    try:
        spark.read.format("sbmgmt").option("connectionString", "x").option("queue", "orders").load()
    except Exception as error:
        said.append(str(error))
spark.stop()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def unshipped(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What Spark says there of a format that was not registered, and of one that was."""
    home = tmp_path_factory.mktemp("unshipped")
    # Without `site`, Python does not see the editable install of the checkout; what the workers need is on their path.
    python = home / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{sysconfig.get_path("purelib")}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    script = home / "driver.py"
    script.write_text(textwrap.dedent(UNSHIPPED), encoding="utf-8")
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run([python, script, ROOT], cwd=home, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said: list[str] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_unregistered_format(unshipped: list[str]) -> None:
    """Spark's own words; the README's troubleshooting finds them."""
    wanted = "Failed to find the data source: sbmgmt. Make sure the provider name is correct and the package is properly registered"
    assert wanted in unshipped[0]


def test_registered_but_not_on_the_cluster(unshipped: list[str]) -> None:
    """Spark's own words; the README's troubleshooting finds them."""
    assert "ModuleNotFoundError: No module named 'spark_sb_mgmt'" in unshipped[1]


def test_a_lost_lock(save: Save, spark: SparkSession) -> None:
    rows = spark.createDataFrame([("03020100-0504-0706-0809-0a0b0c0d0e0f",)], "lock_token string")
    said = message_of(lambda: save(rows, queue="orders", operation="update-disposition", dispositionStatus="completed"))
    assert "row with lock_token=03020100-0504-0706-0809-0a0b0c0d0e0f" in said
    assert "Either the lock expired, or the message has already been removed" in said
    assert "or by sequence_number, which locks and settles in one step" in said
