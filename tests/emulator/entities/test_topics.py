"""Topics, subscriptions, rules, and messages that are passed on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_sb_mgmt.amqp.message import Message
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.emulator.entities import (
    Disposition,
    DispositionStatus,
    QueueSettings,
    RuleEvaluationError,
    ServiceBusFault,
)
from tests.emulator.entities.broker import (
    HOUR,
    SECOND,
    START,
    Broker,
    Rule,
    annotation,
    application_properties,
    bodies,
    subscription,
    tokens,
    topic,
)


def has_property(name: str) -> Rule:
    return Rule(name, lambda message: name in (message.application_properties or Map()))


def fails(message: Message) -> bool:
    raise RuleEvaluationError("cannot add a string to a number")


def test_every_subscription_gets_its_own_copy() -> None:
    broker = Broker(topics={"t": topic(subscription("one"), subscription("two"))})
    broker.send("a", to="t")
    one, two = broker.subscription("t", "one"), broker.subscription("t", "two")
    one.receive("link", 1, delete=True)
    assert bodies(two.receive("link", 1)) == ["a"]


def test_a_copy_has_its_own_number_and_keeps_the_topics() -> None:
    broker = Broker(topics={"t": topic(subscription("some", has_property("x")), subscription("all"))})
    broker.send("a", to="t")
    broker.send("b", to="t", properties={"x": 1.0})
    (copy,) = broker.subscription("t", "some").peek(0, 10)
    assert (copy.sequence_number, copy.enqueued_sequence_number) == (1, 2)


def test_only_what_a_rule_lets_through_arrives() -> None:
    broker = Broker(topics={"t": topic(subscription("s", has_property("x"), has_property("y")))})
    broker.send("neither", to="t")
    broker.send("x", to="t", properties={"x": True})
    broker.send("both", to="t", properties={"x": True, "y": True})
    assert bodies(broker.subscription("t", "s").peek(0, 10)) == ["x", "both"]


def test_each_matching_rule_with_an_action_makes_its_own_copy() -> None:
    def paint(colour: str) -> Rule:
        return Rule(colour, action=lambda message: replace(message, application_properties=Map({"colour": colour})))

    broker = Broker(topics={"t": topic(subscription("s", paint("red"), paint("blue"), Rule("plain"), Rule("other")))})
    broker.send("a", to="t")
    found = broker.subscription("t", "s").peek(0, 10)
    assert bodies(found) == ["a", "a", "a"]
    assert [application_properties(each) for each in found] == [{"colour": "red"}, {"colour": "blue"}, {}]


def test_rules_are_added_listed_in_pages_and_removed() -> None:
    broker = Broker(topics={"t": topic(subscription("s"))})
    target = broker.subscription("t", "s")
    assert [rule.name for rule in target.rules()] == ["$Default"]
    target.add_rule(has_property("x"))
    target.remove_rule("$default")
    target.add_rule(has_property("y"))
    assert [rule.name for rule in target.rules()] == ["x", "y"]
    assert [rule.name for rule in target.rules(skip=1, top=5)] == ["y"]
    assert target.rules(skip=2, top=5) == []
    broker.send("a", to="t")
    assert target.peek(0, 1) == []


def test_a_rule_name_is_there_once_and_a_missing_one_is_not_removed() -> None:
    target = Broker(topics={"t": topic(subscription("s", has_property("x")))}).subscription("t", "s")
    with pytest.raises(ServiceBusFault) as caught:
        target.add_rule(has_property("X"))
    assert (caught.value.status, caught.value.condition) == (409, "com.microsoft:entity-already-exists")
    with pytest.raises(ServiceBusFault) as caught:
        target.remove_rule("y")
    assert (caught.value.status, caught.value.condition) == (404, "amqp:not-found")


def test_a_filter_that_cannot_be_evaluated_dead_letters_the_message_and_hurts_no_other_subscription() -> None:
    broker = Broker(topics={"t": topic(subscription("bad", Rule("r", fails)), subscription("good"))})
    broker.send("a", to="t")
    (dead,) = broker.queue("t/Subscriptions/bad/$DeadLetterQueue").peek(0, 1)
    assert "cannot add" in application_properties(dead)["DeadLetterErrorDescription"]
    assert bodies(broker.subscription("t", "good").peek(0, 1)) == ["a"]


def test_a_filter_that_cannot_be_evaluated_drops_the_message_where_the_subscription_says_so() -> None:
    broker = Broker(topics={"t": topic(subscription("s", Rule("r", fails), dead_lettering_on_filter_evaluation_exceptions=False))})
    broker.send("a", to="t")
    assert broker.subscription("t", "s").peek(0, 1) == []
    assert broker.queue("t/Subscriptions/s/$DeadLetterQueue").peek(0, 1) == []


def test_a_message_without_session_id_for_a_session_subscription_is_dead_lettered() -> None:
    broker = Broker(topics={"t": topic(subscription("s", requires_session=True), subscription("other"))})
    broker.send("a", to="t")
    assert len(broker.queue("t/Subscriptions/s/$DeadLetterQueue").peek(0, 1)) == 1
    assert len(broker.subscription("t", "other").peek(0, 1)) == 1


def test_scheduled_messages_stand_at_the_topic_until_their_time() -> None:
    broker = Broker(topics={"t": topic(subscription("s"))})
    first, second = broker.schedule("a", "b", after=HOUR, to="t")
    assert bodies(broker.topic("t").peek(0, 10)) == ["a", "b"]
    assert broker.subscription("t", "s").peek(0, 10) == []
    broker.topic("t").cancel_scheduled([second])
    broker.pass_time(HOUR)
    assert broker.topic("t").peek(0, 10) == []
    (arrived,) = broker.subscription("t", "s").peek(0, 10)
    assert (bodies([arrived]), arrived.enqueued_sequence_number) == (["a"], first)


def test_the_topics_time_to_live_bounds_the_subscriptions() -> None:
    broker = Broker(topics={"t": topic(subscription("s", default_message_time_to_live=HOUR), default_message_time_to_live=SECOND)})
    broker.send("a", to="t")
    broker.pass_time(SECOND)
    assert broker.subscription("t", "s").peek(0, 1) == []


def test_a_topic_detects_duplicates_for_all_its_subscriptions() -> None:
    broker = Broker(topics={"t": topic(subscription("s"), duplicate_detection_window=HOUR)})
    broker.send("a", to="t", message_id="m")
    broker.send("b", to="t", message_id="m")
    assert bodies(broker.subscription("t", "s").peek(0, 10)) == ["a"]


def test_a_topic_is_not_received_from_and_a_subscription_is_not_sent_to() -> None:
    namespace = Broker(topics={"t": topic(subscription("s"))}).namespace
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        namespace.resolve_receiver("t")
    with pytest.raises(ServiceBusFault, match="amqp:not-allowed"):
        namespace.resolve_sender("t/Subscriptions/s")


# Forwarding


def test_a_forwarded_message_arrives_at_the_end_of_the_chain_with_its_first_number() -> None:
    broker = Broker({"b": QueueSettings(forward_to="c"), "c": QueueSettings()}, forward_to="b")
    broker.send("first", to="c")
    broker.send("a")
    assert broker.q.peek(0, 1) == []
    found = broker.queue("c").peek(0, 10)
    assert bodies(found) == ["first", "a"]
    assert [(each.sequence_number, each.enqueued_sequence_number) for each in found] == [(1, 1), (2, 1)]


def test_a_subscription_forwards_to_a_queue() -> None:
    broker = Broker(topics={"t": topic(subscription("s", forward_to="q"))})
    broker.send("a", to="t")
    assert bodies(broker.q.receive("link", 1)) == ["a"]


def test_a_circle_ends_in_the_transfer_dead_letter_queue() -> None:
    broker = Broker({"b": QueueSettings(forward_to="q")}, forward_to="b")
    broker.send("a")
    transfers = [broker.queue(f"{name}/$Transfer/$DeadLetterQueue").peek(0, 1) for name in ("q", "b")]
    ((dead,),) = [found for found in transfers if found]
    assert application_properties(dead)["DeadLetterReason"] == "MaxTransferHopCountExceeded"


def test_what_the_destination_refuses_is_in_the_transfer_dead_letter_queue_of_the_source() -> None:
    broker = Broker({"sessions": QueueSettings(requires_session=True)}, forward_to="sessions")
    broker.send("a")
    broker.send("b", session="s")
    (dead,) = broker.queue("q/$Transfer/$DeadLetterQueue").peek(0, 10)
    assert bodies([dead]) == ["a"]
    assert bodies(broker.queue("sessions").peek(0, 10)) == ["b"]


def test_a_scheduled_message_waits_at_the_source_and_is_then_forwarded() -> None:
    broker = Broker({"b": QueueSettings()}, forward_to="b")
    broker.schedule("a", after=HOUR)
    assert len(broker.q.peek(0, 1)) == 1
    broker.pass_time(HOUR)
    assert broker.q.peek(0, 1) == []
    assert bodies(broker.queue("b").receive("link", 1)) == ["a"]


def test_dead_letters_are_forwarded_with_their_reason_and_source() -> None:
    broker = Broker({"failed": QueueSettings()}, forward_dead_lettered_messages_to="failed")
    broker.send("a")
    (locked,) = broker.q.receive("link", 1)
    broker.q.settle(tokens([locked]), Disposition(DispositionStatus.SUSPENDED, "why"))
    assert broker.dead.peek(0, 1) == []
    (found,) = broker.queue("failed").receive("link", 1)
    assert annotation(found, "x-opt-deadletter-source") == "q"
    assert application_properties(found)["DeadLetterReason"] == "why"
    assert (found.delivery_count, found.enqueued_time) == (0, START)


def test_a_dead_letter_that_cannot_be_forwarded_stays_in_the_dead_letter_queue() -> None:
    broker = Broker({"failed": QueueSettings(requires_session=True)}, forward_dead_lettered_messages_to="failed")
    broker.send("a")
    broker.q.settle(tokens(broker.q.receive("link", 1)), Disposition(DispositionStatus.SUSPENDED))
    assert bodies(broker.dead.peek(0, 1)) == ["a"]


# Addresses


@pytest.mark.parametrize(
    "address",
    ["site/Orders", "/site/orders", "amqps://host:5671/site/orders", "sb://host/SITE/ORDERS/", "site/orders/$management"],
)
def test_an_entity_is_found_by_every_form_of_its_address(address: str) -> None:
    broker = Broker({"site/orders": QueueSettings()})
    assert broker.namespace.resolve(address).path == "site/orders"


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("q/$deadletterqueue", "q/$DeadLetterQueue"),
        ("Q/$Transfer/$DeadLetterQueue/$Management", "q/$Transfer/$DeadLetterQueue"),
        ("t/subscriptions/S/$DeadLetterQueue", "t/Subscriptions/s/$DeadLetterQueue"),
    ],
)
def test_sub_queues_have_addresses(address: str, path: str) -> None:
    broker = Broker(topics={"t": topic(subscription("s"))})
    assert broker.namespace.resolve(address).path == path


@pytest.mark.parametrize("address", ["", "none", "q/x", "$management", "t/Subscriptions/none", "q/$DeadLetterQueue/$DeadLetterQueue"])
def test_what_is_not_there_is_not_found(address: str) -> None:
    with pytest.raises(ServiceBusFault) as caught:
        Broker(topics={"t": topic(subscription("s"))}).namespace.resolve(address)
    assert (caught.value.status, caught.value.condition) == (404, "amqp:not-found")
