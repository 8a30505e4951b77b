"""Connections that a Python worker keeps: the same ones for the same options, none that leave the process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.spark.connections import CONNECTIONS, Connections, open_client
from spark_sb_mgmt.spark.options.parsing import ConnectionOptions, read_options


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "tests", "Queues": [{"Name": "orders"}]}]}}) as running:
        yield running


@pytest.fixture
def options(emulator: Emulator) -> ConnectionOptions:
    return read_options({"connectionString": emulator.connection_string, "queue": "orders"}, {}).connection


def peeked(kept: Connections, options: ConnectionOptions) -> int:
    with kept.client(options).entity("orders") as orders:
        return len(orders.peek_message())


def test_the_same_options_have_the_same_connection(emulator: Emulator, options: ConnectionOptions) -> None:
    kept = Connections()
    for _ in range(3):
        peeked(kept, replace(options))
    assert (len(kept), emulator.connections) == (1, 1)
    peeked(kept, replace(options, server_timeout_ms=1_000))
    assert (len(kept), emulator.connections) == (2, 2)
    kept.close()
    assert (len(kept), emulator.connections) == (0, 0)
    assert peeked(kept, options) == 0
    kept.close()


def test_what_was_not_used_for_longest_is_closed_when_there_are_too_many(options: ConnectionOptions) -> None:
    kept = Connections()
    several = [replace(options, server_timeout_ms=1_000 + at) for at in range(5)]
    clients = [kept.client(one) for one in several[:4]]
    assert kept.client(several[0]) is clients[0]
    kept.client(several[4])
    assert len(kept) == 4
    assert kept.client(several[0]) is clients[0]
    assert kept.client(several[1]) is not clients[1]
    kept.close()


def test_pickled_they_are_none(options: ConnectionOptions) -> None:
    kept = Connections()
    kept.client(options)
    assert len(pickle.loads(pickle.dumps(kept))) == 0
    kept.close()


def test_a_worker_that_was_forked_with_an_open_connection_opens_its_own(emulator: Emulator, options: ConnectionOptions) -> None:
    """Spark's daemon forks its workers; had it read something itself, they would have its socket."""
    kept = Connections()
    with kept.client(options).entity("orders") as orders:
        orders.peek_message()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if (peeked(kept, options), emulator_sees(orders)) == (0, True) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # Nothing of the child was said on it.
        assert len(orders.peek_message()) == 0
        assert emulator.connections == 1
    kept.close()


def emulator_sees(orders: EntityClient) -> bool:
    """What was open when the process was forked can be used in the child too."""
    return len(orders.peek_message()) == 0


def test_a_client_is_opened_as_the_options_say(options: ConnectionOptions) -> None:
    given = replace(options, transport="amqpWebSocket", server_timeout_ms=7_000, max_retries=2, pipeline_depth=32)
    with open_client(given) as client:
        settings = client._connection.settings
        assert (settings.transport, settings.server_timeout_ms, settings.retry.max_retries, settings.pipeline_depth) == (
            "amqpWebSocket",
            7_000,
            2,
            32,
        )


def test_a_namespace_with_a_credential_of_entra_id() -> None:
    named = {"fullyQualifiedNamespace": "shop.servicebus.windows.net", "credential": "default", "queue": "orders"}
    with open_client(read_options(named, {}).connection) as client:
        assert client.fully_qualified_namespace == "shop.servicebus.windows.net"


def test_no_text_of_them_has_a_secret(emulator: Emulator, options: ConnectionOptions) -> None:
    key = dict(part.partition("=")[::2] for part in emulator.connection_string.split(";") if part)["SharedAccessKey"]
    with open_client(options) as client, client.entity("orders") as orders:
        orders.peek_message()
        assert key not in repr((client, orders, options, CONNECTIONS))
