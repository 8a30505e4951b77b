"""Sending, receiving, locks and settlement, as the service does them."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.amqp.message import Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Int, Map
from spark_sb_mgmt.emulator.entities import (
    ABANDONED,
    COMPLETED,
    DEFERED,
    RELEASED,
    Disposition,
    DispositionStatus,
    MessagesAvailable,
    MessageState,
    QueueSettings,
    ServiceBusFault,
    read_message,
)
from tests.emulator.entities.broker import HOUR, MINUTE, SECOND, START, Broker, annotation, application_properties, bodies, message, tokens

DEAD = Disposition(DispositionStatus.SUSPENDED, "reason", "description")


def test_messages_are_received_in_the_order_in_which_they_were_sent() -> None:
    broker = Broker()
    broker.send("a", "b", "c")
    assert bodies(broker.q.receive("link", 2)) == ["a", "b"]
    assert bodies(broker.q.receive("link", 2)) == ["c"]
    assert broker.q.receive("link", 2) == []


def test_the_message_that_reaches_the_byte_limit_is_the_last() -> None:
    broker = Broker()
    broker.send("a" * 1000, "b" * 1000, "c" * 1000)
    assert [text[0] for text in bodies(broker.q.receive("link", 10, max_bytes=1500))] == ["a", "b"]
    # One always, or it would never come.
    assert [text[0] for text in bodies(broker.q.receive("link", 10, max_bytes=1))] == ["c"]


def test_a_batch_is_taken_as_a_whole_or_not_at_all() -> None:
    broker = Broker(max_message_size=1000)
    with pytest.raises(ServiceBusFault) as caught:
        broker.q.send([message("small"), message("x" * 1000)])
    assert (caught.value.status, caught.value.condition) == (403, "amqp:link:message-size-exceeded")
    assert broker.q.peek(0, 10) == []


def test_a_locked_message_is_not_given_to_another() -> None:
    broker = Broker()
    broker.send("a")
    (locked,) = broker.q.receive("one", 1)
    assert locked.locked_until == START + MINUTE
    assert annotation(locked, "x-opt-locked-until") == START + MINUTE
    assert broker.q.receive("two", 1) == []


def test_a_completed_message_is_gone() -> None:
    broker = Broker()
    broker.send("a")
    broker.q.settle(tokens(broker.q.receive("link", 1)), COMPLETED)
    assert broker.q.peek(0, 10) == []


def test_receive_and_delete_removes_at_once() -> None:
    broker = Broker()
    broker.send("a")
    (received,) = broker.q.receive("link", 1, delete=True)
    assert received.lock_token is None
    assert broker.q.peek(0, 10) == []


def test_an_abandoned_message_comes_again_before_later_ones_with_its_delivery_counted() -> None:
    broker = Broker()
    broker.send("a", "b")
    (first,) = broker.q.receive("link", 1)
    assert first.read().header.delivery_count == 0  # type: ignore[union-attr]
    broker.q.settle(tokens([first]), ABANDONED)
    again = broker.q.receive("link", 2)
    assert bodies(again) == ["a", "b"]
    assert [each.read().header.delivery_count for each in again] == [1, 0]  # type: ignore[union-attr]


def test_a_released_message_was_never_delivered() -> None:
    broker = Broker()
    broker.send("a")
    broker.q.settle(tokens(broker.q.receive("link", 1)), RELEASED)
    assert broker.q.receive("link", 1)[0].delivery_count == 0


def test_a_lock_that_expires_gives_the_message_back_and_counts_the_delivery() -> None:
    broker = Broker()
    broker.send("a")
    (locked,) = broker.q.receive("one", 1)
    token = tokens([locked])
    broker.events()
    broker.pass_time(MINUTE - 1)
    assert broker.q.receive("two", 1) == []
    broker.pass_time(1)
    assert broker.events() == [MessagesAvailable("q")]
    assert [each.delivery_count for each in broker.q.receive("two", 1)] == [1]
    with pytest.raises(ServiceBusFault) as caught:
        broker.q.settle(token, COMPLETED)
    assert (caught.value.status, caught.value.condition) == (410, "com.microsoft:message-lock-lost")


def test_a_lock_that_ended_is_lost_even_if_nobody_advanced_the_namespace() -> None:
    broker = Broker()
    broker.send("a")
    token = tokens(broker.q.receive("one", 1))
    broker.now += MINUTE
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.q.settle(token, COMPLETED)


def test_a_renewed_lock_lasts_from_the_renewal() -> None:
    broker = Broker()
    broker.send("a")
    (locked,) = broker.q.receive("one", 1)
    broker.pass_time(50 * SECOND)
    assert broker.q.renew_locks(tokens([locked])) == [broker.now + MINUTE]
    broker.pass_time(50 * SECOND)
    broker.q.settle(tokens([locked]), COMPLETED)
    assert broker.q.peek(0, 1) == []


def test_renewing_is_all_or_none() -> None:
    broker = Broker()
    broker.send("a", "b")
    first, second = broker.q.receive("one", 2)
    gone = tokens([second])
    broker.q.settle(gone, COMPLETED)
    broker.pass_time(SECOND)
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.q.renew_locks([*tokens([first]), *gone])
    assert first.locked_until == START + MINUTE


def test_settling_many_is_all_or_none() -> None:
    broker = Broker()
    broker.send("a", "b")
    first, second = broker.q.receive("one", 2)
    gone = tokens([second])
    broker.q.settle(gone, COMPLETED)
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.q.settle([*tokens([first]), *gone], COMPLETED)
    assert bodies(broker.q.peek(0, 10)) == ["a"]


def test_a_message_that_fails_too_often_is_dead_lettered_with_the_reason() -> None:
    broker = Broker(max_delivery_count=2)
    broker.send("a")
    for _ in range(2):
        broker.q.settle(tokens(broker.q.receive("link", 1)), ABANDONED)
    assert broker.q.peek(0, 10) == []
    (dead,) = broker.dead.receive("link", 1)
    assert application_properties(dead)["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert dead.delivery_count == 2


def test_a_dead_lettered_message_keeps_number_time_and_body_and_says_why() -> None:
    broker = Broker()
    broker.send("a", "b", properties={"colour": "red"})
    first, second = broker.q.receive("link", 2)
    numbers = [first.sequence_number, second.sequence_number]
    broker.pass_time(SECOND)
    broker.q.settle(tokens([second]), DEAD)
    (dead,) = broker.dead.peek(0, 10)
    assert dead.sequence_number == numbers[1]
    assert dead.enqueued_time == START
    assert bodies([dead]) == ["b"]
    assert application_properties(dead) == {
        "colour": "red",
        "DeadLetterReason": "reason",
        "DeadLetterErrorDescription": "description",
    }
    assert annotation(dead, "x-opt-deadletter-source") is None


def test_a_dead_letter_queue_can_be_received_and_completed_but_not_dead_lettered_again() -> None:
    broker = Broker()
    broker.send("a")
    broker.q.settle(tokens(broker.q.receive("link", 1)), DEAD)
    dead = tokens(broker.dead.receive("link", 1))
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        broker.dead.settle(dead, DEAD)
    broker.dead.settle(dead, COMPLETED)
    assert broker.dead.peek(0, 10) == []


def test_nothing_is_sent_to_a_dead_letter_queue() -> None:
    broker = Broker()
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        broker.namespace.resolve_sender("q/$DeadLetterQueue")


@pytest.mark.parametrize("disposition", [DispositionStatus.ABANDONED, DispositionStatus.DEFERED, DispositionStatus.SUSPENDED])
def test_properties_to_modify_change_application_properties_and_nothing_else(disposition: DispositionStatus) -> None:
    broker = Broker()
    broker.send("a", properties={"colour": "red", "size": "l"}, message_id="m1")
    (locked,) = broker.q.receive("link", 1)
    broker.q.settle(tokens([locked]), Disposition(disposition, properties_to_modify=Map({"colour": "blue", "new": True})))
    (found,) = broker.q.peek(0, 1) or broker.dead.peek(0, 1)
    assert application_properties(found) == {"colour": "blue", "size": "l", "new": True}
    assert bodies([found]) == ["a"]
    assert found.read().properties.message_id == "m1"  # type: ignore[union-attr]


# Deferral


def test_a_deferred_message_is_received_only_by_its_number() -> None:
    broker = Broker()
    (number,) = broker.deferred("a")
    assert broker.q.receive("link", 1) == []
    (found,) = broker.q.receive_by_sequence_number("link", [number])
    assert (bodies([found]), found.state) == (["a"], MessageState.DEFERRED)
    assert annotation(found, "x-opt-message-state") == 1
    broker.q.settle(tokens([found]), COMPLETED)
    assert broker.q.peek(0, 1) == []


def test_receiving_by_number_is_all_or_nothing() -> None:
    broker = Broker()
    (number,) = broker.deferred("a")
    with pytest.raises(ServiceBusFault) as caught:
        broker.q.receive_by_sequence_number("link", [number, 999])
    assert (caught.value.status, caught.value.condition) == (404, "com.microsoft:message-not-found")
    assert "999" in caught.value.description
    assert broker.q.counts().locked == 0


def test_an_active_or_a_locked_deferred_message_is_not_found_by_number() -> None:
    broker = Broker()
    (number,) = broker.deferred("a")
    broker.send("b")
    (active,) = (each.sequence_number for each in broker.q.peek(number + 1, 1))
    broker.q.receive_by_sequence_number("one", [number])
    for wanted in (number, active):
        with pytest.raises(ServiceBusFault, match="message-not-found"):
            broker.q.receive_by_sequence_number("two", [wanted])


def test_an_abandoned_deferred_message_stays_deferred() -> None:
    broker = Broker()
    (number,) = broker.deferred("a")
    broker.q.settle(tokens(broker.q.receive_by_sequence_number("link", [number])), ABANDONED)
    assert broker.q.receive("link", 1) == []
    (again,) = broker.q.receive_by_sequence_number("link", [number])
    assert again.delivery_count == 1


def test_a_deferred_message_received_and_deleted_is_gone() -> None:
    broker = Broker()
    numbers = broker.deferred("a", "b")
    assert bodies(broker.q.receive_by_sequence_number("link", numbers, delete=True)) == ["a", "b"]
    assert broker.q.peek(0, 1) == []


def test_the_lock_of_a_deferred_message_expires_too() -> None:
    broker = Broker()
    (number,) = broker.deferred("a")
    broker.q.receive_by_sequence_number("one", [number])
    broker.pass_time(MINUTE)
    assert broker.q.receive("two", 1) == []
    assert len(broker.q.receive_by_sequence_number("two", [number])) == 1


# Time to live


def test_an_expired_message_is_dropped() -> None:
    broker = Broker()
    broker.send("a", ttl=10 * SECOND)
    broker.send("b")
    broker.pass_time(10 * SECOND)
    assert bodies(broker.q.receive("link", 2)) == ["b"]
    assert broker.dead.peek(0, 1) == []


def test_an_expired_message_is_dead_lettered_where_the_entity_says_so() -> None:
    broker = Broker(dead_lettering_on_message_expiration=True)
    broker.send("a", ttl=10 * SECOND)
    broker.pass_time(10 * SECOND)
    (dead,) = broker.dead.peek(0, 1)
    assert application_properties(dead)["DeadLetterReason"] == "TTLExpiredException"
    broker.pass_time(HOUR)
    assert len(broker.dead.peek(0, 1)) == 1


def test_the_shorter_of_the_two_times_to_live_counts_and_is_what_the_header_says() -> None:
    broker = Broker(default_message_time_to_live=5 * SECOND)
    broker.send("a", ttl=10 * SECOND)
    broker.send("b", ttl=2 * SECOND)
    assert [each.read().header.ttl for each in broker.q.peek(0, 2)] == [5 * SECOND, 2 * SECOND]  # type: ignore[union-attr]
    broker.pass_time(2 * SECOND)
    assert bodies(broker.q.peek(0, 2)) == ["a"]
    broker.pass_time(3 * SECOND)
    assert broker.q.peek(0, 2) == []


def test_a_message_that_expires_while_it_is_locked_can_be_completed_but_does_not_come_back() -> None:
    broker = Broker(dead_lettering_on_message_expiration=True)
    broker.send("a", "b", ttl=10 * SECOND)
    first, second = broker.q.receive("link", 2)
    broker.pass_time(20 * SECOND)
    broker.q.settle(tokens([first]), COMPLETED)
    broker.q.settle(tokens([second]), ABANDONED)
    assert broker.q.receive("link", 2) == []
    assert bodies(broker.dead.peek(0, 2)) == ["b"]


def test_a_message_that_was_abandoned_in_time_still_expires_at_its_time() -> None:
    broker = Broker()
    broker.send("a", ttl=30 * SECOND)
    broker.q.settle(tokens(broker.q.receive("link", 1)), ABANDONED)
    broker.pass_time(30 * SECOND)
    assert broker.q.peek(0, 1) == []


def test_a_deferred_message_does_not_expire() -> None:
    broker = Broker()
    (number,) = broker.deferred("a", ttl=SECOND)
    broker.pass_time(HOUR)
    assert len(broker.q.receive_by_sequence_number("link", [number])) == 1


# Duplicates


def test_a_message_id_is_accepted_once_within_the_window() -> None:
    broker = Broker(duplicate_detection_window=MINUTE)
    broker.send("a", message_id="m")
    broker.send("b", message_id="m")
    broker.send("c", message_id="n")
    broker.send("d")
    assert bodies(broker.q.peek(0, 10)) == ["a", "c", "d"]
    broker.pass_time(MINUTE)
    broker.send("e", message_id="m")
    assert bodies(broker.q.peek(0, 10)) == ["a", "c", "d", "e"]


def test_a_completed_message_still_blocks_its_duplicates() -> None:
    broker = Broker(duplicate_detection_window=MINUTE)
    broker.send("a", message_id="m")
    broker.q.receive("link", 1, delete=True)
    broker.send("b", message_id="m")
    assert broker.q.peek(0, 1) == []


# Holders


def test_a_holder_that_goes_may_give_its_messages_back_uncounted() -> None:
    broker = Broker()
    broker.send("a")
    broker.q.receive("gone", 1)
    broker.namespace.release_holder("gone", messages=True)
    assert [each.delivery_count for each in broker.q.receive("other", 1)] == [0]


def test_a_holder_that_goes_may_keep_its_locks_so_that_a_token_alone_still_settles() -> None:
    broker = Broker()
    broker.send("a")
    token = tokens(broker.q.receive("gone", 1))
    broker.namespace.release_holder("gone", messages=False)
    assert broker.q.receive("other", 1) == []
    broker.q.settle(token, COMPLETED)
    assert broker.q.peek(0, 1) == []


# Purging


def test_batch_delete_takes_the_oldest_before_a_time_and_leaves_locked_and_scheduled_ones() -> None:
    broker = Broker()
    broker.send("locked", "a", "b", "c")
    broker.q.receive("link", 1)
    broker.schedule("later", after=HOUR)
    broker.pass_time(SECOND)
    broker.send("new")
    assert broker.q.batch_delete(2, broker.now) == 2
    assert bodies(broker.q.peek(0, 10)) == ["locked", "c", "later", "new"]
    assert broker.q.batch_delete(10, broker.now) == 1
    assert broker.q.batch_delete(10, broker.now) == 0


def test_batch_delete_is_refused_on_a_partitioned_entity() -> None:
    broker = Broker(enable_partitioning=True)
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        broker.q.batch_delete(1, START)


@pytest.mark.parametrize("count", [0, -1, 4001])
def test_batch_delete_refuses_a_count_out_of_range(count: int) -> None:
    with pytest.raises(ServiceBusFault, match="argument-out-of-range"):
        Broker().q.batch_delete(count, START)


def test_a_queue_that_forwards_cannot_be_received_from() -> None:
    broker = Broker({"p": QueueSettings()}, forward_to="p")
    with pytest.raises(ServiceBusFault, match="receive them there"):
        broker.q.receive("link", 1)


def test_deferring_from_the_dead_letter_queue_works() -> None:
    broker = Broker()
    broker.send("a")
    broker.q.settle(tokens(broker.q.receive("link", 1)), DEAD)
    (dead,) = broker.dead.receive("link", 1)
    broker.dead.settle(tokens([dead]), DEFERED)
    assert bodies(broker.dead.receive_by_sequence_number("link", [dead.sequence_number])) == ["a"]


def test_an_id_that_is_not_utf8_is_refused_because_others_could_not_read_it() -> None:
    raw = encode_message(Message(properties=Properties(group_id="a?b"))).replace(b"a?b", b"a\xffb")
    with pytest.raises(ServiceBusFault, match=r"argument-error: group-id \(session id\) is not valid UTF-8"):
        read_message(raw)


@pytest.mark.parametrize("header", [Header(durable=(Int(1),)), Header(priority=Map([("a", Int(1))])), Header(ttl=Int(1))])
def test_a_header_of_wrong_types_is_refused_because_others_would_get_it(header: Header) -> None:
    with pytest.raises(ServiceBusFault, match=r"decode-error: The message is not valid AMQP: \S+ of its header is a (list|map|int)"):
        read_message(encode_message(Message(header=header)))
