"""One AMQP connection: proton's state machine, driven by hand over a byte stream (DESIGN section 2).

The one rule: nothing happens but inside `step`, `open` and `close`, and none of them takes longer than it is told. There is no thread:
whoever wants something of the connection drives it, and heartbeats are sent while somebody does. A connection that idled too long
between two drives is found dead by the next, and is opened again by those who know how.

What happens on a link is told to its handler. An engine that failed stays so: `error` says why, and every handler was told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol
from uuid import uuid4

from cproton import (  # type: ignore[import-untyped]
    isnull,
    pn_collector_peek,
    pn_collector_pop,
    pn_delivery_link,
    pn_event_delivery,
    pn_event_type,
)
from proton import Collector, Connection, Delivery, Event, ProtonException, Transport
from proton import Link as ProtonLink
from proton import Session as ProtonSession

from spark_sb_mgmt.connection.sasl import SaslClient, SaslState
from spark_sb_mgmt.connection.streams import ByteStream
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import ConnectionFailedError, ConnectionLostError, RemoteProtocolError, SbMgmtError, error_from_condition

# Large frames: an answer of a page of messages in one or two pieces.
_MAX_FRAME_SIZE: Final = 1024 * 1024
_OUTPUT_CHUNK: Final = 256 * 1024
# Steps end at least so often: heartbeats are looked after between them.
_LONGEST_STEP_S: Final = 5.0
_MOST_UNANSWERED: Final = 2
_LOCAL_IDLE_TIMEOUT: Final = "local-idle-timeout expired"
# proton keeps what it holds of a session (7 KB with two links) for as long as the connection lasts. To free one sooner is not safe: links
# that the peer has not detached are then freed twice.
_MOST_SESSIONS: Final = 1000
_DELIVERY: Final = Event.DELIVERY.number


class LinkHandler(Protocol):
    """Whoever has links on an engine."""

    def remote_open(self, link: ProtonLink) -> None: ...
    def remote_close(self, link: ProtonLink, error: SbMgmtError) -> None: ...
    def delivery(self, link: ProtonLink, delivery: Any) -> None: ...
    def lost(self, error: SbMgmtError) -> None: ...


class Engine:
    """`clock` is the one that heartbeats are counted by: the real one."""

    def __init__(self, stream: ByteStream, host: str, idle_timeout_s: float, clock: Callable[[], float]) -> None:
        self.error: SbMgmtError | None = None
        self.is_open = False
        self.mechanism: str | None = None
        self._stream = stream
        self._host = host
        self._clock = clock
        # By proton's own link, which is found without a wrapper; the one of ours beside it keeps its place from being another's.
        self._handlers: dict[Any, tuple[ProtonLink, LinkHandler]] = {}
        self._collector = Collector()
        self._transport = Transport()
        self._transport.max_frame_size = _MAX_FRAME_SIZE
        self._transport.idle_timeout = idle_timeout_s
        self._connection = Connection()
        self._connection.container = f"sbmgmt-{uuid4()}"
        self._connection.hostname = host
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        # What came behind SASL's outcome.
        self._rest = b""
        self._remote_closed = False
        self._unanswered = 0
        self._sessions = 0
        # When the engine wants to be ticked next, 0 for never.
        self._tick_due = 0.0
        self._on_event: dict[int, Callable[[Any], None]] = {
            kind.number: handle
            for kind, handle in (
                (Event.CONNECTION_REMOTE_OPEN, self._connection_opened),
                (Event.CONNECTION_REMOTE_CLOSE, self._connection_closed),
                (Event.SESSION_REMOTE_CLOSE, self._session_closed),
                (Event.LINK_REMOTE_OPEN, self._link_opened),
                (Event.LINK_REMOTE_CLOSE, self._link_closed),
                (Event.LINK_REMOTE_DETACH, self._link_closed),
                (Event.TRANSPORT_ERROR, self._transport_failed),
            )
        }

    # --- opening and closing --------------------------------------------------------------------------------------------

    def open(self, sasl: SaslClient, deadline: Deadline) -> None:
        """SASL and the AMQP open, until the peer has answered both."""
        try:
            rest = self._authenticate(sasl, deadline)
            self._connection.open()
            self._push(memoryview(rest))
            self.wait_until(lambda: self.is_open, deadline)
        except SbMgmtError as problem:
            error = _not_opened(problem)
            self.fail(error)
            raise error from problem.__cause__

    def _authenticate(self, sasl: SaslClient, deadline: Deadline) -> bytes:
        output = memoryview(b"")
        while True:
            output = output or memoryview(sasl.take_output())
            while output:
                taken = self._stream.send(output)
                if not taken:
                    break
                output = output[taken:] or memoryview(sasl.take_output())
            if sasl.state is SaslState.DONE:
                self.mechanism = sasl.mechanism
                return self._rest
            data = self._stream.receive()
            if data is None:
                deadline.check()
                self._stream.wait(deadline.remaining, to_send=bool(output))
            elif not len(data):
                raise ConnectionFailedError(f"{self._host} ended the connection before it was open")
            else:
                self._rest = sasl.receive(data)

    def close(self, deadline: Deadline) -> None:
        """Say goodbye and wait for the answer, but not for long; then close the stream. An engine that failed has done so already."""
        if self.error is not None:
            return
        try:
            self._connection.close()
            while not self._remote_closed and not deadline.passed:
                self._round(deadline.remaining)
        except SbMgmtError:
            pass
        self.fail(ConnectionLostError("the connection was closed", may_have_taken_effect=True))

    def abandon(self) -> None:
        """This is a copy that a fork made: let go of it without touching what the parent goes on using."""
        self._stream.abandon()
        self._end(ConnectionLostError("the process was forked, and the connection stayed with the parent", may_have_taken_effect=True))

    def interrupt(self) -> None:
        self._stream.interrupt()

    def fail(self, error: SbMgmtError) -> None:
        """The connection is no more, for this reason."""
        if self.error is None:
            self._stream.close()
            self._end(error)

    def answered(self) -> None:
        """Somebody had an answer: there is one who answers."""
        self._unanswered = 0

    def left_unanswered(self) -> None:
        """Links were not opened in time, or given up because nothing was answered on them. Once a service may be slow; if it happens again
        with no answer to anybody in between, the connection is of no use, whatever heartbeats say."""
        self._unanswered += 1
        if self._unanswered == _MOST_UNANSWERED:
            self.fail(ConnectionLostError(f"{self._host} answers no more", may_have_taken_effect=True))

    def _end(self, error: SbMgmtError) -> None:
        self.error = error
        self.is_open = False
        handlers, self._handlers = self._handlers, {}
        for handler in dict.fromkeys(handler for _, handler in handlers.values()):
            handler.lost(error)
        # They refer to us, and what may still come is nobody's.
        self._on_event = {}
        self._transport.unbind()

    # --- links ----------------------------------------------------------------------------------------------------------

    def is_worn(self, besides: LinkHandler | None) -> bool:
        """Whether it has held so many sessions that it had better be opened anew, and nobody has links on it now but this one."""
        return self._sessions >= _MOST_SESSIONS and all(handler is besides for _, handler in self._handlers.values())

    def session(self) -> ProtonSession:
        self._sessions += 1
        session = self._connection.session()
        session.open()
        return session

    def handle(self, link: ProtonLink, handler: LinkHandler) -> None:
        self._handlers[link._impl] = link, handler

    def forget(self, *links: ProtonLink) -> None:
        for link in links:
            self._handlers.pop(link._impl, None)

    # --- driving --------------------------------------------------------------------------------------------------------

    def wait_until(self, done: Callable[[], bool], deadline: Deadline) -> None:
        """Drive until it is so; raises what the engine failed with, or that the deadline passed."""
        while not done():
            if self.error is not None:
                raise self.error
            deadline.check()
            self.step(deadline.remaining)

    def step(self, timeout: float) -> None:
        """One round: send what there is to send, wait for something to come if nothing is there yet, and handle it. A failure is not
        raised: it is told to the handlers, and stays in `error`."""
        if self.error is not None:
            return
        try:
            self._round(timeout)
        except SbMgmtError as problem:
            self.fail(problem)

    def flush(self) -> None:
        """Send what can be sent at once."""
        if self.error is None:
            try:
                self._flush()
            except SbMgmtError as problem:
                self.fail(problem)

    def _round(self, timeout: float) -> None:
        all_sent = self._flush()
        data = self._stream.receive()
        if data is None:
            self._stream.wait(self._bounded(timeout), to_send=not all_sent)
            data = self._stream.receive()
        if data is not None:
            if not len(data):
                raise ConnectionLostError(f"{self._host} ended the connection", may_have_taken_effect=True)
            self._push(data)
        # After what came in, so that a peer that was heard, if late, is not taken for dead. A heartbeat that is due goes out with the
        # next round.
        self._tick_due = self._transport.tick(self._clock())
        self._handle_events()

    def _bounded(self, timeout: float) -> float:
        """No longer than until the next heartbeat, ours or the peer's."""
        return min(timeout, _LONGEST_STEP_S, max(0.0, self._tick_due - self._clock()) if self._tick_due else timeout)

    def _push(self, data: memoryview) -> None:
        while len(data):
            capacity = self._transport.capacity()
            if capacity <= 0:
                self._handle_events()
                if self.error is None:
                    raise RemoteProtocolError(f"{self._host} goes on sending after the end of the connection")
                return
            # It takes whatever has a buffer, and copies it. Events are handled when all is in: what comes for one delivery is one then.
            self._transport.push(data[:capacity])  # type: ignore[arg-type]
            data = data[capacity:]

    def _flush(self) -> bool:
        """Whether all went out."""
        while (pending := self._transport.pending()) > 0:
            chunk = self._transport.peek(min(pending, _OUTPUT_CHUNK)) or b""
            taken = self._stream.send(chunk)
            if taken:
                self._transport.pop(taken)
            if taken < len(chunk):
                return False
        return True

    # --- what the peer did ----------------------------------------------------------------------------------------------

    def _handle_events(self) -> None:
        # An Event of proton's wraps all that it touches, which costs more than all else that is done here for a page of messages. So it is
        # made only of those that are handled, and not of deliveries, which are the many.
        collector = self._collector._impl
        while not isnull(event := pn_collector_peek(collector)):
            kind = pn_event_type(event)
            try:
                if kind == _DELIVERY:
                    self._delivery(pn_event_delivery(event))
                elif (handle := self._on_event.get(kind)) is not None:
                    handle(Event.wrap(event))  # type: ignore[no-untyped-call]
            except (ProtonException, UnicodeDecodeError) as problem:
                # Some of what the peer said is read by proton's Python only here: names, conditions, properties.
                raise RemoteProtocolError(f"{self._host} sent what cannot be read: {type(problem).__name__}") from None
            finally:
                pn_collector_pop(collector)

    def _connection_opened(self, event: Any) -> None:
        self.is_open = True

    def _connection_closed(self, event: Any) -> None:
        self._remote_closed = True
        raise _ended(self._connection.remote_condition, "connection")

    def _session_closed(self, event: Any) -> None:
        error = _ended(event.session.remote_condition, "session")
        event.session.close()
        for handler in self._handlers_of(event.session):
            handler.lost(error)

    def _handlers_of(self, session: ProtonSession) -> list[LinkHandler]:
        handlers = dict.fromkeys(handler for _, handler in self._handlers.values())
        return [handler for handler in handlers if getattr(handler, "session", None) == session]

    def _link_opened(self, event: Any) -> None:
        found = self._handlers.get(event.link._impl)
        if found is not None:
            link, handler = found
            handler.remote_open(link)

    def _link_closed(self, event: Any) -> None:
        link = event.link
        error = _ended(link.remote_condition, "link")
        found = self._handlers.pop(link._impl, None)
        link.close()
        if found is not None:
            _, handler = found
            handler.remote_close(link, error)

    def _delivery(self, delivery: Any) -> None:
        found = self._handlers.get(pn_delivery_link(delivery))
        if found is not None:
            link, handler = found
            handler.delivery(link, Delivery.wrap(delivery))  # type: ignore[no-untyped-call]

    def _transport_failed(self, event: Any) -> None:
        condition = self._transport.condition
        said = "" if condition is None else f"{condition.name}: {condition.description}"
        if condition is not None and condition.description == _LOCAL_IDLE_TIMEOUT:
            raise ConnectionLostError(f"nothing came from {self._host} for too long", may_have_taken_effect=True)
        raise RemoteProtocolError(f"what {self._host} sends is not AMQP 1.0 ({said})")


def _not_opened(error: SbMgmtError) -> SbMgmtError:
    """The same error for a connection that did not come about; nothing of anybody's was sent on it."""
    if isinstance(error, ConnectionLostError):
        return ConnectionFailedError(*error.args, condition=error.condition, description=error.description, retryable=error.retryable)
    error.may_have_taken_effect = False
    return error


def _ended(condition: Any, what: str) -> SbMgmtError:
    name, description = (None, None) if condition is None else (condition.name, condition.description)
    return error_from_condition(name, description, ended=what)
