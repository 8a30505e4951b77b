"""Requests to one entity: sent, answered, repeated where that is right, each with its one outcome.

The one rule: every call ends, in a result or in an error that says what is known. What to do after a failure is decided by `retry`; here
it is done. A request that changes something and may have been carried out is not sent again.

A call is ready (to be sent as soon as there are links and credit), in flight, waiting (for its next attempt), or done. Links that are
lost take the attempts in flight with them and are opened again for the next.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import uuid4

from spark_sb_mgmt.connection.coordinator import Coordinator
from spark_sb_mgmt.connection.namespace import NamespaceConnection
from spark_sb_mgmt.connection.request_links import Exchange, RequestLinks, own_copy
from spark_sb_mgmt.connection.retry import final_error, wait_before_retry
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import AuthenticationError, ClosedError, ConnectionLostError, SbMgmtError, TransactionError
from spark_sb_mgmt.operations.envelope import Request, encode_request

T = TypeVar("T")
# What came of a request: what it answers with, or why not.
Outcome: TypeAlias = "T | SbMgmtError"


class Call(Generic[T]):
    """One request with all its attempts. `tag` is the caller's own."""

    __slots__ = ("abandoned", "attempts", "due", "finished", "request", "started", "tag", "tracking_id", "transaction")

    def __init__(
        self,
        request: Request[T],
        tag: Any,
        started: float,
        transaction: TransactionHandle | None,
        finished: Callable[[Call[T], Any], None],
    ) -> None:
        self.request = request
        self.tag = tag
        self.started = started
        self.transaction = transaction
        # By which the service's own people find it, with all its attempts.
        self.tracking_id = str(uuid4())
        # Called once, with the outcome.
        self.finished = finished
        self.attempts = 0
        # When the next attempt is to be made.
        self.due = 0.0
        self.abandoned = False


class TransactionHandle:
    """A declared transaction: its id, and the coordinator on whose engine alone it exists."""

    def __init__(self, coordinator: Coordinator, transaction_id: bytes) -> None:
        self.coordinator = coordinator
        self.transaction_id = transaction_id

    @property
    def is_alive(self) -> bool:
        return self.coordinator.is_usable


