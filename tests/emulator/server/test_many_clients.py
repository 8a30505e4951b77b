"""Many clients at once: each gets its share, counted, and one that takes nothing costs the others nothing and the server little."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import int32

from spark_sb_mgmt.emulator import Emulator
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import DEADLINE_S, Outcome, Peer, message, outcome_of, peek_body, peeked
from tests.emulator.server.program import Program

CLIENTS, SHARE = 200, 20


class Client:
    """A connection that keeps requests in flight until it has had its share of answers."""

    def __init__(self, emulator: Emulator, in_flight: int, share: int) -> None:
        self.peer = Peer.connect(emulator)
        self.pair = self.peer.pair("q/$management")
        self.pair[1].flow(share)
        self.share = share
        self.answers = 0
        self.asked = 0
        for _ in range(in_flight):
            self.ask()

    def ask(self) -> None:
        if self.asked < self.share:
            self.asked += 1
            self.peer.ask(self.pair, "peek-message", {"from-sequence-number": 0, "message-count": int32(250)})
        self.peer.flush()

    def go_on(self) -> None:
        self.peer.receive_bytes()
        assert not self.peer.ended, "the server closed a connection"
        for _ in self.peer.take(self.pair[1]):
            self.answers += 1
            self.ask()


def run(clients: list[Client]) -> Iterator[list[int]]:
    """All of them, until each has its share; the counts after every round."""
    deadline = time.monotonic() + 3 * DEADLINE_S
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.peer.sock, selectors.EVENT_READ, client)
        while any(client.answers < client.share for client in clients):
            assert time.monotonic() < deadline, [client.answers for client in clients]
            for key, _ in selector.select(DEADLINE_S):
                key.data.go_on()
            yield [client.answers for client in clients]


@pytest.fixture
def closing() -> Iterator[list[Client]]:
    clients: list[Client] = []
    yield clients
    for client in clients:
        client.peer.drop()


def test_two_hundred_connections_all_get_their_share_at_about_the_same_pace(emulator: Emulator, closing: list[Client]) -> None:
    with Peer.connect(emulator) as peer:
        peer.send(peer.sender("q"), *(message(bytes(100)) for _ in range(5)))
    closing += [Client(emulator, 2, SHARE) for _ in range(CLIENTS)]
    assert emulator.connections == CLIENTS
    half = None
    for counts in run(closing):
        if half is None and sum(counts) >= CLIENTS * SHARE // 2:
            half = counts
    assert half is not None
    assert min(half) >= SHARE // 4, "when half of all answers were out, somebody had far less than half of its own"
    assert emulator.requests["peek-message"] == CLIENTS * SHARE


def test_clients_that_ask_for_much_do_not_starve_those_that_ask_for_little(emulator: Emulator, closing: list[Client]) -> None:
    with Peer.connect(emulator) as peer:
        peer.send(peer.sender("q"), *(message(bytes(200_000)) for _ in range(5)))
    heavy = [Client(emulator, 20, 60) for _ in range(2)]
    light = [Client(emulator, 1, 10) for _ in range(30)]
    closing += [*heavy, *light]
    for counts in run(closing):
        if min(counts[2:]) == 10:
            # Each had ten turns of one request; the heavy ones could not have taken all of theirs before.
            assert min(counts[:2]) < 60
            return
    raise AssertionError("the light ones were last")


def test_two_hundred_senders_and_receivers_lose_nothing(emulator: Emulator) -> None:
    senders = [Peer.connect(emulator) for _ in range(100)]
    receivers = [Peer.connect(emulator) for _ in range(100)]
    try:
        taking = [(peer, peer.receiver("q", 1000)) for peer in receivers]
        links = [(peer, peer.sender("q")) for peer in senders]
        deliveries: list[Any] = []
        for number in range(10):
            for index, (peer, link) in enumerate(links):
                deliveries.append((peer, peer.post(link, message(b"%d-%d" % (index, number)))))
                peer.flush()
        for peer, delivery in deliveries:
            peer.until(lambda delivery=delivery: delivery.settled)  # type: ignore[misc]
            assert outcome_of(delivery) == Outcome("accepted")
        bodies: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            for peer, link in taking:
                selector.register(peer.sock, selectors.EVENT_READ, (peer, link))
            while len(bodies) < 1000:
                assert time.monotonic() < deadline, len(bodies)
                for key, _ in selector.select(DEADLINE_S):
                    peer, link = key.data
                    peer.receive_bytes()
                    bodies += [received.body for received in peer.take(link)]
        assert sorted(bodies) == sorted(b"%d-%d" % (index, number) for index in range(100) for number in range(10))
    finally:
        for peer in (*senders, *receivers):
            peer.drop()


# Those that do not read


def resident(program: Program) -> int:
    """Bytes of memory of the server."""
    for line in Path(f"/proc/{program.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def slow(program: Program) -> Peer:
    """A client whose own system holds little for it."""
    sock = socket.socket()
    sock.settimeout(DEADLINE_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.connect(("127.0.0.1", program.port))
    return Peer(sock)


def test_clients_that_never_read_answers_hold_up_nobody_and_cost_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    with Program(CONFIG, tmp_path) as program, program.ready().peer() as peer:
        peer.send(peer.sender("q"), *(message(bytes(200_000)) for _ in range(5)))
        assert len(peeked(peer, "q")) == 5
        before = resident(program)
        readers = [slow(program) for _ in range(4)]
        try:
            for reader in readers:
                pair = reader.pair("q/$management")
                pair[1].flow(1000)
                for _ in range(100):
                    reader.ask(pair, "peek-message", peek_body())
                reader.flush()
            # Served as ever, while 400 MB are asked for and not taken.
            for _ in range(50):
                assert len(peeked(peer, "q")) == 5
            growth = resident(program) - before
            assert growth < len(readers) * 12 * 1024 * 1024, f"{growth / 1e6:.0f} MB"
            # Nothing was lost by waiting: when one reads, it gets all its answers.
            assert len(readers[0].receive(pair_of(readers[0]), 100)) == 100
        finally:
            for reader in readers:
                reader.drop()


def pair_of(peer: Peer) -> Any:
    """The link that answers come on."""
    link = peer.connection.link_head(0)
    while not link.is_receiver:
        link = link.next(0)
    return link


def test_a_receiver_that_never_reads_is_not_given_the_whole_queue(tmp_path: Path) -> None:
    with Program(CONFIG, tmp_path) as program, program.ready().peer() as peer:
        sender = peer.sender("q")
        for _ in range(20):
            peer.send(sender, *(message(bytes(200_000)) for _ in range(10)))
        before = resident(program)
        with slow(program) as reader:
            reader.receiver("q", 1000)
            assert len(peeked(peer, "q", 5)) == 5
            growth = resident(program) - before
            assert growth < 20 * 1024 * 1024, f"{growth / 1e6:.0f} MB of 40"
            # What it was not given others can have.
            assert len(peer.receive(peer.receiver("q", 100), 100)) == 100
