"""A connection on which bytes change, vanish and appear: one of our errors or an answer, in time, and the client goes on on another.

TCP does not do that; boxes between, and services with a mistake in them, do.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from random import Random
from typing import Any

import pytest

from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.errors import SbMgmtError
from tests.client.conftest import CONFIG
from tests.client.listening import Listening

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
# Every wait is short, and there are as many attempts as it takes to give up the links and then the connection.
QUICK: dict[str, Any] = {
    "server_timeout_ms": 100,
    "request_margin_s": 0.02,
    "open_timeout_s": 0.1,
    "attach_timeout_s": 0.1,
    "put_token_timeout_s": 0.1,
    "close_timeout_s": 0.05,
    "retry": RetryPolicy(max_retries=6, base_delay_s=0.001, max_delay_s=0.002),
}
# Far enough to reach every stage: SASL, open, tokens, attaches, answers.
REACHES = (60, 300, 1_000, 3_000, 12_000)
Damage = Callable[[int, bytearray], bytearray]


class DamagingRelay(Listening):
    """Passes bytes on; those of the server on the first connection not as they were."""

    def __init__(self, port: int, damage: Damage) -> None:
        super().__init__()
        self._target = ("127.0.0.1", port)
        self._damage: Damage | None = damage

    def serve(self, client: socket.socket) -> None:
        damage, self._damage = self._damage, None
        server = socket.create_connection(self._target)
        self.opened.append(server)
        self.start(self._pass_on, server, client, damage)
        self._pass_on(client, server, None)

    def _pass_on(self, source: socket.socket, target: socket.socket, damage: Damage | None) -> None:
        at = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data if damage is None else damage(at, bytearray(data)))
                at += len(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def damage_of(choice: Random) -> Damage:
    """One to ten places at which a bit or a byte is another, some are missing, or some are too many."""
    reach = choice.choice(REACHES)
    places = {choice.randrange(reach): choice.randrange(4) for _ in range(choice.choice([1, 1, 1, 3, 10]))}

    def damage(at: int, data: bytearray) -> bytearray:
        # From the end, so that the places before it stay where they are.
        for place in sorted((place for place in places if at <= place < at + len(data)), reverse=True):
            here, kind = place - at, places[place]
            if kind == 0:
                data[here] ^= 1 << choice.randrange(8)
            elif kind == 1:
                data[here] = choice.randrange(256)
            elif kind == 2:
                del data[here : here + choice.randrange(1, 9)]
            else:
                data[here:here] = choice.randbytes(choice.randrange(1, 9))
        return data

    return damage


@pytest.fixture(scope="module")
def filled() -> Any:
    with Emulator.start(CONFIG) as emulator:
        with ManagementClient.from_connection_string(emulator.connection_string) as client:
            client.entity("orders").schedule_message([ScheduledMessage(bytes(300), LATER, f"m{number}") for number in range(50)])
        yield emulator


def read(orders: EntityClient) -> int:
    """How many messages a range has; every one is looked at."""
    return len([message.message_id for page in orders.peek_range(1, page_size=10, depth=4) for message in page])


def change(orders: EntityClient) -> None:
    with orders.transaction() as txn:
        txn.schedule_message(ScheduledMessage(b"x", LATER, "m"))
        txn.rollback()


def attempt(use: Callable[[], Any]) -> Any:
    try:
        return use()
    except SbMgmtError as error:
        return error


# The last two damaged the credit of the links and nothing else.
@pytest.mark.parametrize("seed", [*range(22), 41, 181])
def test_whatever_the_damage_it_ends_and_the_client_goes_on(seed: int, filled: Emulator) -> None:
    with DamagingRelay(filled.port, damage_of(Random(seed))) as relay:
        text = filled.connection_string.replace(f":{filled.port}", f":{relay.port}")
        with ManagementClient.from_connection_string(text, **QUICK) as client, client.entity("orders") as orders:
            attempt(lambda: read(orders))
            attempt(lambda: change(orders))
            # An answer that cannot be read is an error and not asked for again; so it may take some to be rid of the connection.
            outcomes = [attempt(lambda: read(orders)) for _ in range(5)]
            assert outcomes[-1] == 50
    assert filled.counts("orders")["scheduled"] == 50