class Channel:
    """The calls to one entity. Not for several threads at once; its connection sees to it that they take turns."""

    def __init__(self, connection: NamespaceConnection, entity: str) -> None:
        self.connection = connection
        self.entity = entity
        self.is_closed = False
        self._process = os.getpid()
        self._links: RequestLinks | None = None
        self._ready: deque[Call[Any]] = deque()
        self._waiting: list[Call[Any]] = []
        self._arrived: deque[tuple[Call[Any], Exchange]] = deque()
        # By when the peer must give credit for what is ready; None while it does, and while nobody of ours could send.
        self._credit_deadline: Deadline | None = None

    # --- for callers ----------------------------------------------------------------------------------------------------

    def call(self, request: Request[T], transaction: TransactionHandle | None = None) -> T:
        """One request, to its end."""
        window: Window[T] = Window(self, 1, transaction)
        try:
            window.submit(request, None)
            _, outcome = window.next()
        finally:
            # Interrupted, nobody waits for it any more: it must not be sent by whoever drives next.
            window.abandon()
        if isinstance(outcome, SbMgmtError):
            raise outcome
        return outcome

    def links(self) -> RequestLinks:
        """Links that are open, with the retries that any request has."""
        retry, attempts, started = self.connection.settings.retry, 0, self.connection.timing.clock()
        while True:
            with self.connection.driving():
                self._check_open()
                if self.connection.engine is not None:
                    self.connection.engine.step(0.0)
                try:
                    return self._open_links()
                except SbMgmtError as problem:
                    attempts += 1
                    elapsed = self.connection.timing.clock() - started
                    wait = wait_before_retry(retry, problem, attempts, True, elapsed, self.connection.timing.random())
                    if wait is None:
                        raise
                    self.connection.pause(wait)

    def close(self) -> None:
        """Detach the links; the connection stays. A request that another thread waits for is still answered."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.when_idle(self._detach)

    def _detach(self) -> None:
        links, self._links = self._links, None
        if links is not None and links.is_usable:
            links.close()

    # --- for windows ----------------------------------------------------------------------------------------------------

    def submit(
        self, request: Request[T], tag: Any, transaction: TransactionHandle | None, finished: Callable[[Call[T], Any], None]
    ) -> Call[T]:
        # Another thread may be driving: it sends this too.
        call = Call(request, tag, self.connection.timing.clock(), transaction, finished)
        self._ready.append(call)
        return call

    def run(self, enough: Callable[[], bool]) -> None:
        """Drive the connection until it is enough. What can be sent meanwhile is sent."""
        with self.connection.driving():
            self._check_open()
            self._leave_to_parent()
            # Others may have had their turns first.
            self._credit_deadline = None
            try:
                if self.connection.engine is not None:
                    # What came while nobody listened: a request must not be sent on links that are known to have ended.
                    self.connection.engine.step(0.0)
                    # Here too: who always finds an answer that has come already never waits for one.
                    self.connection.renew_tokens()
                self._collect()
                self._send_without_waiting()
                while not enough():
                    self._advance()
                    self._collect()
                self._send_without_waiting()
            except ClosedError as problem:
                self._finish_all(problem)

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("the entity was closed", entity=self.entity)

    def _leave_to_parent(self) -> None:
        """In a forked process: what changes something and is still to be sent is sent by the parent, whose copy of the call this is."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        calls = [*self._ready, *self._waiting]
        self._ready, self._waiting = deque(call for call in calls if call.request.safe), []
        for call in calls:
            if not call.request.safe:
                stays = ConnectionLostError("the process was forked, and the request stayed with the parent", may_have_taken_effect=True)
                self._attempt_failed(call, stays)

    # --- the life of a call ---------------------------------------------------------------------------------------------

    def _deadline(self) -> Deadline:
        return self.connection.deadline("request", self.connection.settings.request_timeout_s)

    def _advance(self) -> None:
        """Send what is due, and wait for something to happen: an answer, the end of a wait, the end of a deadline."""
        now = self.connection.clock()
        due = [call for call in self._waiting if call.due <= now]
        if due:
            self._waiting = [call for call in self._waiting if call.due > now]
            self._ready.extend(due)
        if self._ready and not self._has_links():
            try:
                self._open_links()
            except SbMgmtError as problem:
                self._attempts_failed(problem)
                return
        self._send_without_waiting()
        self._drive()

    def _attempts_failed(self, error: SbMgmtError) -> None:
        """Of all that is ready. One by one: another thread may be submitting."""
        while self._ready:
            self._attempt_failed(self._ready.popleft(), own_copy(error))

    def _has_links(self) -> bool:
        return self._links is not None and self._links.is_usable

    def _open_links(self) -> RequestLinks:
        if self._links is None or not self._links.is_usable:
            if self._links is not None and isinstance(self._links.error, AuthenticationError):
                self.connection.forget_token(self.entity)
            self._links = None
            self._links = self.connection.links(self.entity)
        return self._links

    def _send_without_waiting(self) -> None:
        links = self._links
        if links is None:
            return
        while self._ready and links.is_usable and links.can_send:
            self._credit_deadline = None
            call = self._ready.popleft()
            if not call.abandoned:
                self._send(call, links)

    def _send(self, call: Call[Any], links: RequestLinks) -> None:
        handle = call.transaction
        if handle is not None and (not handle.is_alive or handle.coordinator.engine is not links.engine):
            call.finished(call, _transaction_lost(call, self.entity))
            return
        timeout = self.connection.settings.server_timeout_ms
        try:
            links.send(
                lambda message_id, reply_to: encode_request(call.request, message_id, reply_to, timeout, tracking_id=call.tracking_id),
                self._deadline(),
                lambda exchange: self._arrived.append((call, exchange)),
                None if handle is None else handle.transaction_id,
            )
        except SbMgmtError as problem:
            call.finished(call, problem.about(call.request.name, self.entity))

    def _drive(self) -> None:
        if self._arrived:
            return
        connection, links = self.connection, self._links
        renewal = connection.renew_tokens()
        waits = [] if renewal is None else [renewal]
        if links is not None and links.next_deadline is not None:
            waits.append(links.next_deadline.remaining)
        if self._ready:
            self._credit_deadline = self._credit_deadline or self._deadline()
            waits.append(self._credit_deadline.remaining)
        if self._waiting:
            waits.append(max(0.0, min(call.due for call in self._waiting) - connection.clock()))
        wait = min(waits, default=0.0)
        engine = connection.engine
        if engine is not None:
            engine.step(wait)
        elif self._waiting and not self._ready:
            connection.pause(wait)
        connection.check_open()
        if links is not None:
            links.expire()
        late = self._credit_deadline
        if late is not None and late.passed and not (links is not None and links.is_usable and links.can_send):
            self._credit_deadline = None
            self._attempts_failed(late.error())
            if links is not None:
                links.no_credit()

    def _collect(self) -> None:
        while self._arrived:
            call, exchange = self._arrived.popleft()
            if call.abandoned:
                continue
            if exchange.error is not None:
                self._attempt_failed(call, exchange.error.about(tracking_id=call.tracking_id))
            elif exchange.response is not None:
                try:
                    outcome = call.request.read(exchange.response, self.entity)
                except SbMgmtError as problem:
                    self._attempt_failed(call, problem.about(tracking_id=call.tracking_id))
                else:
                    call.finished(call, outcome)

    def _attempt_failed(self, call: Call[Any], error: SbMgmtError) -> None:
        if call.abandoned:
            return
        error.about(call.request.name, self.entity)
        call.attempts += 1
        if call.transaction is not None and not call.transaction.is_alive:
            lost = _transaction_lost(call, self.entity)
            lost.__cause__ = error
            call.finished(call, lost)
            return
        connection, safe = self.connection, call.request.safe
        elapsed = connection.timing.clock() - call.started
        wait = wait_before_retry(connection.settings.retry, error, call.attempts, safe, elapsed, connection.timing.random())
        if wait is None:
            call.finished(call, final_error(error, safe, call.request.summary))
            return
        call.due = connection.clock() + wait
        self._waiting.append(call)

    def _finish_all(self, error: SbMgmtError) -> None:
        """The client was closed under us: what is in flight is cut off, what is not was never sent."""
        engine = self.connection.engine
        if engine is not None:
            engine.fail(ConnectionLostError("the client was closed", may_have_taken_effect=True))
        self._collect()
        open_calls = [*self._ready, *self._waiting]
        self._ready.clear()
        self._waiting.clear()
        for call in open_calls:
            call.finished(call, own_copy(error).about(call.request.name, self.entity))


