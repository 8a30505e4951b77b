"""What every link of the server has: it takes deliveries, it is pumped, it goes.

The one rule: a link is refused, or opened with what the client asked for echoed to the byte (wire-facts.md section 3.4); some clients
compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from proton import Condition, Delivery, Described, Endpoint, Terminus, symbol, ulong
from proton import Link as ProtonLink

from spark_sb_mgmt.emulator.entities import ServiceBusFault, UnitOfWork
from spark_sb_mgmt.emulator.entities.faults import message_size_exceeded
from spark_sb_mgmt.operations import names

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.config import Right
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

# Delivery states of AMQP 1.0 part 4 that proton leaves to its user.
DECLARED: Final = 0x33
TRANSACTIONAL_STATE: Final = 0x34
DETACH_FORCED: Final = ServiceBusFault(
    500, "amqp:link:detach-forced", "The link was detached by force because a fault was scripted or it was idle too long."
)


class TransactionalState(NamedTuple):
    """The state of a delivery that belongs to a transaction; `outcome` is the code of the outcome and its fields."""

    transaction_id: bytes
    outcome: int | None
    fields: tuple[Any, ...]


def condition_of(fault: ServiceBusFault) -> Condition:
    # Never without info: azure-servicebus reads it without asking, and a sender whose message was rejected without would wait for ever.
    return Condition(fault.condition, fault.description, {symbol(names.TRACKING_ID): str(uuid4())})


def put_state(delivery: Delivery, state: int, fields: list[Any]) -> None:
    """Send a delivery state that proton leaves to its user."""
    local: Any = delivery.local
    local.data = fields
    delivery.update(state)
    delivery.settle()


def put_delivery(link: Any, tag: bytes, message: bytes) -> Delivery:
    """Send a message. proton's stubs would have the tag as text, which it is not."""
    delivery: Delivery = link.delivery(tag)
    link.send(message)
    link.advance()
    return delivery


def transactional_state(delivery: Delivery) -> TransactionalState | None:
    """The transaction that the peer made this delivery, or its settlement, part of."""
    if delivery.remote_state != TRANSACTIONAL_STATE:
        return None
    # proton's stubs know less of what is in there than AMQP allows.
    data: Any = delivery.remote.data or []
    outcome = data[1] if len(data) > 1 and isinstance(data[1], Described) else None
    return TransactionalState(
        bytes(data[0]) if data and isinstance(data[0], (bytes, bytearray, memoryview)) else b"",
        None if outcome is None else int(outcome.descriptor) if isinstance(outcome.descriptor, int) else -1,
        tuple(outcome.value) if outcome is not None and isinstance(outcome.value, (list, tuple)) else (),
    )


