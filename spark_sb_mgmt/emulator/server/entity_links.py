"""Links of entities: a sender's, whose messages are stored, and a receiver's, which gets them and settles.

The one rule: a message is acknowledged by the outcome that is sent after the turn's commit; what cannot be done is told as the outcome
`rejected` with the service's condition, and harms nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from proton import Data, Delivery, Described, symbol, ulong
from proton import Link as ProtonLink

from spark_sb_mgmt.amqp.decode import decode_single
from spark_sb_mgmt.amqp.message import BATCH_MESSAGE_FORMAT, decode_batch
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.emulator.entities import (
    ABANDONED,
    COMPLETED,
    RELEASED,
    AnyEntity,
    Disposition,
    DispositionStatus,
    IncomingMessage,
    Queue,
    ServiceBusFault,
    SessionLock,
    StoredMessage,
    UnitOfWork,
    read_messages,
)
from spark_sb_mgmt.emulator.entities.disposition import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON
from spark_sb_mgmt.emulator.entities.faults import argument_error, decode_error
from spark_sb_mgmt.emulator.server.link import (
    TRANSACTIONAL_STATE,
    IncomingLink,
    Link,
    condition_of,
    echo,
    put_delivery,
    put_state,
    transactional_state,
)
from spark_sb_mgmt.emulator.server.loop import Callback
from spark_sb_mgmt.errors import DecodeError
from spark_sb_mgmt.operations import names

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

# Attach properties (wire-facts.md section 3.4).
LOCKED_UNTIL_UTC: Final = "com.microsoft:locked-until-utc"
MAX_MESSAGE_BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
# .NET's ticks: 100 ns each, since the year 1.
_EPOCH_TICKS: Final = 621_355_968_000_000_000
_TICKS_PER_MILLISECOND: Final = 10_000
# Taken from the queue at a time, so that no receiver with much credit holds up the others, nor is given much more than it reads.
_DELIVERIES: Final = 100
_DELIVERY_BYTES: Final = 1024 * 1024


class SenderLink(IncomingLink):
    """A client sends to a queue or a topic."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, entity: AnyEntity) -> None:
        super().__init__(connection, link, address, "Send", max_message_size=entity.settings.max_message_size)
        self._entity = entity

    def open(self) -> None:
        self.link.properties = {symbol(MAX_MESSAGE_BATCH_SIZE): ulong(self._max_message_size)}
        super().open()

    def message(self, delivery: Delivery, raw: bytes, message_format: int) -> None:
        self.replenish()
        plan = self.broker.faults.plan("send", self._entity.path)
        self.broker.perform(self, plan, lambda: self._send(delivery, raw, message_format), lambda fault: self.reject(delivery, fault))

    def _send(self, delivery: Delivery, raw: bytes, message_format: int) -> Callback:
        try:
            messages = read_transfer(raw, message_format)
            work = self.work(delivery)
            if work is None:
                self._entity.send(messages)
            else:
                work.send(self._entity, messages)
        except ServiceBusFault as fault:
            failure = fault
            return lambda: self.reject(delivery, failure)
        return lambda: self.accept(delivery)


def read_transfer(raw: bytes, message_format: int) -> list[IncomingMessage]:
    if message_format == 0:
        return read_messages((raw,))
    if message_format != BATCH_MESSAGE_FORMAT:
        raise decode_error(f"The message format {message_format:#x} is not known.")
    try:
        return read_messages(decode_batch(raw))
    except DecodeError as error:
        raise decode_error(f"The batch is not valid AMQP: {error}.") from error


