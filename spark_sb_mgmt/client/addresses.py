"""Entities by name: queues, topics, subscriptions and their sub-queues (wire-facts.md, section 3.4).

The one rule: an address that cannot be one is refused here, not after a connection was opened for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations import names

SUB_QUEUES: Final[Mapping[str, str]] = {
    "deadLetter": "$DeadLetterQueue",
    "transferDeadLetter": "$Transfer/$DeadLetterQueue",
}
# Of an entity's path; a subscription and a sub-queue come on top.
_LONGEST_PATH: Final = 260
_LONGEST_ADDRESS: Final = 2 * _LONGEST_PATH


def entity_path(
    *,
    queue: str | None = None,
    topic: str | None = None,
    subscription: str | None = None,
    sub_queue: str | None = None,
) -> str:
    """The address of a queue, a topic, or a topic's subscription, and of a sub-queue of it: `deadLetter` or `transferDeadLetter`."""
    if (queue is None) == (topic is None):
        raise InvalidArgumentError("queue", "or topic must be given, one of the two")
    if subscription is not None and topic is None:
        raise InvalidArgumentError("subscription", "is of a topic: give topic too")
    path = check_path("queue", queue) if queue is not None else check_path("topic", topic or "")
    if subscription is not None:
        path += f"/Subscriptions/{check_path('subscription', subscription)}"
    if sub_queue is None:
        return path
    if sub_queue not in SUB_QUEUES:
        raise InvalidArgumentError("sub_queue", f"is {sub_queue!r:.60}: there are {', '.join(SUB_QUEUES)}")
    if topic is not None and subscription is None:
        raise InvalidArgumentError("sub_queue", "is of a queue or a subscription, and a topic has none: give subscription too")
    return f"{path}/{SUB_QUEUES[sub_queue]}"


def check_path(name: str, path: str) -> str:
    """The path without slashes around it, if it can be an entity's."""
    trimmed = path.strip("/")
    if not trimmed or trimmed != trimmed.strip():
        raise InvalidArgumentError(name, f"is {path!r:.80}: it must be the name of an entity")
    if len(trimmed) > _LONGEST_ADDRESS:
        raise InvalidArgumentError(name, f"has {len(trimmed)} characters, more than any entity: {trimmed[:40]!r}...")
    if trimmed.lower().endswith(names.MANAGEMENT_NODE):
        raise InvalidArgumentError(name, f"is {path!r:.80}: give the entity, its {names.MANAGEMENT_NODE} is found by itself")
    return trimmed
