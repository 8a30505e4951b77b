"""Units of work: together or not at all."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.emulator.entities import ABANDONED, COMPLETED, DEFERED, QueueSettings, ServiceBusFault
from tests.emulator.entities.broker import HOUR, MINUTE, START, Broker, bodies, message, tokens


def test_nothing_is_seen_before_the_commit_and_all_after_it() -> None:
    broker = Broker({"p": QueueSettings()})
    broker.send("in")
    work = broker.namespace.begin()
    work.settle(broker.q, tokens(broker.q.receive("link", 1)), COMPLETED)
    work.send(broker.queue("p"), [message("out")])
    (number,) = work.schedule(broker.q, [message("later", scheduled=START + HOUR)])
    assert bodies(broker.q.peek(0, 10)) == ["in"]
    assert broker.queue("p").peek(0, 10) == []
    work.commit()
    assert [(each.sequence_number, bodies([each])) for each in broker.q.peek(0, 10)] == [(number, ["later"])]
    assert bodies(broker.queue("p").peek(0, 10)) == ["out"]


def test_after_a_rollback_the_receiver_still_holds_its_message() -> None:
    broker = Broker()
    broker.send("in")
    token = tokens(broker.q.receive("link", 1))
    work = broker.namespace.begin()
    work.settle(broker.q, token, COMPLETED)
    work.send(broker.q, [message("out")])
    work.rollback()
    assert bodies(broker.q.peek(0, 10)) == ["in"]
    broker.q.settle(token, COMPLETED)
    assert broker.q.peek(0, 10) == []


def test_a_message_in_a_transaction_is_not_settled_by_anyone_else() -> None:
    broker = Broker()
    broker.send("in")
    token = tokens(broker.q.receive("link", 1))
    broker.namespace.begin().settle(broker.q, token, DEFERED)
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.q.settle(token, ABANDONED)
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.namespace.begin().settle(broker.q, token, ABANDONED)


def test_a_lock_that_ends_before_the_commit_rolls_everything_back() -> None:
    broker = Broker()
    broker.send("in")
    work = broker.namespace.begin()
    work.send(broker.q, [message("out")])
    work.settle(broker.q, tokens(broker.q.receive("link", 1)), COMPLETED)
    broker.pass_time(MINUTE)
    with pytest.raises(ServiceBusFault, match="amqp:transaction:rollback"):
        work.commit()
    assert bodies(broker.q.receive("link", 10)) == ["in"]


def test_what_cannot_be_sent_is_refused_when_it_is_asked_for_and_the_rest_can_be_committed() -> None:
    broker = Broker(max_message_size=500)
    work = broker.namespace.begin()
    with pytest.raises(ServiceBusFault, match="message-size-exceeded"):
        work.send(broker.q, [message("x" * 1000)])
    work.send(broker.q, [message("small")])
    work.commit()
    assert bodies(broker.q.peek(0, 10)) == ["small"]


def test_a_transaction_has_a_hundred_messages_at_most() -> None:
    broker = Broker()
    broker.send("in")
    token = tokens(broker.q.receive("link", 1))
    work = broker.namespace.begin()
    work.send(broker.q, [message(str(n)) for n in range(100)])
    with pytest.raises(ServiceBusFault, match="at most 100"):
        work.send(broker.q, [message("one more")])
    with pytest.raises(ServiceBusFault, match="at most 100"):
        work.settle(broker.q, token, COMPLETED)
    broker.q.settle(token, COMPLETED)


def test_an_ended_transaction_takes_nothing_more() -> None:
    broker = Broker()
    work = broker.namespace.begin()
    work.commit()
    with pytest.raises(ServiceBusFault, match="amqp:transaction:unknown-id"):
        work.send(broker.q, [message("a")])
    with pytest.raises(ServiceBusFault, match="amqp:transaction:unknown-id"):
        work.commit()
    work.rollback()
    assert broker.q.peek(0, 1) == []


def test_numbers_of_a_rolled_back_schedule_are_never_used() -> None:
    broker = Broker()
    work = broker.namespace.begin()
    (lost,) = work.schedule(broker.q, [message("a", scheduled=START + HOUR)])
    work.rollback()
    assert broker.schedule("b", after=HOUR) == [lost + 1]
