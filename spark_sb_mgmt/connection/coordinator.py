"""Transactions over a control link (AMQP 1.0 part 4; wire-facts.md, section 3.7).

The one rule: a transaction exists on the connection that it was declared on, and no longer than this link; where the link goes, the service
rolls back. So nothing here is ever repeated.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from proton import Delivery, Terminus
from proton import Link as ProtonLink

from spark_sb_mgmt.amqp.message import AmqpValue, Message, encode_message
from spark_sb_mgmt.amqp.types import Described, ULong, Value
from spark_sb_mgmt.connection.engine import Engine
from spark_sb_mgmt.connection.request_links import refusal, unsent
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import RemoteProtocolError, SbMgmtError

_DECLARE: Final = 0x31
_DISCHARGE: Final = 0x32
_DECLARED: Final = 0x33


class Coordinator:
    """The control link of one transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.error: SbMgmtError | None = None
        self.session = engine.session()
        self._link = self.session.sender(f"sbmgmt-{uuid4()}-coordinator")
        self._link.target.type = Terminus.COORDINATOR
        self._attached = False
        self._sent = 0
        self._outcome: Delivery | None = None

    @property
    def is_usable(self) -> bool:
        return self.error is None and self.engine.error is None

    def attach(self, deadline: Deadline) -> None:
        self.engine.handle(self._link, self)
        self._link.open()
        try:
            self.engine.wait_until(lambda: self.error is not None or (self._attached and self._link.credit > 0), deadline)
            if self.error is not None:
                raise self.error
        except SbMgmtError as problem:
            self.close()
            raise unsent(problem) from None

    def declare(self, deadline: Deadline) -> bytes:
        """A new transaction; its id."""
        try:
            delivery = self._ask(Described(ULong(_DECLARE), ()), deadline)
        except SbMgmtError as problem:
            # Declared or not, nothing is in it.
            raise unsent(problem) from None
        if delivery.remote_state != _DECLARED:
            raise RemoteProtocolError(
                f"declare was answered with state {int(delivery.remote_state)}, not declared", may_have_taken_effect=False
            )
        data: list[Any] = delivery.remote.data or []
        if not data or not isinstance(data[0], (bytes, bytearray, memoryview)):
            raise RemoteProtocolError("the transaction that was declared has no id", may_have_taken_effect=False)
        transaction_id = bytes(data[0])
        delivery.settle()
        return transaction_id

    def discharge(self, transaction_id: bytes, fail: bool, deadline: Deadline) -> None:
        """End it: with `fail` nothing of it is done, without it all of it. Raises why the service would not."""
        delivery = self._ask(Described(ULong(_DISCHARGE), (transaction_id, fail)), deadline)
        if delivery.remote_state != Delivery.ACCEPTED:
            raise RemoteProtocolError(f"discharge was answered with state {int(delivery.remote_state)}, not accepted")
        delivery.settle()

    def close(self) -> None:
        self.engine.forget(self._link)
        if self.engine.error is None:
            self._link.close()
            self.session.close()
            self.engine.flush()

    def _ask(self, what: Value, deadline: Deadline) -> Delivery:
        if self.error is not None:
            raise self.error
        self._sent += 1
        self._outcome = None
        delivery = self._link.delivery(str(self._sent))
        self._link.send(encode_message(Message(body=AmqpValue(what))))
        self._link.advance()
        try:
            self.engine.wait_until(lambda: self._outcome is not None or self.error is not None, deadline)
        except SbMgmtError as problem:
            problem.may_have_taken_effect = True
            raise
        if self.error is not None:
            raise self.error
        if delivery.remote_state in (Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED):
            error = refusal(delivery, "the transaction coordinator")
            delivery.settle()
            raise error
        return delivery

    # --- what the peer did (LinkHandler) --------------------------------------------------------------------------------

    def remote_open(self, link: ProtonLink) -> None:
        self._attached = link.remote_target.type == Terminus.COORDINATOR

    def remote_close(self, link: ProtonLink, error: SbMgmtError) -> None:
        self.lost(error)

    def lost(self, error: SbMgmtError) -> None:
        self.error = self.error or error

    def delivery(self, link: ProtonLink, delivery: Delivery) -> None:
        if delivery.updated:
            self._outcome = delivery
