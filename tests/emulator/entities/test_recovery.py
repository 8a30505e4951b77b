"""State from change records: what was acknowledged is there after a restart, and nobody holds a lock."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.emulator.entities import ABANDONED, COMPLETED, DEFERED, Disposition, DispositionStatus, MessageState, ServiceBusFault
from tests.emulator.entities.broker import HOUR, MINUTE, SECOND, Broker, Rule, application_properties, bodies, subscription, tokens, topic


def test_messages_of_every_state_are_there_again_with_their_numbers_and_times() -> None:
    broker = Broker()
    broker.deferred("deferred")
    broker.send("active", "done", properties={"a": 1.0})
    broker.schedule("scheduled", after=HOUR)
    _, done = broker.q.receive("link", 2)
    broker.q.settle(tokens([done]), COMPLETED)
    before = [(each.sequence_number, each.state, each.enqueued_time, each.bare) for each in broker.q.peek(0, 10)]
    broker.restart()
    assert [(each.sequence_number, each.state, each.enqueued_time, each.bare) for each in broker.q.peek(0, 10)] == before
    assert [state for _, state, _, _ in before] == [MessageState.DEFERRED, MessageState.ACTIVE, MessageState.SCHEDULED]


def test_a_lock_does_not_survive_and_its_delivery_is_not_counted() -> None:
    broker = Broker()
    broker.send("a")
    token = tokens(broker.q.receive("link", 1))
    broker.restart()
    with pytest.raises(ServiceBusFault, match="message-lock-lost"):
        broker.q.settle(token, COMPLETED)
    assert [each.delivery_count for each in broker.q.receive("other", 1)] == [0]


def test_delivery_counts_and_modified_properties_survive() -> None:
    broker = Broker()
    broker.send("a")
    for colour in ("red", "blue"):
        changed = Disposition(DispositionStatus.ABANDONED, properties_to_modify=Map({"colour": colour}))
        broker.q.settle(tokens(broker.q.receive("link", 1)), changed)
    broker.restart()
    (found,) = broker.q.receive("link", 1)
    assert (found.delivery_count, application_properties(found)) == (2, {"colour": "blue"})


def test_numbers_are_not_given_again_even_if_no_message_is_left() -> None:
    broker = Broker()
    broker.send("a", "b")
    broker.q.receive("link", 2, delete=True)
    broker.restart()
    broker.send("c")
    assert [each.sequence_number for each in broker.q.peek(0, 1)] == [3]


def test_schedules_and_times_to_live_go_on() -> None:
    broker = Broker(dead_lettering_on_message_expiration=True)
    broker.send("short", ttl=MINUTE)
    broker.schedule("later", after=HOUR)
    broker.restart()
    broker.pass_time(MINUTE)
    assert bodies(broker.dead.peek(0, 1)) == ["short"]
    broker.pass_time(HOUR)
    assert bodies(broker.q.receive("link", 1)) == ["later"]


def test_sessions_with_their_state_and_the_dead_letters_survive() -> None:
    broker = Broker(requires_session=True, max_delivery_count=1)
    broker.send("a", session="s")
    broker.send("b", session="s")
    broker.q.set_session_state("s", b"state")
    broker.q.accept_session("link", "s")
    broker.q.settle(tokens(broker.q.receive("link", 1, session_id="s")), ABANDONED)
    broker.restart()
    assert bodies(broker.dead.peek(0, 10)) == ["a"]
    assert broker.q.get_session_state("s") == b"state"
    lock = broker.q.accept_session("other", None)
    assert lock is not None
    assert bodies(broker.q.receive("other", 10, session_id="s")) == ["b"]


def test_rules_survive() -> None:
    broker = Broker(topics={"t": topic(subscription("s"))})
    broker.subscription("t", "s").add_rule(Rule("never", lambda message: False))
    broker.subscription("t", "s").remove_rule("$Default")
    broker.restart()
    broker.send("a", to="t")
    assert [rule.name for rule in broker.subscription("t", "s").rules()] == ["never"]
    assert broker.subscription("t", "s").peek(0, 1) == []


def test_duplicates_are_still_known() -> None:
    broker = Broker(duplicate_detection_window=MINUTE)
    broker.send("a", message_id="m")
    broker.restart()
    broker.send("b", message_id="m")
    assert bodies(broker.q.peek(0, 10)) == ["a"]
    broker.pass_time(MINUTE + SECOND)
    broker.send("c", message_id="m")
    assert bodies(broker.q.peek(0, 10)) == ["a", "c"]


def test_a_message_deferred_in_a_session_is_not_received_as_if_it_were_active() -> None:
    broker = Broker(requires_session=True)
    broker.send("a", session="s")
    broker.q.accept_session("link", "s")
    broker.q.settle(tokens(broker.q.receive("link", 1, session_id="s")), DEFERED)
    broker.restart()
    assert broker.q.accept_session("other", None) is None
    broker.q.accept_session("other", "s")
    assert broker.q.receive("other", 1, session_id="s") == []