class Window(Generic[T]):
    """At most `depth` calls that are not taken yet: in flight, or done and waiting to be taken by `next`."""

    def __init__(self, channel: Channel, depth: int, transaction: TransactionHandle | None = None) -> None:
        self._channel = channel
        self._depth = depth
        self._transaction = transaction
        self._open: set[Call[T]] = set()
        self._finished: deque[tuple[Call[T], Outcome[T]]] = deque()

    @property
    def has_room(self) -> bool:
        return len(self._open) < self._depth

    def __len__(self) -> int:
        return len(self._open)

    def submit(self, request: Request[T], tag: Any) -> None:
        self._open.add(self._channel.submit(request, tag, self._transaction, self._take))

    def _take(self, call: Call[T], outcome: Outcome[T]) -> None:
        self._finished.append((call, outcome))

    def next(self) -> tuple[Any, Outcome[T]]:
        """Tag and outcome of the next call that is done."""
        self._channel.run(lambda: bool(self._finished))
        call, outcome = self._finished.popleft()
        self._open.remove(call)
        return call.tag, outcome

    def abandon(self) -> None:
        """Nobody waits for these any more. Only marks them: this may run at any moment, when a generator is thrown away."""
        for call in self._open:
            call.abandoned = True


def _transaction_lost(call: Call[Any], entity: str) -> TransactionError:
    return TransactionError(
        "the connection was lost, and with it the transaction: the service rolls it back. Start over with a new one",
        operation=call.request.name,
        entity=entity,
    )
