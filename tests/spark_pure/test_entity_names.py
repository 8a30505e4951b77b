"""Names of entities: right ones become addresses, wrong ones an error that says which option to set instead."""

from __future__ import annotations

from typing import Any

import pytest

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options.entity_names import EntityKind, check_entities, entity_names
from spark_sb_mgmt.spark.options.table import EVERY_OPERATION

DLQ = "$DeadLetterQueue"


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ({"queue": "orders"}, ["orders"]),
        ({"queue": "eu/orders-1_x.y"}, ["eu/orders-1_x.y"]),
        ({"topic": "t"}, ["t"]),
        ({"topic": "eu/t", "subscription": "s"}, ["eu/t/Subscriptions/s"]),
        ({"queue": "q", "sub_queue": "deadLetter"}, [f"q/{DLQ}"]),
        ({"queue": "q", "sub_queue": "transferDeadLetter"}, [f"q/$Transfer/{DLQ}"]),
        ({"topic": "t", "subscription": "s", "sub_queue": "deadLetter"}, [f"t/Subscriptions/s/{DLQ}"]),
        # Verbatim: the case of what was typed stays.
        ({"entity_path": "t/subscriptions/s/$deadletterqueue"}, ["t/subscriptions/s/$deadletterqueue"]),
        ({"entity_path": f"q/$Transfer/{DLQ}"}, [f"q/$Transfer/{DLQ}"]),
        ({"entity_path": "a, b/c ,t/Subscriptions/s"}, ["a", "b/c", "t/Subscriptions/s"]),
        ({"entity_path": "a,b", "sub_queue": "deadLetter"}, [f"a/{DLQ}", f"b/{DLQ}"]),
        ({"entity_path": "subscriptions"}, ["subscriptions"]),
        ({"connection_entity_path": "q"}, ["q"]),
        ({"connection_entity_path": "q", "sub_queue": "deadLetter"}, [f"q/{DLQ}"]),
        ({"connection_entity_path": "t", "subscription": "s"}, ["t/Subscriptions/s"]),
        ({"connection_entity_path": "Orders", "queue": "orders"}, ["orders"]),
        ({"connection_entity_path": "t", "topic": "t", "subscription": "s"}, ["t/Subscriptions/s"]),
    ],
)
def test_addresses(given: dict[str, Any], addresses: list[str]) -> None:
    assert [name.address for name in entity_names(**given)] == addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "option queue is missing: name the entity by queue, topic, topic with subscription, or entityPath"),
        ({"sub_queue": "deadLetter"}, "option queue is missing"),
        ({"queue": "q", "topic": "t"}, "option topic names an entity, and queue does too: name it in exactly one way"),
        ({"queue": "q", "entity_path": "q"}, "option entityPath names an entity, and queue does too"),
        ({"topic": "t", "entity_path": "q"}, "option entityPath names an entity, and topic does too"),
        ({"subscription": "s"}, "option subscription is given without topic"),
        ({"queue": "q", "subscription": "s"}, "option subscription is given with queue"),
        ({"entity_path": "t", "subscription": "s"}, "option subscription is given with entityPath"),
        ({"topic": "t/Subscriptions/s"}, "is a subscription: set option topic to 't' and subscription to 's'"),
        ({"queue": "a/t/subscriptions/s"}, "is a subscription: set option topic to 'a/t' and subscription to 's'"),
        ({"queue": f"q/{DLQ}"}, "is a dead-letter queue: give the entity's own name, and set option subQueue"),
        ({"topic": "t", "subscription": "t/Subscriptions/s"}, "option subscription is 't/Subscriptions/s': it is the name alone"),
        ({"topic": "t", "subscription": "s" * 51}, "option subscription has 51 characters: a name has 1 to 50"),
        ({"queue": "q" * 400}, "option queue has 400 characters"),
        ({"queue": ""}, "option queue has 0 characters"),
        ({"queue": "/q"}, "neither starts nor ends with /"),
        ({"queue": "q/"}, "neither starts nor ends with /"),
        ({"queue": "a//b"}, "no two in a row"),
        ({"queue": "a,b"}, "it is one name; several entities are listed in option entityPath"),
        ({"queue": "my queue"}, "option queue has the character ' '"),
        ({"queue": "sb://ns/q"}, "option queue has the character ':'"),
        ({"queue": "q?"}, "option queue has the character '?'"),
        ({"queue": "q\x00"}, "option queue has the character"),
        ({"entity_path": "q/$management"}, "leave out /$management"),
        ({"entity_path": "q/$Other"}, "after a path only"),
        ({"entity_path": "t/Subscriptions"}, "the path of a subscription is <topic>/Subscriptions/<subscription>"),
        ({"entity_path": "t/Subscriptions/s/x"}, "the path of a subscription is"),
        ({"entity_path": "a,,b"}, "there is nothing between two commas"),
        ({"entity_path": "a,B,A"}, "names 'A' twice"),
        ({"topic": "t", "sub_queue": "deadLetter"}, "topic 't' has none, its subscriptions have: set option subscription"),
        ({"entity_path": f"q/{DLQ}", "sub_queue": "deadLetter"}, "is a dead-letter queue already"),
        ({"connection_entity_path": "q", "queue": "p"}, "option connectionString has EntityPath 'q', and the options name 'p'"),
        ({"connection_entity_path": "ord", "queue": "orders"}, "option connectionString has EntityPath 'ord'"),
        ({"connection_entity_path": "a b"}, "option connectionString (its EntityPath) has the character ' '"),
    ],
)
def test_a_name_that_is_none(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        entity_names(**given)
    assert expected in str(caught.value)


QUEUE, TOPIC = entity_names(queue="q"), entity_names(topic="t")
SUBSCRIPTION = entity_names(topic="t", subscription="s")
DEAD = entity_names(queue="q", sub_queue="deadLetter")
PATH = entity_names(entity_path="x")
WHERE = {"queue": QUEUE, "topic": TOPIC, "subscription": SUBSCRIPTION, "dead": DEAD, "path": PATH}
# Where each operation can be done, as far as an address tells.
POSSIBLE = {
    "peek-message": {"queue", "topic", "subscription", "dead", "path"},
    "receive-by-sequence-number": {"queue", "subscription", "dead", "path"},
    "get-message-sessions": {"queue", "subscription", "dead", "path"},
    "enumerate-rules": {"subscription"},
    "schedule-message": {"queue", "topic", "path"},
    "cancel-scheduled-message": {"queue", "topic", "path"},
    "update-disposition": {"queue", "subscription", "dead", "path"},
    "renew-lock": {"queue", "subscription", "dead", "path"},
    "renew-session-lock": {"queue", "subscription", "dead", "path"},
    "set-session-state": {"queue", "subscription", "dead", "path"},
    "add-rule": {"subscription"},
    "remove-rule": {"subscription"},
    "batch-delete-messages": {"queue", "subscription", "dead", "path"},
}


@pytest.mark.parametrize("operation", EVERY_OPERATION)
@pytest.mark.parametrize("where", WHERE)
def test_where_an_operation_can_be_done(operation: str, where: str) -> None:
    if where in POSSIBLE[operation]:
        check_entities(operation, WHERE[where], several=False)
        return
    with pytest.raises(InvalidArgumentError, match=f"option operation is {operation}, and '{WHERE[where][0].address}'".replace("$", r"\$")):
        check_entities(operation, WHERE[where], several=False)


def test_a_write_has_one_entity() -> None:
    both = entity_names(entity_path="a,b")
    check_entities("peek-message", both, several=True)
    with pytest.raises(InvalidArgumentError, match="option entityPath names 2 entities: schedule-message works on one"):
        check_entities("schedule-message", both, several=False)


def test_what_an_address_tells_of_its_entity() -> None:
    assert [name.kind for name in (*QUEUE, *TOPIC, *SUBSCRIPTION, *PATH)] == [
        EntityKind.QUEUE,
        EntityKind.TOPIC,
        EntityKind.SUBSCRIPTION,
        EntityKind.QUEUE_OR_TOPIC,
    ]
    assert DEAD[0].is_sub_queue