class ReceiverLink(Link):
    """A client receives from a queue, a subscription or a sub-queue. The link holds the locks of what it delivers."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, queue: Queue) -> None:
        super().__init__(connection, link, address, "Listen")
        self.queue = queue
        # Set before it is opened, where the queue has sessions.
        self.session: SessionLock | None = None
        self._delete = link.remote_snd_settle_mode == ProtonLink.SND_SETTLED
        self._tag = 0

    def open(self) -> None:
        self.link.max_message_size = self.queue.settings.max_message_size
        echo(self.link)
        if self.session is not None:
            locked_until = _EPOCH_TICKS + self.session.locked_until * _TICKS_PER_MILLISECOND
            self.link.properties = {symbol(LOCKED_UNTIL_UTC): locked_until}
            self.link.source.filter.clear()
            self.link.source.filter.put_dict({symbol(names.SESSION_FILTER): self.session.session_id})
        self.link.open()
        self.broker.receivers.setdefault(self.queue.path, {})[self] = None
        self.pump()

    # Delivering

    def pump(self) -> None:
        if self.is_gone:
            return
        try:
            while self.link.credit > 0 and not self.connection.is_congested(self):
                messages = self.queue.receive(
                    self,
                    min(self.link.credit, _DELIVERIES),
                    max_bytes=_DELIVERY_BYTES,
                    delete=self._delete,
                    session_id=None if self.session is None else self.session.session_id,
                )
                if not messages:
                    break
                for message in messages:
                    self._deliver(message)
                self.broker.touch(self.connection)
        except ServiceBusFault as fault:
            self.detach(fault)
            return
        if self.link.drain_mode and not self.connection.is_congested(self):
            self.link.drained()
            self.broker.touch(self.connection)

    def _deliver(self, message: StoredMessage) -> None:
        token = message.lock_token
        if token is None:
            self._tag += 1
            tag = self._tag.to_bytes(8, "big")
        else:
            # .NET's byte order (wire-facts.md section 3.5).
            tag = token.bytes_le
        delivery = put_delivery(self.link, tag, message.delivered())
        if self._delete:
            delivery.settle()
        else:
            delivery.lock_token = token
            delivery.answered = False

    # Settling

    def delivery(self, delivery: Delivery, message_format: int) -> None:
        if not delivery.updated or self._delete:
            return
        state = delivery.remote_state
        if not state or state == Delivery.RECEIVED:
            if delivery.settled:
                # Forgotten by the client without an outcome: the lock runs out.
                delivery.settle()
            return
        plan = self.broker.faults.plan("settle", self.queue.path)
        self.broker.perform(self, plan, lambda: self._settle(delivery), lambda fault: self._answer(delivery, None, fault))

    def _settle(self, delivery: Delivery) -> Callback:
        token: UUID = delivery.lock_token
        transaction = transactional_state(delivery)
        try:
            if transaction is None:
                self.queue.settle((token,), disposition_of(delivery))
            else:
                work: UnitOfWork = self.transaction(transaction.transaction_id)
                work.settle(self.queue, (token,), disposition_of_fields(transaction.outcome, transaction.fields))
        except ServiceBusFault as fault:
            failure = fault
            return lambda: self._answer(delivery, None, failure)
        transaction_id = None if transaction is None else transaction.transaction_id
        return lambda: self._answer(delivery, transaction_id, None)

    def _answer(self, delivery: Delivery, transaction_id: bytes | None, fault: ServiceBusFault | None) -> None:
        """The second phase: the client waits for its outcome to come back settled."""
        if self.is_gone or delivery.answered:
            # A client may settle again what is not answered yet.
            return
        delivery.answered = True
        if fault is not None:
            delivery.local.condition = condition_of(fault)
            delivery.update(Delivery.REJECTED)
            delivery.settle()
        elif transaction_id is not None:
            put_state(delivery, TRANSACTIONAL_STATE, [transaction_id, Described(ulong(Delivery.ACCEPTED), [])])
        else:
            delivery.update(delivery.remote_state)
            delivery.settle()
        self.broker.touch(self.connection)

    # Going

    def gone(self, *, by_peer: bool) -> None:
        if self.is_gone:
            return
        super().gone(by_peer=by_peer)
        self.broker.receivers.get(self.queue.path, {}).pop(self, None)
        # Required of us: locks are released when a link or connection goes, so that nobody waits for a receiver that is no more. What the
        # service's clients expect holds too: they can still settle what nobody has taken since (see FormerLocks). One that was sent
        # away, or only detached, keeps its locks until they expire.
        self.queue.release_holder(self, messages=by_peer)


def disposition_of(delivery: Delivery) -> Disposition:
    """What a client means by an outcome (wire-facts.md section 3.6)."""
    state, remote = delivery.remote_state, delivery.remote
    if state == Delivery.ACCEPTED:
        return COMPLETED
    if state == Delivery.RELEASED:
        return RELEASED
    if state == Delivery.MODIFIED:
        return _modified(remote.undeliverable, remote.annotations)
    if state == Delivery.REJECTED:
        condition: Any = remote.condition
        return _rejected({} if condition is None else condition.info or {})
    raise argument_error(f"The delivery state {int(state):#x} is no outcome that settles a message.")


def disposition_of_fields(outcome: int | None, fields: tuple[Any, ...]) -> Disposition:
    """The same for the outcome inside a transactional state, which proton leaves as it came."""
    if outcome in (None, Delivery.ACCEPTED):
        return COMPLETED
    if outcome == Delivery.RELEASED:
        return RELEASED
    padded = (*fields, None, None, None)
    if outcome == Delivery.MODIFIED:
        return _modified(bool(padded[1]), padded[2])
    if outcome == Delivery.REJECTED:
        error: Any = padded[0].value if isinstance(padded[0], Described) else padded[0]
        info = error[2] if isinstance(error, (list, tuple)) and len(error) > 2 else None
        return _rejected(info or {})
    raise argument_error(f"{outcome:#x} is no outcome that settles a message in a transaction.")


def _modified(undeliverable: bool, annotations: Mapping[Any, Any] | None) -> Disposition:
    # delivery-failed says nothing: Python's SDK sets it and the others do not, and for all of them it is an abandoned message that counts.
    status = DispositionStatus.DEFERED if undeliverable else ABANDONED.status
    return Disposition(status, properties_to_modify=_wire_map(annotations or {}))


def _rejected(info: Mapping[Any, Any]) -> Disposition:
    texts = {str(key): value for key, value in info.items()}
    reason, description = texts.pop(DEAD_LETTER_REASON, None), texts.pop(DEAD_LETTER_ERROR_DESCRIPTION, None)
    return Disposition(
        DispositionStatus.SUSPENDED,
        None if reason is None else str(reason),
        None if description is None else str(description),
        _wire_map(texts),
    )


def _wire_map(values: Mapping[Any, Any]) -> Map:
    """proton's values as ours, each of its AMQP type; keys are strings, as those of application properties."""
    if not values:
        return Map()
    data = Data()
    data.put_object({str(key): value for key, value in values.items()})
    decoded = decode_single(bytes(data.encode()))
    assert isinstance(decoded, Map)
    return decoded
