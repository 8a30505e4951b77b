"""One AMQP connection: bytes of a stream through SASL into proton's engine, its events to links, its output back to the stream.

The one rule: handling input changes state and fills the engine; nothing leaves before the broker has committed and calls `flush`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cproton import (  # type: ignore[import-untyped]
    isnull,
    pn_collector_peek,
    pn_collector_pop,
    pn_event_delivery,
    pn_event_type,
)
from proton import Collector, Connection, Delivery, Endpoint, Event, Transport
from proton import Link as ProtonLink

from spark_sb_mgmt.emulator.entities import ServiceBusFault, UnitOfWork
from spark_sb_mgmt.emulator.server.authorization import Authorization, plain_grant
from spark_sb_mgmt.emulator.server.byte_streams import ByteStream, EndOfStreamError
from spark_sb_mgmt.emulator.server.frames import FrameSplitter
from spark_sb_mgmt.emulator.server.link import Link
from spark_sb_mgmt.emulator.server.loop import READ, WRITE, Timer
from spark_sb_mgmt.emulator.server.sasl import SaslServer, SaslState

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.server.broker import Broker

# What the service offers (wire-facts.md section 4).
MAX_FRAME_SIZE: Final = 65536
# Bytes handed to the stream at a time.
_OUTPUT_CHUNK: Final = 256 * 1024
# More than this in the engine's buffers, and nothing more is produced for this session until the peer has read some.
HIGH_WATER: Final = 1024 * 1024
# A client has so long to say who it is.
SASL_PATIENCE_S: Final = 60.0
_DELIVERY: Final = Event.DELIVERY.number
_log = logging.getLogger(__name__)


class AmqpConnection:
    def __init__(self, broker: Broker, stream: ByteStream, attach: Callable[[AmqpConnection, ProtonLink], Link | None]) -> None:
        self.broker = broker
        self.authorization = Authorization()
        # Declared on this connection and not yet discharged, by transaction id.
        self.transactions: dict[bytes, UnitOfWork] = {}
        self.links: dict[ProtonLink, Link] = {}
        self.is_closed = False
        self._attach = attach
        self._stream = stream
        self._events = READ
        self._sasl: SaslServer | None = SaslServer(
            {"ANONYMOUS": lambda _: "anonymous", "PLAIN": self._verify_plain, "MSSBCBS": lambda _: "anonymous"}
        )
        self._output = b""
        self._splitter = FrameSplitter(MAX_FRAME_SIZE)
        self._collector = Collector()
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = MAX_FRAME_SIZE
        self._transport.idle_timeout = broker.idle_timeout
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        self._tick_timer: Timer | None = None
        self._token_timer: Timer | None = None
        # A client that has not said who it is by then is not waited for.
        self._sasl_timer = broker.loop.call_later(SASL_PATIENCE_S, self._give_up_sasl)
        self._message_format = 0
        # A link has more to send than the peer has read.
        self._wants_room = False
        self._handlers: dict[int, Callable[[Any], None]] = {
            Event.CONNECTION_REMOTE_OPEN.number: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE.number: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN.number: lambda event: event.session.open(),
            Event.SESSION_REMOTE_CLOSE.number: self._on_session_close,
            Event.LINK_REMOTE_OPEN.number: self._on_link_open,
            Event.LINK_REMOTE_CLOSE.number: lambda event: self._on_link_close(event.link, closed=True),
            Event.LINK_REMOTE_DETACH.number: lambda event: self._on_link_close(event.link, closed=False),
            Event.LINK_FLOW.number: self._on_flow,
        }
        broker.loop.watch(stream.sock, self._on_ready)

    # Input

    def _on_ready(self, events: int) -> None:
        if self.is_closed:
            return
        self.broker.touch(self)
        if events & READ or self._stream.wants & WRITE:
            self.guard(self._receive)

    def guard(self, work: Callable[[], None]) -> None:
        """Whatever a client brings about, it is the only one to lose its connection by it."""
        if self.is_closed:
            return
        try:
            work()
        except EndOfStreamError:
            self.drop()
        except Exception:
            _log.exception("a connection was dropped: what it sent made the emulator fail")
            self.drop(by_peer=False)

    def _receive(self) -> None:
        data = self._stream.receive()
        if self._sasl is not None:
            data = self._sasl.receive(data)
            self._output += self._sasl.take_output()
            if self._sasl.state is SaslState.DONE:
                self._sasl = None
                self._sasl_timer.cancel()
        for piece in self._splitter.split(data):
            self._message_format = piece.message_format
            self._push(piece.data)
        self._message_format = 0

    def _give_up_sasl(self) -> None:
        if self._sasl is not None:
            self.drop()

    def _push(self, data: bytes | memoryview) -> None:
        """Events are handled when all is in: what comes for one delivery is one then."""
        while len(data):
            capacity = self._transport.capacity()
            if capacity <= 0:
                # The engine takes no more: it found an error in what it had, and says so in its output.
                break
            # It takes whatever has a buffer, and copies it.
            self._transport.push(data[:capacity])  # type: ignore[arg-type]
            data = data[capacity:]
        self._handle_events()

    def _verify_plain(self, response: bytes) -> str | None:
        _, _, rest = response.partition(b"\0")
        user, _, password = rest.partition(b"\0")
        name = user.decode("utf-8", "replace")
        rights = self.broker.policies.verify_plain(name, password.decode("utf-8", "replace"))
        if rights is None:
            return None
        self.authorization.add(plain_grant(rights))
        return name

    # Events

    def _handle_events(self) -> None:
        # An Event of proton's wraps all that it touches, which costs more than much of what is done here. So it is made only of those that
        # are handled, and not of deliveries, which are the many.
        collector = self._collector._impl
        while not self.is_closed and not isnull(event := pn_collector_peek(collector)):
            kind = pn_event_type(event)
            if kind == _DELIVERY:
                self._on_delivery(Delivery.wrap(pn_event_delivery(event)))  # type: ignore[no-untyped-call]
            elif (handler := self._handlers.get(kind)) is not None:
                handler(Event.wrap(event))  # type: ignore[no-untyped-call]
            if not self.is_closed:
                pn_collector_pop(collector)

    def _on_connection_open(self, event: Any) -> None:
        event.connection.container = "sbmgmt-emulator"
        event.connection.open()

    def _on_connection_close(self, event: Any) -> None:
        self._forget_links(lambda _: True)
        event.connection.close()

    def _on_session_close(self, event: Any) -> None:
        session = event.session
        self._forget_links(lambda link: bool(link.session == session))
        session.close()
        session.free()

    def _forget_links(self, which: Callable[[ProtonLink], bool], *, by_peer: bool = True) -> None:
        for proton_link in [link for link in self.links if which(link)]:
            self.links.pop(proton_link).gone(by_peer=by_peer)

    def _on_link_open(self, event: Any) -> None:
        if event.link.state & Endpoint.LOCAL_UNINIT:
            link = self._attach(self, event.link)
            if link is not None:
                self.links[event.link] = link

    def _on_link_close(self, proton_link: ProtonLink, *, closed: bool) -> None:
        link = self.links.pop(proton_link, None)
        if link is not None:
            # Detached but not closed, it may come back, and what it had unsettled is still its own (AMQP 1.0 part 2.6.4).
            link.gone(by_peer=closed)
        if proton_link.state & Endpoint.LOCAL_UNINIT:
            # It waited for a session, and the client would wait for the answer to its detach.
            proton_link.open()
        if proton_link.state & Endpoint.LOCAL_ACTIVE:
            if closed:
                proton_link.close()
            else:
                proton_link.detach()
        if not proton_link.unsettled:
            # What is unsettled, proton would settle, and say so before it detaches; the client may still want to settle it by another
            # way. Such a link is freed with its session.
            proton_link.free()

    def _on_flow(self, event: Any) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.touch()
            link.pump()

    def _on_delivery(self, delivery: Delivery) -> None:
        link = self.links.get(delivery.link)
        if link is not None:
            link.touch()
            link.delivery(delivery, self._message_format)

    # For links

    def siblings(self, link: Link) -> Iterator[Link]:
        """The links of the same session."""
        session = link.link.session
        return (other for proton_link, other in self.links.items() if proton_link.session == session)

    def find_link(self, name: str) -> Link | None:
        return next((link for proton_link, link in self.links.items() if proton_link.name == name), None)

    def watch_tokens(self) -> None:
        """Detach links when the tokens that let them stay expire."""
        if self._token_timer is not None:
            self._token_timer.cancel()
        expiry = self.authorization.next_expiry(self.broker.now())
        if expiry is not None:
            self._token_timer = self.broker.call_at(expiry, lambda: self.guard(self._check_tokens))

    def _check_tokens(self) -> None:
        for link in list(self.links.values()):
            try:
                link.check_right()
            except ServiceBusFault as fault:
                link.detach(fault)
        self.watch_tokens()

    def forget(self, proton_link: ProtonLink) -> None:
        """The server itself has closed this link."""
        self.links.pop(proton_link, None)
        self.broker.touch(self)

    def is_congested(self, link: Link) -> bool:
        """Whether the peer has not read what the session holds for it. Whoever asks is pumped when that changes."""
        if link.link.session.outgoing_bytes < HIGH_WATER:
            return False
        self._wants_room = True
        return True

    def _resume(self) -> None:
        """There is room again. Who finds none this time asks again by `is_congested`."""
        for link in list(self.links.values()):
            link.pump()
        self.broker.touch(self)

    # Output

    def flush(self) -> None:
        """Send what can be sent now; wait for the socket with the rest."""
        self.guard(self._flush)

    def _flush(self) -> None:
        if self._output:
            taken = self._stream.send(self._output)
            self._output = self._output[taken:]
        finished = self._sasl is not None and self._sasl.state is SaslState.REFUSED
        if not self._output and self._sasl is None:
            self._tick()
            finished = self._flush_engine()
        if finished and not self._output and not self._stream.wants & WRITE:
            self.drop()
            return
        self._watch_for((READ | WRITE) if self._has_output() else READ)
        if self._wants_room and self._has_room():
            # In the next turn: what is done then is committed before it is sent.
            self._wants_room = False
            self.broker.loop.call_soon(lambda: self.guard(self._resume))

    def _has_room(self) -> bool:
        return any(link.session.outgoing_bytes < HIGH_WATER // 2 for link in self.links)

    def _flush_engine(self) -> bool:
        """True when the engine has nothing more to say, ever."""
        while (pending := self._transport.pending()) > 0:
            chunk = self._transport.peek(min(pending, _OUTPUT_CHUNK)) or b""
            taken = self._stream.send(chunk)
            if taken:
                self._transport.pop(taken)
            if taken < len(chunk):
                if self._transport.condition is not None:
                    raise EndOfStreamError("the connection has failed, and the peer does not read why")
                break
        # Sending makes room, and what the engine tells of it may set more going: in the next turn, so that it is committed first.
        if self._has_events():
            self.broker.loop.call_soon(lambda: self.guard(self._handle_events))
            self.broker.touch(self)
        return bool(pending < 0)

    def _has_events(self) -> bool:
        collector = self._collector._impl
        while not isnull(event := pn_collector_peek(collector)):
            kind = pn_event_type(event)
            if kind == _DELIVERY or kind in self._handlers:
                return True
            pn_collector_pop(collector)
        return False

    def _has_output(self) -> bool:
        return bool(self._output) or (self._sasl is None and self._transport.pending() > 0)

    def _watch_for(self, events: int) -> None:
        events |= self._stream.wants
        if events != self._events:
            self._events = events
            self.broker.loop.change(self._stream.sock, self._on_ready, events)

    def _tick(self) -> None:
        """Heartbeats, and the end of a peer that sends none."""
        deadline = self._transport.tick(self.broker.loop.time())
        if deadline and (self._tick_timer is None or deadline < self._tick_timer.when):
            if self._tick_timer is not None:
                self._tick_timer.cancel()
            self._tick_timer = self.broker.loop.call_at(deadline, self._on_tick)

    def _on_tick(self) -> None:
        self._tick_timer = None
        self.broker.touch(self)

    # The end

    def close(self, condition: Any = None) -> None:
        """Say goodbye; the socket closes when the peer has been told."""
        if not self.is_closed and self._sasl is None:
            self._forget_links(lambda _: True, by_peer=False)
            self._connection.condition = condition
            self._connection.close()
            self.broker.touch(self)

    def drop(self, *, by_peer: bool = True) -> None:
        """Close the socket without a word."""
        if self.is_closed:
            return
        self.is_closed = True
        self._forget_links(lambda _: True, by_peer=by_peer)
        for work in self.transactions.values():
            work.rollback()
        for timer in (self._tick_timer, self._token_timer, self._sasl_timer):
            if timer is not None:
                timer.cancel()
        self.broker.loop.unwatch(self._stream.sock)
        self._stream.close()
        # The engine's objects refer to one another and to us.
        self._transport.unbind()
        self._handlers.clear()
        self.broker.forget(self)
