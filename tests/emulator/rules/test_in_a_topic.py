"""Compiled rules where they are used: in the subscriptions of a topic."""

from __future__ import annotations

from spark_sb_mgmt.amqp.types import Int
from tests.emulator.entities.broker import Broker, application_properties, bodies, subscription, topic
from tests.emulator.rules.evaluation import rule


def test_a_message_goes_where_the_filters_let_it_changed_by_the_actions() -> None:
    broker = Broker(
        topics={
            "t": topic(
                subscription("large", rule("amount >= 1000", "SET amount = amount / 2; SET sys.Label = 'large'")),
                subscription("small", rule("amount < 1000")),
                subscription("none", rule("missing <> 1")),
            )
        }
    )
    broker.send("a", to="t", properties={"amount": Int(1500)})
    (large,) = broker.subscription("t", "large").peek(0, 10)
    assert application_properties(large) == {"amount": Int(750), "RuleName": "r"}
    found = large.read().properties
    assert found is not None
    assert found.subject == "large"
    assert broker.subscription("t", "small").peek(0, 10) == []
    assert broker.subscription("t", "none").peek(0, 10) == []


def test_a_message_that_cannot_be_evaluated_is_dead_lettered_with_the_reason() -> None:
    broker = Broker(topics={"t": topic(subscription("s", rule("amount > 5")), subscription("other"))})
    broker.send("a", to="t", properties={"amount": "many"})
    (dead,) = broker.queue("t/Subscriptions/s/$DeadLetterQueue").peek(0, 1)
    assert application_properties(dead)["DeadLetterErrorDescription"] == "Rule 'r': > cannot compare a string with an integer"
    assert bodies(broker.subscription("t", "other").peek(0, 1)) == ["a"]
