"""Transactions over a control link (AMQP 1.0 part 4; wire-facts.md section 3.7).

The one rule: a transaction lives no longer than the control link that it was declared on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from proton import Delivery
from proton import Link as ProtonLink

from spark_sb_mgmt.amqp.message import AmqpValue, decode_message
from spark_sb_mgmt.amqp.types import Described, Value
from spark_sb_mgmt.emulator.entities import ServiceBusFault
from spark_sb_mgmt.emulator.entities.faults import decode_error
from spark_sb_mgmt.emulator.server.link import DECLARED, IncomingLink, put_state
from spark_sb_mgmt.errors import DecodeError

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

_DECLARE = (0x31, "amqp:declare:list")
_DISCHARGE = (0x32, "amqp:discharge:list")
_MAX_REQUEST = 4096


class CoordinatorLink(IncomingLink):
    def __init__(self, connection: AmqpConnection, link: ProtonLink) -> None:
        super().__init__(connection, link, "", max_message_size=_MAX_REQUEST)
        self._declared: set[bytes] = set()

    def message(self, delivery: Delivery, raw: bytes, message_format: int) -> None:
        try:
            request = _read(raw)
            if request.descriptor in _DECLARE:
                self._declare(delivery)
            else:
                self._discharge(request.value, delivery)
        except ServiceBusFault as fault:
            self.reject(delivery, fault)
        finally:
            self.replenish()

    def _declare(self, delivery: Delivery) -> None:
        transaction_id = uuid4().bytes
        self.connection.transactions[transaction_id] = self.broker.namespace.begin()
        self._declared.add(transaction_id)
        put_state(delivery, DECLARED, [transaction_id])

    def _discharge(self, fields: Value, delivery: Delivery) -> None:
        transaction_id = fields[0] if fields and isinstance(fields[0], bytes) else b""
        work = self.transaction(transaction_id)
        del self.connection.transactions[transaction_id]
        self._declared.discard(transaction_id)
        if len(fields) > 1 and fields[1] is True:
            work.rollback()
        else:
            work.commit()
        self.accept(delivery)

    def gone(self, *, by_peer: bool) -> None:
        super().gone(by_peer=by_peer)
        for transaction_id in self._declared:
            work = self.connection.transactions.pop(transaction_id, None)
            if work is not None:
                work.rollback()


def _read(raw: bytes) -> Described:
    try:
        body = decode_message(raw).body
    except DecodeError as error:
        raise decode_error(f"The request is not valid AMQP: {error}.") from error
    request = body.value if isinstance(body, AmqpValue) else None
    if not isinstance(request, Described) or request.descriptor not in (*_DECLARE, *_DISCHARGE) or not isinstance(request.value, tuple):
        raise decode_error("A transaction coordinator takes declare and discharge.")
    return request
