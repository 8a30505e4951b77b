"""One request on its way to the entities, and what comes back.

The one rule: an operation is a function from a `Call` to an `Answer`; all that it may need of the outside is in the call, and a refusal is
a `ServiceBusFault`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_sb_mgmt.emulator.entities import AnyEntity, Holder, Namespace, Queue, Subscription, UnitOfWork, faults
from spark_sb_mgmt.emulator.entities.rules import RuleCompiler
from spark_sb_mgmt.emulator.management.bodies import Body


class Answer(NamedTuple):
    """`body` is the answer's map: encoded keys and values in turn, or the bytes of so many `items` in any pieces."""

    body: Sequence[bytes] = ()
    status: int = 200
    description: str = "OK"
    condition: str | None = None
    items: int | None = None


DONE: Final = Answer()


def nothing(description: str, condition: str | None, *body: bytes) -> Answer:
    """There is nothing to answer with, and that is no error."""
    return Answer(body, 204, description, condition)


@dataclass(frozen=True)
class Call:
    namespace: Namespace
    compile_rule: RuleCompiler
    entity: AnyEntity
    body: Body
    # Who owns the locks that are taken.
    holder: Holder
    # The link that the request names as its own, if it is there.
    associated: Holder | None
    work: UnitOfWork | None
    max_bytes: int
    page_limit: int | None

    @property
    def queue(self) -> Queue:
        """The entity as something that messages are received from; a fault if it is not."""
        return self.entity if isinstance(self.entity, Queue) else self.namespace.resolve_receiver(self.entity.path)

    @property
    def destination(self) -> AnyEntity:
        """The entity as something that messages are sent to; a fault if it is not."""
        return self.namespace.resolve_sender(self.entity.path)

    @property
    def subscription(self) -> Subscription:
        """The entity as something that has rules; a fault if it is not."""
        if isinstance(self.entity, Subscription):
            return self.entity
        raise faults.not_allowed(f"'{self.entity.path}' has no rules: they are a subscription's, '<topic>/Subscriptions/<name>'.")
