"""The entity that options name, as the address of its management node's entity (wire-facts.md, section 3.4).

The one rule: exactly one way to name it, and what no operation can do there is an error here that says which option to set instead.
Names are the service's: not empty, 260 characters at most (a subscription 50), and none of the characters that it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_sb_mgmt.spark.options.checks import wrong
from spark_sb_mgmt.spark.options.table import ADD_RULE, CANCEL, PEEK, READ_OPERATIONS, REMOVE_RULE, RULES, SCHEDULE

LONGEST_PATH: Final = 260
LONGEST_SUBSCRIPTION: Final = 50
SUBSCRIPTIONS: Final = "Subscriptions"
SUB_QUEUES: Final = {"deadLetter": "$DeadLetterQueue", "transferDeadLetter": "$Transfer/$DeadLetterQueue"}
_MANAGEMENT: Final = "/$management"
# The first four are what the SDKs refuse; the others make a connection string, a URL or a list.
_REFUSED: Final = "@?#*\\;=,:"
_WAYS: Final = "queue, topic, topic with subscription, or entityPath"


class EntityKind(Enum):
    """What an address is known to be. A path alone may be a queue's or a topic's."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    QUEUE_OR_TOPIC = "queue or topic"


@dataclass(frozen=True)
class EntityName:
    """One entity: its address, and what that tells of it."""

    address: str
    kind: EntityKind
    is_sub_queue: bool = False


def entity_names(
    *,
    queue: str | None = None,
    topic: str | None = None,
    subscription: str | None = None,
    entity_path: str | None = None,
    sub_queue: str | None = None,
    connection_entity_path: str | None = None,
) -> tuple[EntityName, ...]:
    """The entities that the options name. A connection string with an EntityPath names one too: alone, or the same as the options do."""
    ways = [name for name, value in (("queue", queue), ("topic", topic), ("entityPath", entity_path)) if value is not None]
    if len(ways) > 1:
        raise wrong(ways[-1], f"names an entity, and {ways[0]} does too: name it in exactly one way, by {_WAYS}")
    if subscription is not None and queue is not None:
        raise wrong("subscription", "is given with queue: a subscription is of a topic, so set topic instead of queue")
    if subscription is not None and entity_path is not None:
        raise wrong("subscription", f"is given with entityPath: set topic, or write <topic>/{SUBSCRIPTIONS}/<subscription> as entityPath")
    if not ways and connection_entity_path is not None:
        names: tuple[EntityName, ...] = (_of_connection_string(connection_entity_path, subscription),)
    elif subscription is not None and topic is None:
        raise wrong("subscription", "is given without topic: set option topic to the name of its topic")
    elif not ways:
        raise wrong("queue", f"is missing: name the entity by {_WAYS}")
    else:
        names = _named(queue, topic, subscription, entity_path)
        _check_same(names, connection_entity_path)
    return tuple(_with_sub_queue(name, sub_queue) for name in names)


def _named(queue: str | None, topic: str | None, subscription: str | None, entity_path: str | None) -> tuple[EntityName, ...]:
    if queue is not None:
        return (EntityName(_plain_path("queue", queue), EntityKind.QUEUE),)
    if topic is not None:
        path = _plain_path("topic", topic)
        return (EntityName(path, EntityKind.TOPIC) if subscription is None else _subscription(path, subscription),)
    parts = [part.strip() for part in (entity_path or "").split(",")]
    if not all(parts):
        raise wrong("entityPath", f"is {entity_path!r:.200}: there is nothing between two commas, or around one")
    twice = next((part for at, part in enumerate(parts) if part.lower() in [before.lower() for before in parts[:at]]), None)
    if twice is not None:
        raise wrong("entityPath", f"names {twice!r:.80} twice (case does not matter): every message of it would be two rows")
    return tuple(_path("entityPath", part) for part in parts)


def _of_connection_string(path: str, subscription: str | None) -> EntityName:
    if subscription is None:
        return _path("connectionString (its EntityPath)", path)
    return _subscription(_plain_path("connectionString (its EntityPath)", path), subscription)


def _subscription(topic: str, subscription: str) -> EntityName:
    name = _checked("subscription", subscription, LONGEST_SUBSCRIPTION)
    if "/" in name or "$" in name:
        raise wrong(
            "subscription", f"is {name!r:.80}: it is the name alone, without topic, / and $; a dead-letter queue is option subQueue"
        )
    return EntityName(f"{topic}/{SUBSCRIPTIONS}/{name}", EntityKind.SUBSCRIPTION)


def _plain_path(option: str, text: str) -> str:
    """The path of a queue or topic, and no more than that."""
    name = _path(option, text)
    if name.is_sub_queue:
        raise wrong(option, f"is {text!r:.80}, which is a dead-letter queue: give the entity's own name, and set option subQueue")
    if name.kind is EntityKind.SUBSCRIPTION:
        topic, _, rest = _split_subscription(text)
        raise wrong(option, f"is {text!r:.80}, which is a subscription: set option topic to {topic!r} and subscription to {rest!r}")
    return name.address