class Link:
    """One link, as its connection sees it."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, *rights: Right) -> None:
        self.connection = connection
        self.broker = connection.broker
        self.link = link
        self.address = address
        # Of which a token must grant one for the link to stay; empty where none is needed.
        self.rights = rights
        self.is_gone = False
        self.last_active = self.broker.loop.time()

    def touch(self) -> None:
        self.last_active = self.broker.loop.time()

    def open(self) -> None:
        echo(self.link)
        self.link.open()

    def delivery(self, delivery: Delivery, message_format: int) -> None:
        """The peer has sent something, or settled something."""

    def pump(self) -> None:
        """Go on with what waited for credit, room, or something to send."""

    def gone(self, *, by_peer: bool) -> None:
        """The link is no more. `by_peer`: the peer has closed it, or is gone itself; otherwise it was sent away or has only detached."""
        self.is_gone = True

    def detach(self, fault: ServiceBusFault) -> None:
        """Send the peer away."""
        if self.is_gone:
            return
        self.gone(by_peer=False)
        self.connection.forget(self.link)
        if self.link.state & Endpoint.LOCAL_ACTIVE:
            self.link.condition = condition_of(fault)
            self.link.close()

    def check_right(self) -> None:
        if self.rights:
            self.connection.authorization.check(self.address, self.broker.now(), *self.rights)

    def work(self, delivery: Delivery) -> UnitOfWork | None:
        """The transaction that a delivery is part of; a fault if there is none with its id."""
        state = transactional_state(delivery)
        return None if state is None else self.transaction(state.transaction_id)

    def transaction(self, transaction_id: bytes) -> UnitOfWork:
        work = self.connection.transactions.get(transaction_id)
        if work is None:
            raise ServiceBusFault(404, "amqp:transaction:unknown-id", "The transaction is not there, or it has ended.")
        return work


class IncomingLink(Link):
    """A link on which the peer sends. Credit is kept up; a delivery that is too large ends the link."""

    CREDIT: Final = 1000

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, *rights: Right, max_message_size: int) -> None:
        super().__init__(connection, link, address, *rights)
        self._max_message_size = max_message_size
        # Deliveries whose message-format is not zero, until they are complete.
        self._format = 0
        # What has come of the delivery under way.
        self._parts: list[bytes] = []
        self._size = 0

    def open(self) -> None:
        self.link.max_message_size = self._max_message_size
        super().open()
        self.link.flow(self.CREDIT)

    def replenish(self, outstanding: int = 0) -> None:
        """Give credit back for what was taken, but not for what still waits."""
        lacking = self.CREDIT - self.link.credit - outstanding
        if lacking > self.CREDIT // 2:
            self.link.flow(lacking)

    def delivery(self, delivery: Delivery, message_format: int) -> None:
        if message_format:
            self._format = message_format
        if delivery.aborted:
            self._format, self._parts, self._size = 0, [], 0
            delivery.settle()
            return
        if (pending := delivery.pending) and delivery.readable:
            # Taken as it comes: proton would have to make room for the whole of it, again and again.
            self._parts.append(self.link.recv(pending) or b"")
            self._size += pending
        if self._size > self._max_message_size:
            fault = too_large(self._size, self._max_message_size)
            if not delivery.settled:
                # As the outcome too: the JavaScript SDK waits for one, whatever becomes of its link.
                self.reject(delivery, fault)
            self.detach(fault)
            return
        if delivery.partial:
            return
        if not delivery.readable:
            # The peer has settled or changed its mind on something that was answered.
            if delivery.settled:
                delivery.settle()
            return
        self.link.advance()
        raw, message_format = b"".join(self._parts), self._format
        self._format, self._parts, self._size = 0, [], 0
        self.message(delivery, raw, message_format)

    def message(self, delivery: Delivery, raw: bytes, message_format: int) -> None:
        raise NotImplementedError

    def accept(self, delivery: Delivery) -> None:
        """Taken: in its transaction, if it is part of one."""
        state = transactional_state(delivery)
        if state is not None:
            put_state(delivery, TRANSACTIONAL_STATE, [state.transaction_id, Described(ulong(Delivery.ACCEPTED), [])])
        else:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()

    def reject(self, delivery: Delivery, fault: ServiceBusFault) -> None:
        if delivery.settled:
            # The peer does not listen to outcomes of what it settled itself, and must still learn of it.
            delivery.settle()
            self.detach(fault)
            return
        delivery.local.condition = condition_of(fault)
        delivery.update(Delivery.REJECTED)
        delivery.settle()


def too_large(size: int, limit: int) -> ServiceBusFault:
    fault: ServiceBusFault = message_size_exceeded(
        f"The received message (size: at least {size} bytes) exceeds the limit ({limit} bytes) currently allowed on the link."
    )
    return fault


def echo(link: ProtonLink) -> None:
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode


def refuse(link: ProtonLink, fault: ServiceBusFault) -> None:
    """Answer an attach that cannot be: attached to nothing, and detached with the reason (AMQP 1.0 part 2.6.3)."""
    # Left as they are, proton would send termini with all fields empty, which clients take for a link that is open.
    link.source.type = link.target.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = condition_of(fault)
    link.close()
