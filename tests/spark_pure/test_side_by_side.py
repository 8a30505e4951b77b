"""Many entities asked by the driver at once: answers in the order of the entities, or the first error, at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import EntityNotFoundError
from spark_sb_mgmt.spark.connections import CONNECTIONS
from spark_sb_mgmt.spark.options.objects import OperationOptions
from spark_sb_mgmt.spark.options.parsing import read_options
from spark_sb_mgmt.spark.reading.side_by_side import MOST_AT_ONCE, ask_each

QUEUES = tuple(f"queue-{at}" for at in range(3 * MOST_AT_ONCE))
# Longer than all of it takes, shorter than a request that is not answered.
DEADLINE_S = 30.0


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": name} for name in QUEUES]}]}}) as running:
        yield running
        CONNECTIONS.close()


@pytest.fixture
def options(emulator: Emulator) -> OperationOptions:
    return read_options({"connectionString": emulator.connection_string, "entityPath": ",".join(QUEUES)}, {})


def test_several_are_asked_at_once_each_by_a_connection_of_its_own(emulator: Emulator, options: OperationOptions) -> None:
    # None gets on before so many have an answer.
    together = threading.Barrier(MOST_AT_ONCE, timeout=DEADLINE_S)

    def asked(entity: EntityClient) -> str:
        entity.peek_message()
        together.wait()
        return entity.path

    assert list(ask_each(options, QUEUES, asked).items()) == [(name, name) for name in QUEUES]
    assert (emulator.connections, len(CONNECTIONS)) == (MOST_AT_ONCE, MOST_AT_ONCE)
    # They are kept for the next time.
    ask_each(options, QUEUES, EntityClient.peek_message)
    assert emulator.connections == MOST_AT_ONCE


def test_one_is_asked_without_threads(emulator: Emulator, options: OperationOptions) -> None:
    assert ask_each(options, QUEUES[:1], lambda entity: threading.current_thread()) == {QUEUES[0]: threading.current_thread()}
    assert ask_each(options, (), EntityClient.peek_message) == {}


@pytest.mark.parametrize("at", [0, MOST_AT_ONCE - 1])
def test_one_that_is_not_there_is_told_while_others_hang(emulator: Emulator, options: OperationOptions, at: int) -> None:
    emulator.faults.add(Fault("lose-reply", "peek-message", count=None))
    asked_for = [*QUEUES[:at], "nowhere", *QUEUES[at:]]
    start = time.monotonic()
    with pytest.raises(EntityNotFoundError) as caught:
        ask_each(options, asked_for, EntityClient.peek_message)
    assert time.monotonic() - start < DEADLINE_S
    assert (caught.value.entity, caught.value.operation) == ("nowhere", "peek-message")
    # None of the threads is left, and the next read starts anew.
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    emulator.faults.clear()
    assert list(ask_each(options, QUEUES, lambda entity: len(entity.peek_message()))) == list(QUEUES)