def _path(option: str, text: str) -> EntityName:
    """Any address but the management node's own."""
    address = _checked(option, text, LONGEST_PATH + len("/Subscriptions/") + LONGEST_SUBSCRIPTION)
    if address.lower().endswith(_MANAGEMENT):
        raise wrong(option, f"is {text!r:.80}: leave out {_MANAGEMENT}, it is added by the connector")
    base, is_sub_queue = _without_sub_queue(address)
    if "$" in base:
        raise wrong(option, f"is {text!r:.80}: after a path only {' or '.join(SUB_QUEUES.values())} may follow")
    topic, has_subscription, subscription = _split_subscription(base)
    if not has_subscription:
        return EntityName(address, EntityKind.QUEUE if is_sub_queue else EntityKind.QUEUE_OR_TOPIC, is_sub_queue)
    if not topic or not subscription or "/" in subscription:
        raise wrong(option, f"is {text!r:.80}: the path of a subscription is <topic>/{SUBSCRIPTIONS}/<subscription>")
    return EntityName(address, EntityKind.SUBSCRIPTION, is_sub_queue)


def is_dead_letter_queue(address: str) -> bool:
    """Whether that is where an address ends."""
    return _without_sub_queue(address)[1]


def _without_sub_queue(address: str) -> tuple[str, bool]:
    # The longer one first: it ends as the shorter one does.
    for suffix in sorted(SUB_QUEUES.values(), key=len, reverse=True):
        if address.lower().endswith("/" + suffix.lower()):
            return address[: -len(suffix) - 1], True
    return address, False


def _split_subscription(path: str) -> tuple[str, bool, str]:
    at = (path.lower() + "/").find(f"/{SUBSCRIPTIONS.lower()}/")
    return (path, False, "") if at < 0 else (path[:at], True, path[at + len(SUBSCRIPTIONS) + 2 :])


def _checked(option: str, text: str, longest: int) -> str:
    refused = next((character for character in text if character in _REFUSED or character.isspace() or not character.isprintable()), None)
    if refused == ",":
        raise wrong(option, f"is {text!r:.80}: it is one name; several entities are listed in option entityPath, and only for reads")
    if refused is not None:
        # It may be a connection string, so it is not shown.
        raise wrong(option, f"has the character {refused!r}, which is in no entity's name: give the name alone, as in orders/eu")
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise wrong(option, f"is {text!r:.80}: a name neither starts nor ends with / and has no two in a row")
    if not text or len(text) > longest:
        raise wrong(option, f"has {len(text)} characters: a name has 1 to {longest}")
    return text


def _with_sub_queue(name: EntityName, sub_queue: str | None) -> EntityName:
    if sub_queue is None:
        return name
    if name.is_sub_queue:
        raise wrong("subQueue", f"is {sub_queue}, and {name.address!r:.200} is a dead-letter queue already: leave one of the two out")
    if name.kind is EntityKind.TOPIC:
        raise wrong("subQueue", f"is {sub_queue}, but topic {name.address!r:.80} has none, its subscriptions have: set option subscription")
    kind = EntityKind.QUEUE if name.kind is EntityKind.QUEUE_OR_TOPIC else name.kind
    return EntityName(f"{name.address}/{SUB_QUEUES[sub_queue]}", kind, True)


def _check_same(names: tuple[EntityName, ...], connection_entity_path: str | None) -> None:
    if connection_entity_path is None:
        return
    allowed = connection_entity_path.lower().strip("/")
    for name in names:
        if not f"{name.address.lower()}/".startswith(f"{allowed}/"):
            raise wrong(
                "connectionString",
                f"has EntityPath {connection_entity_path!r:.80}, and the options name {name.address!r:.200}: "
                "it gives no right there, so use the namespace's own, or leave the options out",
            )


_OF_SUBSCRIPTIONS: Final = frozenset((RULES, ADD_RULE, REMOVE_RULE))
_OF_SENDERS: Final = frozenset((SCHEDULE, CANCEL))


def check_entities(operation: str, names: tuple[EntityName, ...], *, several: bool) -> None:
    """Whether an operation can be done there, as far as the addresses tell."""
    if len(names) > 1 and not several:
        instead = (
            "the numbers of sequenceNumbers are those of one, so read each on its own"
            if operation in READ_OPERATIONS
            else f"{operation} works on one, so write to each on its own"
        )
        raise wrong("entityPath", f"names {len(names)} entities: {instead}")
    for name in names:
        where = f"{name.address!r:.200}"
        if operation in _OF_SUBSCRIPTIONS and (name.kind is not EntityKind.SUBSCRIPTION or name.is_sub_queue):
            raise wrong("operation", f"is {operation}, and {where} is no subscription: set topic and subscription")
        if operation in _OF_SENDERS and name.is_sub_queue:
            raise wrong("operation", f"is {operation}, and {where} is a dead-letter queue, which takes no messages: name its entity")
        if operation in _OF_SENDERS and name.kind is EntityKind.SUBSCRIPTION:
            raise wrong("operation", f"is {operation}, and {where} is a subscription, which takes no messages: name its topic alone")
        if operation not in (*_OF_SENDERS, *_OF_SUBSCRIPTIONS, PEEK) and name.kind is EntityKind.TOPIC:
            raise wrong("operation", f"is {operation}, and {where} is a topic, which hands its messages on: set option subscription too")
