"""A unit of work: sends, schedules and settlements that take effect together or not at all (wire-facts.md section 3.7).

The one rule: what can be refused is refused when it is asked for; at commit only a lock that ended meanwhile can fail, and then nothing
is applied. A message that the transaction settles keeps its lock, which goes on running; after a rollback its receiver holds it as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.disposition import Disposition
from spark_sb_mgmt.emulator.entities.entity import Entity
from spark_sb_mgmt.emulator.entities.message import IncomingMessage
from spark_sb_mgmt.emulator.entities.queue import Queue

# wire-facts.md section 4.
MAX_TRANSACTION_MESSAGES = 100


class UnitOfWork:
    """Made by `Namespace.begin`. Ended once, by `commit` or `rollback`."""

    def __init__(self) -> None:
        self._arrivals: list[Callable[[], None]] = []
        self._settlements: list[tuple[Queue, tuple[UUID, ...], Disposition]] = []
        self._messages = 0
        self._ended = False

    def send(self, entity: Entity, messages: Sequence[IncomingMessage]) -> None:
        entity.check_batch(messages)
        self._count(len(messages))
        self._arrivals.append(lambda: entity.send(messages))

    def schedule(self, entity: Entity, messages: Sequence[IncomingMessage]) -> list[int]:
        """The numbers that the messages have if the transaction is committed; if not, nobody has them."""
        entity.check_schedule(messages)
        self._count(len(messages))
        numbers = entity.reserve(messages)
        self._arrivals.append(lambda: entity.schedule_reserved(messages, numbers))
        return numbers

    def settle(self, queue: Queue, lock_tokens: Sequence[UUID], disposition: Disposition) -> None:
        self._check_open()
        queue.enlist(lock_tokens, disposition)
        try:
            self._count(len(lock_tokens))
        except faults.ServiceBusFault:
            queue.unlist(lock_tokens)
            raise
        self._settlements.append((queue, tuple(dict.fromkeys(lock_tokens)), disposition))

    def commit(self) -> None:
        self._check_open()
        settlements, arrivals = self._settlements, self._arrivals
        self.rollback()
        try:
            for queue, lock_tokens, disposition in settlements:
                queue.catch_up()
                queue.check_settle(lock_tokens, disposition)
        except faults.ServiceBusFault as fault:
            raise faults.transaction_failed(f"The transaction was rolled back: {fault.description}") from fault
        for queue, lock_tokens, disposition in settlements:
            queue.settle_checked(lock_tokens, disposition)
        for arrive in arrivals:
            arrive()

    def rollback(self) -> None:
        """Forget everything; ending twice is harmless, so that a link which closes need not know."""
        for queue, lock_tokens, _ in self._settlements:
            queue.unlist(lock_tokens)
        self._settlements, self._arrivals, self._ended = [], [], True

    def _check_open(self) -> None:
        if self._ended:
            raise faults.ServiceBusFault(404, "amqp:transaction:unknown-id", "The transaction is not there, or it has ended.")

    def _count(self, more: int) -> None:
        self._check_open()
        if self._messages + more > MAX_TRANSACTION_MESSAGES:
            raise faults.resource_limit_exceeded(f"A transaction has at most {MAX_TRANSACTION_MESSAGES} messages.")
        self._messages += more
