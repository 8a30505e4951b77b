"""Peeking, scheduling, sequence numbers and partitions."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.amqp.decode import decode_single
from spark_sb_mgmt.amqp.message import AmqpValue, Data, Header, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Map, Symbol, Timestamp, UByte, UInt
from spark_sb_mgmt.emulator.entities import COMPLETED, MessageState, ServiceBusFault, encode_peeked, read_message
from tests.emulator.entities.broker import HOUR, MINUTE, SECOND, START, Broker, annotation, bodies, message, tokens


def test_peek_shows_every_message_in_order_whatever_its_state() -> None:
    broker = Broker()
    broker.deferred("deferred")
    broker.send("locked", "active")
    broker.q.receive("link", 1)
    broker.schedule("scheduled", after=HOUR)
    page = broker.q.peek(0, 10)
    assert bodies(page) == ["deferred", "locked", "active", "scheduled"]
    assert [annotation(each, "x-opt-message-state") for each in page] == [1, 0, 0, 2]
    assert [each.sequence_number for each in page] == sorted(each.sequence_number for each in page)


def test_peek_starts_at_a_number_and_stops_at_a_count() -> None:
    broker = Broker()
    broker.send(*"abcde")
    numbers = [each.sequence_number for each in broker.q.peek(0, 10)]
    assert bodies(broker.q.peek(numbers[1], 2)) == ["b", "c"]
    assert bodies(broker.q.peek(numbers[4] + 1, 2)) == []
    assert bodies(broker.q.peek(-5, 1)) == ["a"]


def test_a_page_ends_before_the_byte_bound_but_is_never_empty_for_it() -> None:
    broker = Broker()
    broker.send("x" * 1000, "x" * 1000, "x" * 1000)
    size = broker.q.peek(0, 1)[0].size
    assert len(broker.q.peek(0, 10, max_bytes=2 * size)) == 2
    assert len(broker.q.peek(0, 10, max_bytes=2 * size - 1)) == 1
    assert len(broker.q.peek(0, 10, max_bytes=1)) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_that_is_not_positive_is_refused(count: int) -> None:
    with pytest.raises(ServiceBusFault, match="argument-out-of-range"):
        Broker().q.peek(0, count)


def test_peeking_changes_nothing() -> None:
    broker = Broker()
    broker.send("a")
    before = list(broker.changes)
    broker.q.peek(0, 1)
    assert broker.changes == before
    assert broker.q.receive("link", 1)[0].delivery_count == 0


# Bytes


def test_the_bare_message_is_kept_byte_for_byte() -> None:
    broker = Broker()
    sent = encode_message(
        Message(
            header=Header(durable=True, priority=4, ttl=HOUR),
            delivery_annotations=Map({Symbol("d"): "1"}),
            message_annotations=Map({Symbol("x-own"): UInt(7), Symbol("x-opt-partition-key"): "k"}),
            properties=Properties(message_id=b"\x01\x02", subject="s", content_type="text/plain"),
            application_properties=Map({"a": Timestamp(5)}),
            body=Data((b"one", b"two")),
            footer=Map({Symbol("f"): True}),
        )
    )
    broker.q.send([read_message(sent)])
    stored = broker.q.peek(0, 1)[0]
    assert sent.endswith(stored.bare)
    given, kept = decode_message(sent), decode_message(stored.encoded())
    assert (given.properties, given.application_properties, given.body, given.footer) == (
        *(kept.properties, kept.application_properties, kept.body, kept.footer),
    )
    assert given.delivery_annotations == kept.delivery_annotations
    assert kept.header == Header(durable=True, priority=UByte(4), ttl=UInt(HOUR), delivery_count=UInt(0))
    assert annotation(stored, "x-own") == UInt(7)
    assert annotation(stored, "x-opt-partition-key") == "k"


def test_what_the_broker_sets_is_the_brokers_whatever_the_sender_says() -> None:
    broker = Broker()
    broker.send(
        "a", annotations={"x-opt-sequence-number": UInt(99), "x-opt-locked-until": Timestamp(1), "x-opt-enqueued-time": Timestamp(1)}
    )
    (stored,) = broker.q.peek(0, 1)
    assert annotation(stored, "x-opt-sequence-number") == stored.sequence_number
    assert annotation(stored, "x-opt-enqueued-time") == START
    assert annotation(stored, "x-opt-locked-until") is None


def test_sections_out_of_order_are_a_message_too() -> None:
    properties = encode_message(Message(properties=Properties(message_id="m")))
    header = encode_message(Message(header=Header(ttl=5000)))
    body = encode_message(Message(body=AmqpValue("v")))
    incoming = read_message(body + properties + header)
    assert (incoming.message_id, incoming.ttl) == ("m", 5000)
    assert incoming.bare == properties + body


@pytest.mark.parametrize("junk", [b"\x00", b"hello", b"\x00\x53\x75\xa0\x05ab"])
def test_bytes_that_are_no_message_are_a_fault(junk: bytes) -> None:
    with pytest.raises(ServiceBusFault, match="amqp:decode-error"):
        read_message(junk)


def test_ids_have_a_limit() -> None:
    with pytest.raises(ServiceBusFault, match="message-id has 129 characters"):
        message(message_id="x" * 129)


def test_a_peek_answer_is_a_list_of_maps_joined_from_stored_bytes() -> None:
    broker = Broker()
    broker.send("a", "b" * 300)
    page = broker.q.peek(0, 10)
    answer = decode_single(encode_peeked(page))
    assert [entry["message"] for entry in answer] == [each.encoded() for each in page]


def test_a_peek_answer_without_bodies_keeps_everything_before_them() -> None:
    broker = Broker()
    broker.send("secret", properties={"a": 1.5}, message_id="m")
    (entry,) = decode_single(encode_peeked(broker.q.peek(0, 1), omit_message_body=True))
    shown = decode_message(entry["message"])
    assert shown.body is None
    assert shown.properties is not None
    assert shown.properties.message_id == "m"
    assert shown.application_properties == Map({"a": 1.5})


# Scheduling


def test_a_scheduled_message_is_enqueued_at_its_time_with_a_new_number() -> None:
    broker = Broker()
    (number,) = broker.schedule("later", after=HOUR)
    broker.send("now")
    assert bodies(broker.q.receive("link", 2)) == ["now"]
    assert broker.namespace.next_event() == START + MINUTE
    broker.pass_time(HOUR)
    (found,) = [each for each in broker.q.peek(0, 10) if bodies([each]) == ["later"]]
    assert found.state is MessageState.ACTIVE
    assert found.sequence_number > number
    assert found.enqueued_sequence_number == number
    assert found.enqueued_time == START + HOUR
    assert annotation(found, "x-opt-scheduled-enqueue-time") == START + HOUR


def test_the_time_to_live_of_a_scheduled_message_starts_when_it_is_enqueued() -> None:
    broker = Broker()
    broker.schedule("later", after=HOUR, ttl=10 * SECOND)
    broker.pass_time(HOUR)
    assert len(broker.q.peek(0, 1)) == 1
    broker.pass_time(10 * SECOND)
    assert broker.q.peek(0, 1) == []


def test_a_message_sent_with_a_time_to_come_is_scheduled_and_with_a_past_one_is_not() -> None:
    broker = Broker()
    broker.send("later", scheduled=START + HOUR)
    broker.send("now", scheduled=START - HOUR)
    assert [each.state for each in broker.q.peek(0, 2)] == [MessageState.SCHEDULED, MessageState.ACTIVE]


def test_scheduling_for_a_past_time_enqueues_at_once() -> None:
    broker = Broker()
    (number,) = broker.schedule("now", after=-SECOND)
    (found,) = broker.q.receive("link", 1)
    assert found.enqueued_sequence_number == number


def test_scheduling_needs_a_time() -> None:
    with pytest.raises(ServiceBusFault, match="x-opt-scheduled-enqueue-time"):
        Broker().q.schedule([message("a")])


def test_cancelling_is_all_or_none() -> None:
    broker = Broker()
    numbers = broker.schedule("a", "b", after=HOUR)
    with pytest.raises(ServiceBusFault) as caught:
        broker.q.cancel_scheduled([*numbers, 999])
    assert (caught.value.status, caught.value.condition) == (404, "com.microsoft:message-not-found")
    assert len(broker.q.peek(0, 10)) == 2
    broker.q.cancel_scheduled(numbers)
    assert broker.q.peek(0, 10) == []
    broker.pass_time(HOUR)
    assert broker.q.peek(0, 10) == []


def test_a_number_that_was_activated_or_never_scheduled_cannot_be_cancelled() -> None:
    broker = Broker()
    (number,) = broker.schedule("a", after=SECOND)
    broker.pass_time(SECOND)
    (active,) = broker.q.peek(0, 1)
    for wanted in (number, active.sequence_number):
        with pytest.raises(ServiceBusFault, match="message-not-found"):
            broker.q.cancel_scheduled([wanted])


# Numbers and partitions


def test_sequence_numbers_only_grow_also_after_messages_have_gone() -> None:
    broker = Broker()
    seen = []
    for _ in range(5):
        broker.send("a")
        seen += [each.sequence_number for each in broker.q.receive("link", 1, delete=True)]
    assert seen == sorted(set(seen))


def test_a_partitioned_entity_has_the_partition_in_the_top_bits_and_grows_within_each() -> None:
    broker = Broker(enable_partitioning=True)
    broker.send(*(str(n) for n in range(64)))
    numbers = [each.sequence_number for each in broker.q.peek(0, 100)]
    by_partition: dict[int, list[int]] = {}
    for number in numbers:
        by_partition.setdefault(number >> 48, []).append(number & (2**48 - 1))
    assert len(by_partition) == 16
    assert all(sequence == [1, 2, 3, 4] for sequence in by_partition.values())


def test_a_partitioned_entity_delivers_in_order_of_arrival_within_what_round_robin_allows() -> None:
    broker = Broker(enable_partitioning=True)
    broker.send(*(str(n) for n in range(32)))
    received = bodies(broker.q.receive("link", 32))
    assert set(received[:16]) == {str(n) for n in range(16)}


def test_a_partition_key_or_session_keeps_messages_in_one_partition() -> None:
    broker = Broker(enable_partitioning=True)
    broker.send("a", "b", "c", partition_key="k")
    assert len({each.sequence_number >> 48 for each in broker.q.peek(0, 10)}) == 1


def test_partition_key_and_session_id_must_not_contradict_each_other() -> None:
    broker = Broker(enable_partitioning=True, requires_session=True)
    broker.send("a", session="k", partition_key="k")
    with pytest.raises(ServiceBusFault, match="must be the same"):
        broker.send("a", session="k", partition_key="other")


def test_deferred_messages_of_several_partitions_are_not_received_in_one_request() -> None:
    broker = Broker(enable_partitioning=True)
    numbers = broker.deferred("a", "b")
    with pytest.raises(ServiceBusFault, match="one partition"):
        broker.q.receive_by_sequence_number("link", numbers)
    for number in numbers:
        broker.q.settle(tokens(broker.q.receive_by_sequence_number("link", [number])), COMPLETED)
