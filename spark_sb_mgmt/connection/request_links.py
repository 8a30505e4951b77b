"""The two links to a node that answers requests: `<entity>/$management`, or `$cbs` (wire-facts.md, sections 1.0 and 3.3).

The one rule: an answer belongs to the request whose message-id it repeats, in whatever order answers come. The pair has a session of its
own and a reply address that nobody else has. An answer to a request that was given up is dropped; one to a request that never was means
that the peer cannot be believed, and ends the pair.

Requests are sent unsettled: one that the peer refuses outright is then known to have had no effect.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import uuid4

from proton import Delivery
from proton import Link as ProtonLink

from spark_sb_mgmt.connection.engine import Engine
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import (
    AuthenticationError,
    ConnectionLostError,
    DecodeError,
    RemoteProtocolError,
    RequestTooLargeError,
    SbMgmtError,
    error_from_condition,
)
from spark_sb_mgmt.operations.envelope import Response, read_response

# How many answers the peer may have on the way. What they hold is bounded by how many requests are; this only must not be in their way.
_CREDIT: Final = 512
# More than any answer of the service. A peer that sends this much for one is not going to end.
_LARGEST_ANSWER: Final = 512 * 1024 * 1024
# One request may be slow; after so many the next is sent on new links.
_MOST_UNANSWERED: Final = 2
TRANSACTIONAL_STATE: Final = 0x34

_Error = TypeVar("_Error", bound=SbMgmtError)


class Exchange:
    """One request that was sent, and what came of it. `done` is called once, when there is an answer or an error."""

    __slots__ = ("deadline", "done", "error", "response")

    def __init__(self, deadline: Deadline, done: Callable[[Exchange], None]) -> None:
        self.deadline = deadline
        self.done = done
        self.response: Response | None = None
        self.error: SbMgmtError | None = None

    def finish(self, response: Response | None, error: SbMgmtError | None) -> None:
        self.response, self.error = response, error
        self.done(self)


class RequestLinks:
    """A pair of links on an engine. `attach` it before use; once `error` is set it is of no more use."""

    def __init__(self, engine: Engine, node: str) -> None:
        self.engine = engine
        self.error: SbMgmtError | None = None
        self.reply_to = f"sbmgmt-{uuid4()}"
        self.session = engine.session()
        self._node = node
        self._sender = self.session.sender(f"{self.reply_to}-requests")
        self._sender.target.address = node
        self._receiver = self.session.receiver(f"{self.reply_to}-answers")
        self._receiver.source.address = node
        self._receiver.target.address = self.reply_to
        # By message-id, oldest first: all have deadlines of one length, so that the first is the first to pass.
        self._in_flight: dict[str, Exchange] = {}
        self._unsettled: dict[Delivery, str] = {}
        self._sent = 0
        # How many requests in a row were given up without any answer in between.
        self._unanswered = 0
        # What has come of an answer that is not complete.
        self._parts: list[bytes | bytearray] = []
        self._parts_size = 0
        self._attached: set[str] = set()

    def attach(self, deadline: Deadline) -> None:
        """Open both links and wait for the peer to open them too. Raises why it would not."""
        for link in (self._sender, self._receiver):
            self.engine.handle(link, self)
            link.open()
        self._receiver.flow(_CREDIT)
        try:
            self.engine.wait_until(lambda: self.error is not None or len(self._attached) == 2, deadline)
            if self.error is not None:
                raise self.error
        except SbMgmtError as problem:
            self.close()
            raise unsent(problem) from None

    @property
    def is_usable(self) -> bool:
        return self.error is None and self.engine.error is None

    @property
    def max_message_size(self) -> int | None:
        """What the peer takes at most, None if it did not say."""
        return int(self._sender.remote_max_message_size) or None

    @property
    def can_send(self) -> bool:
        return self._sender.credit > 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def next_deadline(self) -> Deadline | None:
        return next(iter(self._in_flight.values())).deadline if self._in_flight else None

    def send(
        self,
        encode: Callable[[str, str], bytes],
        deadline: Deadline,
        done: Callable[[Exchange], None],
        transaction_id: bytes | None = None,
    ) -> Exchange:
        """Send what `encode` makes of a message-id and the reply address. Raises RequestTooLargeError, with nothing sent."""
        self._sent += 1
        message_id = f"{self.reply_to}:{self._sent}"
        message = encode(message_id, self.reply_to)
        limit = self.max_message_size
        if limit is not None and len(message) > limit:
            raise RequestTooLargeError(len(message), limit)
        exchange = Exchange(deadline, done)
        delivery = self._sender.delivery(str(self._sent))
        if transaction_id is not None:
            delivery.local.data = [transaction_id]  # type: ignore[list-item]
            delivery.update(TRANSACTIONAL_STATE)
        self._sender.send(message)
        self._sender.advance()
        self._in_flight[message_id] = exchange
        self._unsettled[delivery] = message_id
        return exchange

    def expire(self) -> None:
        """Give up the requests whose time is over; answers that still come are dropped."""
        while self._in_flight:
            message_id, exchange = next(iter(self._in_flight.items()))
            if not exchange.deadline.passed:
                return
            del self._in_flight[message_id]
            error = exchange.deadline.error()
            error.may_have_taken_effect = True
            exchange.finish(None, error)
            self._unanswered += 1
            if self._unanswered == _MOST_UNANSWERED:
                self._give_up(f"left {_MOST_UNANSWERED} requests in a row unanswered")

    def no_credit(self) -> None:
        """A request could not be sent in time. With none in flight there is no answer that could bring credit."""
        if not self._in_flight:
            self._give_up("gave no credit")

    def _give_up(self, why: str) -> None:
        if self.is_usable:
            self.lost(ConnectionLostError(f"{self._node} {why}"))
            self.engine.left_unanswered()

    def close(self) -> None:
        """Detach, without waiting for the peer to do so too."""
        self.engine.forget(self._sender, self._receiver)
        if self.engine.error is None:
            self._sender.close()
            self._receiver.close()
            self.session.close()
        self._in_flight.clear()
        self._unsettled.clear()

    # --- what the peer did (LinkHandler) --------------------------------------------------------------------------------

    def remote_open(self, link: ProtonLink) -> None:
        # A peer that refuses attaches to nothing and detaches with the reason (AMQP 1.0 part 2.6.3); that comes next.
        if (link.remote_target if link.is_sender else link.remote_source).address is not None:
            self._attached.add(link.name)

    def remote_close(self, link: ProtonLink, error: SbMgmtError) -> None:
        self.lost(error)

    def lost(self, error: SbMgmtError) -> None:
        if self.error is not None:
            return
        self.error = error
        in_flight, self._in_flight = self._in_flight, {}
        self._unsettled.clear()
        for exchange in in_flight.values():
            exchange.finish(None, interrupted(error))
        if self.engine.error is None:
            self.close()

    def delivery(self, link: ProtonLink, delivery: Delivery) -> None:
        if link.is_sender:
            self._outcome(delivery)
            return
        aborted = delivery.aborted
        if not aborted and (pending := delivery.pending):
            # Taken as it comes: proton would have to make room for the whole of it, again and again.
            self._parts.append(self._receiver.recv(pending) or b"")
            self._parts_size += pending
            if self._parts_size > _LARGEST_ANSWER:
                self.lost(RemoteProtocolError(f"an answer of {self._node} has more than {_LARGEST_ANSWER} bytes"))
                return
        if delivery.partial and not aborted:
            return
        parts, self._parts, self._parts_size = self._parts, [], 0
        self._receiver.advance()
        if not delivery.settled:
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        if self._receiver.credit < _CREDIT // 2:
            self._receiver.flow(_CREDIT - self._receiver.credit)
        if not aborted:
            self._answer(b"".join(parts))

    def _answer(self, raw: bytes) -> None:
        self._unanswered = 0
        self.engine.answered()
        try:
            response = read_response(raw)
        except DecodeError as problem:
            exchange = self._claim(problem.correlation_id)
            if exchange is not None:
                exchange.finish(None, problem)
            return
        exchange = self._claim(response.correlation_id)
        if exchange is not None:
            exchange.finish(response, None)

    def _claim(self, correlation_id: Any) -> Exchange | None:
        exchange = self._in_flight.pop(correlation_id, None) if isinstance(correlation_id, str) else None
        if exchange is None and not self._was_sent(correlation_id):
            self.lost(
                RemoteProtocolError(
                    f"{self._node} answered a request that was never sent: its correlation-id is {str(correlation_id)[:80]!r}, so that no "
                    f"answer of this link can be relied on"
                )
            )
        return exchange

    def _was_sent(self, correlation_id: Any) -> bool:
        name, _, number = str(correlation_id).rpartition(":")
        return isinstance(correlation_id, str) and name == self.reply_to and number.isdecimal() and 0 < int(number) <= self._sent

    def _outcome(self, delivery: Delivery) -> None:
        state = delivery.remote_state
        message_id = self._unsettled.get(delivery, "")
        if state in (Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED):
            exchange = self._in_flight.pop(message_id, None)
            if exchange is not None:
                exchange.finish(None, refusal(delivery, self._node))
        if delivery.settled or state in (Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED, Delivery.ACCEPTED):
            self._unsettled.pop(delivery, None)
            delivery.settle()


def refusal(delivery: Delivery, node: str) -> SbMgmtError:
    """The error that a negative outcome stands for. The peer did not take what was sent, so it had no effect."""
    condition = delivery.remote.condition if delivery.remote_state == Delivery.REJECTED else None
    error = error_from_condition(None if condition is None else condition.name, None if condition is None else condition.description)
    said = "rejected" if delivery.remote_state == Delivery.REJECTED else "did not take"
    error.args = (f"{node} {said} the request: {error.description or 'it gave no reason'}",)
    return unsent(error)


def own_copy(error: _Error) -> _Error:
    """One failure that many share becomes each one's own, to say what it is about."""
    mine = copy.copy(error)
    mine.__cause__ = error.__cause__
    return mine


def interrupted(error: _Error) -> _Error:
    """The same error for a request that was under way when its link ended. Whatever the reason, it may have been carried out before. Where
    the reason is a right, it was there when the link was attached: a token ended, and a new one may do."""
    mine = own_copy(error)
    mine.may_have_taken_effect = True
    mine.retryable = error.retryable or isinstance(error, AuthenticationError)
    return mine


def unsent(error: _Error) -> _Error:
    """The same error for a request that certainly had no effect."""
    mine = own_copy(error)
    mine.may_have_taken_effect = False
    return mine
