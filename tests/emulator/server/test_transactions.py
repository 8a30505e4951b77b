"""Transactions over a control link, with proton on the other side: what is in one takes effect at its end, or never."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Described, Message, symbol, timestamp, ulong

from spark_sb_mgmt.emulator import Emulator
from tests.emulator.server.peer import LONG, UUID, Outcome, Peer, array, message, peeked

ACCEPTED_IN_TRANSACTION = Outcome("transactional accepted")
UNKNOWN = "amqp:transaction:unknown-id"
START = 1_700_000_000_000


@pytest.fixture
def peer(stopped_clock: Emulator) -> Iterator[Peer]:
    with Peer.connect(stopped_clock) as connected:
        yield connected


def scheduled(body: bytes) -> dict[str, Any]:
    encoded = message(body, id="m", annotations={symbol("x-opt-scheduled-enqueue-time"): timestamp(START + 3_600_000)})
    return {"messages": [{"message-id": "m", "message": encoded}]}


def test_sends_and_settlements_take_effect_together_when_the_transaction_is_discharged(peer: Peer) -> None:
    sender = peer.sender("q")
    peer.send(sender, message(b"old"))
    (received,) = peer.receive(peer.receiver("q", 1))
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    assert peer.send(sender, message(b"new"), message(b"newer"), transaction=transaction) == ACCEPTED_IN_TRANSACTION
    assert peer.send(peer.sender("other"), message(b"there"), transaction=transaction) == ACCEPTED_IN_TRANSACTION
    assert peer.settle(received, transaction=transaction) == ACCEPTED_IN_TRANSACTION
    assert (peeked(peer, "q"), peeked(peer, "other")) == ([b"old"], [])
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    assert (peeked(peer, "q"), peeked(peer, "other")) == ([b"new", b"newer"], [b"there"])


def test_a_receiver_waiting_gets_what_a_transaction_sent_when_it_is_committed(peer: Peer) -> None:
    receiver = peer.receiver("q", 5)
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    peer.send(peer.sender("q"), message(b"a"), transaction=transaction)
    assert receiver.queued == 0
    peer.discharge(coordinator, transaction)
    assert [received.body for received in peer.receive(receiver)] == [b"a"]


def test_a_discharge_that_fails_the_transaction_leaves_everything_as_it_was(peer: Peer) -> None:
    sender = peer.sender("q")
    peer.send(sender, message(b"old"))
    (received,) = peer.receive(peer.receiver("q", 1))
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    peer.send(sender, message(b"new"), transaction=transaction)
    peer.settle(received, transaction=transaction)
    assert peer.discharge(coordinator, transaction, fail=True) == Outcome("accepted")
    assert peeked(peer, "q") == [b"old"]
    # Its receiver holds the message as before.
    body = {"disposition-status": "completed", "lock-tokens": array(UUID, received.lock_token)}
    assert peer.request("q", "update-disposition", body).status == 200
    assert peeked(peer, "q") == []


@pytest.mark.parametrize(
    ("outcome", "fields", "expected"),
    [
        (Delivery.RELEASED, [], ("q", "active")),
        (Delivery.MODIFIED, [True, False], ("q", "active")),
        (Delivery.MODIFIED, [True, True], ("q", "deferred")),
        (Delivery.REJECTED, [], ("q/$DeadLetterQueue", "active")),
        (
            Delivery.REJECTED,
            [Described(ulong(0x1D), [symbol("com.microsoft:dead-letter"), "", {symbol("DeadLetterReason"): "bad"}])],
            ("q/$DeadLetterQueue", "active"),
        ),
    ],
)
def test_every_outcome_can_be_in_a_transaction(
    stopped_clock: Emulator, peer: Peer, outcome: int, fields: list[Any], expected: tuple[str, str]
) -> None:
    peer.send(peer.sender("q"), message(b"a"))
    (received,) = peer.receive(peer.receiver("q", 1))
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    received.delivery.local.data = [transaction, Described(ulong(outcome), fields)]
    received.delivery.update(0x34)
    peer.outcome(received.delivery)
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    entity, state = expected
    counts = stopped_clock.counts(entity)
    assert counts[state] == 1
    assert sum(stopped_clock.counts("q").values()) + sum(stopped_clock.counts("q/$DeadLetterQueue").values()) == 1


def test_a_control_link_that_closes_rolls_its_transactions_back(peer: Peer) -> None:
    coordinator, other = peer.coordinator(), peer.coordinator()
    lost, kept = peer.declare(coordinator), peer.declare(other)
    sender = peer.sender("q")
    peer.send(sender, message(b"lost"), transaction=lost)
    peer.send(sender, message(b"kept"), transaction=kept)
    peer.detach(coordinator)
    assert peer.send(sender, message(b"late"), transaction=lost) == Outcome("rejected", UNKNOWN)
    assert peer.discharge(other, lost) == Outcome("rejected", UNKNOWN)
    assert peer.discharge(other, kept) == Outcome("accepted")
    assert peeked(peer, "q") == [b"kept"]


def test_a_connection_that_is_lost_rolls_its_transactions_back(stopped_clock: Emulator, peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"old"))
    with Peer.connect(stopped_clock) as goes:
        transaction = goes.declare(goes.coordinator())
        goes.send(goes.sender("q"), message(b"new"), transaction=transaction)
        (received,) = goes.receive(goes.receiver("q", 1))
        goes.settle(received, transaction=transaction)
    assert [again.body for again in peer.receive(peer.receiver("q", 1))] == [b"old"]
    assert peeked(peer, "q") == [b"old"]


def test_schedule_message_in_a_transaction_tells_numbers_that_are_good_when_it_is_committed(stopped_clock: Emulator, peer: Peer) -> None:
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    answer = peer.request("q", "schedule-message", scheduled(b"a"), transaction=transaction)
    assert answer.status == 200
    (number,) = answer.body["sequence-numbers"].elements
    assert stopped_clock.counts("q")["scheduled"] == 0
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    assert stopped_clock.counts("q")["scheduled"] == 1
    assert peer.request("q", "cancel-scheduled-message", {"sequence-numbers": array(LONG, number)}).status == 200


def test_schedule_message_in_a_transaction_that_is_rolled_back_schedules_nothing(stopped_clock: Emulator, peer: Peer) -> None:
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    assert peer.request("q", "schedule-message", scheduled(b"a"), transaction=transaction).status == 200
    peer.discharge(coordinator, transaction, fail=True)
    assert stopped_clock.counts("q")["scheduled"] == 0


def test_update_disposition_in_a_transaction(peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"a"))
    (received,) = peer.receive(peer.receiver("q", 1))
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    body = {"disposition-status": "suspended", "lock-tokens": array(UUID, received.lock_token)}
    assert peer.request("q", "update-disposition", body, transaction=transaction).status == 200
    assert peeked(peer, "q") == [b"a"]
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    assert (peeked(peer, "q"), peeked(peer, "q/$DeadLetterQueue")) == ([], [b"a"])


def test_a_request_that_cannot_be_in_a_transaction_is_answered_so(peer: Peer) -> None:
    transaction = peer.declare(peer.coordinator())
    answer = peer.request("q", "renew-lock", {"lock-tokens": array(UUID)}, transaction=transaction)
    assert answer.said == (400, "amqp:not-allowed")


def test_a_lock_that_ended_before_the_discharge_rolls_all_back(stopped_clock: Emulator, peer: Peer) -> None:
    sender = peer.sender("q")
    peer.send(sender, message(b"old"))
    (received,) = peer.receive(peer.receiver("q", 1))
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    peer.settle(received, transaction=transaction)
    peer.send(sender, message(b"new"), transaction=transaction)
    stopped_clock.advance(61)
    assert peer.discharge(coordinator, transaction) == Outcome("rejected", "amqp:transaction:rollback")
    assert peeked(peer, "q") == [b"old"]


def test_a_transaction_that_is_not_there_is_refused_wherever_it_is_named(peer: Peer) -> None:
    sender = peer.sender("q")
    peer.send(sender, message(b"a"))
    (received,) = peer.receive(peer.receiver("q", 1))
    assert peer.send(sender, message(b"b"), transaction=b"no such") == Outcome("rejected", UNKNOWN)
    assert peer.discharge(peer.coordinator(), b"no such") == Outcome("rejected", UNKNOWN)
    assert peer.request("q", "schedule-message", scheduled(b"c"), transaction=b"no such").said == (404, UNKNOWN)
    assert peer.settle(received, transaction=b"no such") == Outcome("rejected", UNKNOWN)
    assert peeked(peer, "q") == [b"a"]


def test_a_transaction_ends_once(peer: Peer) -> None:
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    assert peer.discharge(coordinator, transaction) == Outcome("rejected", UNKNOWN)


def test_a_transaction_of_another_connection_is_not_there(stopped_clock: Emulator, peer: Peer) -> None:
    transaction = peer.declare(peer.coordinator())
    with Peer.connect(stopped_clock) as stranger:
        assert stranger.send(stranger.sender("q"), message(b"a"), transaction=transaction) == Outcome("rejected", UNKNOWN)


@pytest.mark.parametrize(
    "body",
    [None, "declare", Described(ulong(0x99), []), Described(ulong(0x32), []), Described(ulong(0x32), ["text", False])],
    ids=["nothing", "text", "unknown", "discharge of nothing", "discharge of a text"],
)
def test_a_control_link_takes_nothing_but_declare_and_discharge(peer: Peer, body: Any) -> None:
    coordinator = peer.coordinator()
    assert peer.send(coordinator, bytes(Message(body=body).encode())).state == "rejected"
    assert peer.send(coordinator, b"no message") == Outcome("rejected", "amqp:decode-error")
    assert peer.discharge(coordinator, peer.declare(coordinator)) == Outcome("accepted")


def test_more_than_a_hundred_messages_are_too_many_for_a_transaction(peer: Peer) -> None:
    coordinator = peer.coordinator()
    transaction = peer.declare(coordinator)
    sender = peer.sender("q")
    assert peer.send(sender, *([message(b"a")] * 100), transaction=transaction) == ACCEPTED_IN_TRANSACTION
    assert peer.send(sender, message(b"b"), transaction=transaction) == Outcome("rejected", "amqp:resource-limit-exceeded")
    assert peer.discharge(coordinator, transaction) == Outcome("accepted")
    assert len(peeked(peer, "q", 250)) == 100
