"""What the Spark-facing tests share: an emulator with fresh entities for each test; what they need on the oldest PySpark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count

import pyspark
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import spark_sb_mgmt
from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.emulator import Emulator

NewEntity = Callable[[str], str]
Write = Callable[..., None]
Scheduling = Callable[..., tuple[str, list[int]]]
Deferring = Callable[..., tuple[str, list[int]]]

_EACH = 200
_KINDS = {
    "queue": {},
    "sessions": {"RequiresSession": True},
    "partitioned": {"EnablePartitioning": True},
    "brief-locks": {"LockDuration": "PT5S"},
    "duplicates": {"RequiresDuplicateDetection": True},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Up to 4.0, collect() leaves the socket it fetched its rows through to the garbage collector (pyspark.util._load_from_socket). Newer
    # ones close it, so there an unclosed socket is still an error.
    if pyspark.__version__.startswith("4.0."):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """An emulator with many entities of each kind, none of which is used twice."""
    queues = [{"Name": f"{kind}-{at}", "Properties": properties} for kind, properties in _KINDS.items() for at in range(_EACH)]
    topics = [{"Name": f"topic-{at}", "Subscriptions": [{"Name": "one"}, {"Name": "two"}]} for at in range(_EACH)]
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": queues, "Topics": topics}]}}) as running:
        yield running


@pytest.fixture(scope="session")
def _numbers() -> dict[str, Iterator[int]]:
    return defaultdict(count)


@pytest.fixture(scope="session")
def new_entity(_numbers: dict[str, Iterator[int]]) -> Callable[[str], str]:
    """The name of an entity of a kind that no test has used: queue, sessions, partitioned, brief-locks, duplicates or topic."""

    def name(kind: str) -> str:
        number = next(_numbers[kind])
        assert number < _EACH, f"there are {_EACH} of {kind}"
        return f"{kind}-{number}"

    return name


@pytest.fixture(scope="session")
def sdk(emulator: Emulator) -> Iterator[ServiceBusClient]:
    """The official SDK, connected to the emulator. Each sender and receiver takes it a second to open and close."""
    with ServiceBusClient.from_connection_string(emulator.connection_string) as client:
        yield client


@pytest.fixture
def read(spark: SparkSession, emulator: Emulator) -> Callable[..., DataFrame]:
    """`spark.read` on the emulator with these options; `schema` is for `.schema(...)`."""
    spark_sb_mgmt.register(spark)

    def load(schema: str | StructType | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("sbmgmt").option("connectionString", emulator.connection_string)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader if schema is None else reader.schema(schema)).load()

    return load


@pytest.fixture
def write(spark: SparkSession, emulator: Emulator) -> Write:
    """`df.write` on the emulator with these options."""
    spark_sb_mgmt.register(spark)

    def save(df: DataFrame, mode: str = "append", partition_by: str | None = None, **options: object) -> None:
        writer = df.write.format("sbmgmt").mode(mode).option("connectionString", emulator.connection_string)
        for name, value in options.items():
            writer = writer.option(name, str(value))
        (writer if partition_by is None else writer.partitionBy(partition_by)).save()

    return save


@pytest.fixture
def scheduling(emulator: Emulator, new_entity: NewEntity) -> Scheduling:
    """An entity of a kind with so many messages scheduled for tomorrow; its name and their numbers."""

    def make(count: int, kind: str = "queue") -> tuple[str, list[int]]:
        name = new_entity(kind)
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        messages = [ScheduledMessage(b"body", tomorrow, f"message-{at}") for at in range(count)]
        with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(name) as entity:
            return name, sorted(entity.schedule_message(messages))

    return make


@pytest.fixture
def deferring(sdk: ServiceBusClient, new_entity: NewEntity) -> Deferring:
    """A queue with so many messages, of which the first `deferred` are deferred; its name and their numbers."""

    def make(deferred: int, others: int = 0, kind: str = "queue", session_id: str | None = None) -> tuple[str, list[int]]:
        queue = new_entity(kind)
        with sdk.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(f"body {at}", session_id=session_id) for at in range(deferred)])
            numbers: list[int] = []
            with sdk.get_queue_receiver(queue, session_id=session_id) as receiver:  # type: ignore[arg-type]
                while len(numbers) < deferred:
                    for message in receiver.receive_messages(deferred - len(numbers), max_wait_time=5):
                        receiver.defer_message(message)
                        numbers.append(message.sequence_number or 0)
            if others:
                sender.send_messages([ServiceBusMessage("other", session_id=session_id) for _ in range(others)])
        return queue, sorted(numbers)

    return make
