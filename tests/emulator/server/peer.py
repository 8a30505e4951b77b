"""A client by proton's engine, driven by hand over a socket: what the emulator's server is tested with, and none of our own client.

    with Peer.connect(emulator) as peer:
        sender = peer.sender("q")
        assert peer.send(sender, message(b"a")) == Outcome("accepted")

Every wait is for something to happen, with a deadline.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import select
import socket
import ssl
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from cproton import ffi, lib
from proton import (
    UNDESCRIBED,
    Array,
    Collector,
    Connection,
    Data,
    Delivery,
    Described,
    Endpoint,
    Link,
    Message,
    Session,
    Terminus,
    Transport,
    int32,
    ulong,
)

from spark_sb_mgmt.emulator import Emulator
from tests.emulator.management.service import Reply, decoded, wire_name

DEADLINE_S = 20.0
POLICY, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
TRANSACTIONAL_STATE, DECLARED = 0x34, 0x33
_STATES = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released", Delivery.MODIFIED: "modified"}
_numbers = itertools.count(1)


class Outcome(NamedTuple):
    """What the server made of a delivery."""

    state: str
    condition: str | None = None


class RefusedError(Exception):
    """A link that the server did not attach."""

    def __init__(self, condition: str, description: str) -> None:
        self.condition = condition
        self.description = description
        super().__init__(f"{condition}: {description}")


class EndedError(Exception):
    """The server closed the connection while something was waited for."""


def message(body: bytes = b"", **fields: Any) -> bytes:
    encoded = Message(body=body, inferred=True, **fields).encode()
    return bytes(encoded)


def signature(resource: str, *, name: str = POLICY, key: str = KEY, expires_at: int = 4_000_000_000) -> str:
    """A shared access signature as azure-servicebus writes it."""
    encoded = quote_plus(resource)
    signed = hmac.new(key.encode(), f"{encoded}\n{expires_at}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sr={encoded}&sig={quote_plus(base64.b64encode(signed))}&se={expires_at}&skn={name}"


class Received(NamedTuple):
    """A message that came over a link."""

    delivery: Delivery
    tag: bytes
    message: Message

    @property
    def body(self) -> bytes:
        return bytes(self.message.body)

    @property
    def lock_token(self) -> uuid.UUID:
        # .NET's byte order (wire-facts.md section 3.5).
        return uuid.UUID(bytes_le=self.tag)


class Peer:
    """One connection. `plain` is the policy and key to log in with; None goes in as ANONYMOUS, and needs tokens."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        plain: tuple[str, str] | None = (POLICY, KEY),
        idle_timeout: float = 0,
        max_frame_size: int | None = None,
        open_at_once: bool = True,
    ) -> None:
        self.sock = sock
        self.ended = False
        self._collector = Collector()
        self.connection = Connection()
        self.connection.container = f"peer-{next(_numbers)}"
        self.connection.collect(self._collector)
        self.transport = Transport()
        if idle_timeout:
            self.transport.idle_timeout = idle_timeout
        if max_frame_size is not None:
            self.transport.max_frame_size = max_frame_size
        sasl = self.transport.sasl()
        sasl.allow_insecure_mechs = True
        if plain is None:
            sasl.allowed_mechs("ANONYMOUS")
        else:
            sasl.allowed_mechs("PLAIN")
            self.connection.user, self.connection.password = plain
        self.sasl = sasl
        self.transport.bind(self.connection)
        self._pairs: dict[tuple[int, str], tuple[Any, Any]] = {}
        self.session_count = 0
        if open_at_once:
            self.connection.open()
            self.session = self.begin()
            self.until(lambda: self.session.state & Endpoint.REMOTE_ACTIVE)

    @classmethod
    def connect(cls, emulator: Emulator, **options: Any) -> Peer:
        return cls(socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S), **options)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Go without a word."""
        self.ended = True
        self.sock.close()

    def close(self) -> None:
        """Go as AMQP has it."""
        self.connection.close()
        self.until(lambda: self.connection.state & Endpoint.REMOTE_CLOSED)
        self.drop()

    # Bytes

    def flush(self) -> None:
        """Send all there is."""
        while (pending := self.transport.pending()) > 0:
            self.sock.sendall(self.transport.peek(pending))
            self.transport.pop(pending)

    def until(self, condition: Callable[[], Any], seconds: float = DEADLINE_S, *, heartbeats: bool = False) -> None:
        """Exchange bytes until the condition holds."""
        deadline = time.monotonic() + seconds
        while True:
            if heartbeats:
                self.transport.tick(time.monotonic())
            self.flush()
            self._drain_events()
            if condition():
                return
            if self.ended:
                raise EndedError(f"the server closed the connection: {self.condition}")
            left = deadline - time.monotonic()
            assert left > 0, "what was waited for did not happen"
            # TLS may hold bytes that no selector tells of.
            held = isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()
            if not held and not select.select([self.sock], [], [], min(left, 0.05 if heartbeats else left))[0]:
                continue
            self.receive_bytes()

    def receive_bytes(self) -> None:
        """What the socket has, or is about to have."""
        try:
            data = self.sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        while data:
            capacity = self.transport.capacity()
            if capacity <= 0:
                self.ended = True
                return
            self.transport.push(data[:capacity])
            data = data[capacity:]
            self._drain_events()

    def _drain_events(self) -> None:
        while self._collector.peek() is not None:
            self._collector.pop()

    @property
    def condition(self) -> str | None:
        """Why the server closed the connection."""
        for given in (self.connection.remote_condition, self.transport.condition):
            if given is not None:
                return str(given.name)
        return None

    # Sessions and links

    def begin(self) -> Session:
        session = self.connection.session()
        session.open()
        self.session_count += 1
        return session

    def attach(self, link: Any) -> Any:
        """Open a link and wait until it is attached."""
        link.open()
        self.until(lambda: link.state & (Endpoint.REMOTE_ACTIVE | Endpoint.REMOTE_CLOSED))
        terminus = link.remote_target if link.is_sender else link.remote_source
        if terminus.type == Terminus.UNSPECIFIED or link.state & Endpoint.REMOTE_CLOSED:
            self.until(lambda: link.state & Endpoint.REMOTE_CLOSED)
            condition = link.remote_condition
            link.close()
            self.flush()
            raise RefusedError(str(condition.name), str(condition.description))
        return link

    def sender(self, address: str | None, *, session: Session | None = None, name: str | None = None, **properties: Any) -> Any:
        link = (session or self.session).sender(name or f"sender-{next(_numbers)}")
        link.target.address = address
        link.source.address = "here"
        if properties:
            link.properties = properties
        self.attach(link)
        self.until(lambda: link.credit > 0)
        return link

    def receiver(
        self,
        address: str | None,
        credit: int = 0,
        *,
        session: Session | None = None,
        name: str | None = None,
        target: str | None = "there",
        delete: bool = False,
        filters: Any = None,
        properties: Any = None,
        wait: bool = True,
    ) -> Any:
        link = (session or self.session).receiver(name or f"receiver-{next(_numbers)}")
        link.source.address = address
        link.target.address = target
        link.snd_settle_mode = Link.SND_SETTLED if delete else Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST if delete else Link.RCV_SECOND
        if filters is not None:
            link.source.filter.put_object(filters)
        if properties is not None:
            link.properties = properties
        if credit:
            link.flow(credit)
        if wait:
            return self.attach(link)
        link.open()
        self.flush()
        return link

    def detached(self, link: Any) -> str | None:
        """The condition with which the server detaches a link, when it does."""
        self.until(lambda: link.state & Endpoint.REMOTE_CLOSED)
        condition = link.remote_condition
        link.close()
        self.flush()
        return None if condition is None else str(condition.name)

    def detach(self, link: Any) -> None:
        link.close()
        self.until(lambda: link.state & Endpoint.REMOTE_CLOSED)

    # Messages

    def post(self, link: Any, encoded: bytes, *, transaction: bytes | None = None) -> Delivery:
        """Send a message without waiting for its outcome."""
        delivery = link.delivery(next(_numbers).to_bytes(8, "big"))
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL_STATE)
        link.send(encoded)
        link.advance()
        return delivery

    def outcome(self, delivery: Delivery) -> Outcome:
        self.until(lambda: delivery.remote_state and delivery.settled)
        return outcome_of(delivery)

    def send(self, link: Any, *encoded: bytes, transaction: bytes | None = None) -> Outcome:
        """Send messages; the outcome of the last."""
        deliveries = [self.post(link, each, transaction=transaction) for each in encoded]
        return [self.outcome(delivery) for delivery in deliveries][-1]

    def receive(self, link: Any, count: int = 1) -> list[Received]:
        received: list[Received] = []

        def enough() -> bool:
            received.extend(self.take(link))
            return len(received) >= count

        self.until(enough)
        return received

    def take(self, link: Any) -> list[Received]:
        """What has come over a link, without waiting."""
        received: list[Received] = []
        while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
            raw = bytes(link.recv(delivery.pending) or b"")
            received.append(Received(delivery, tag_of(delivery), decoded(raw)))
            link.advance()
        return received

    def settle(self, received: Received, state: int = Delivery.ACCEPTED, *, transaction: bytes | None = None) -> Outcome:
        """Both phases: the outcome, and the server's word on it."""
        delivery = received.delivery
        if transaction is not None:
            delivery.local.data = [transaction, Described(ulong(state), [])]
            state = TRANSACTIONAL_STATE
        delivery.update(state)
        outcome = self.outcome(delivery)
        delivery.settle()
        return outcome

    # Requests

    def pair(self, address: str, *, session: Session | None = None, reply_to: str | None = "replies") -> tuple[Any, Any]:
        """Links to a node and back."""
        used = session or self.session
        receiver = self.receiver(address, 100, session=used, target=reply_to, delete=True)
        return self.sender(address, session=used), receiver

    def ask(self, pair: tuple[Any, Any], operation: str, body: Any, *, reply_to: str | None = "replies", **options: Any) -> Delivery:
        """Send a management request without waiting for the answer."""
        properties = {"operation": wire_name(operation), **options.pop("properties", {})}
        asked = Message(id=options.pop("id", next(_numbers)), reply_to=reply_to, properties=properties, body=body)
        return self.post(pair[0], bytes(asked.encode()), **options)

    def answers(self, pair: tuple[Any, Any], count: int = 1) -> list[Reply]:
        found = [Reply(received.message, 0) for received in self.receive(pair[1], count)]
        pair[1].flow(len(found))
        return found

    def request(self, entity: str, operation: str, body: Any, **options: Any) -> Reply:
        """A management request over the session's pair for the entity, and its answer."""
        key = (id(self.session), entity)
        if key not in self._pairs:
            self._pairs[key] = self.pair(f"{entity}/$management")
        self.ask(self._pairs[key], operation, body, **options)
        return self.answers(self._pairs[key])[0]

    def put_token(self, token: str, audience: str, *, kind: str = "servicebus.windows.net:sastoken") -> tuple[int, str, str | None]:
        """Status, description and condition of the answer of `$cbs`."""
        key = (id(self.session), "$cbs")
        if key not in self._pairs:
            self._pairs[key] = self.pair("$cbs")
        asked = Message(id=next(_numbers), properties={"operation": "put-token", "type": kind, "name": audience}, body=token)
        self.post(self._pairs[key][0], bytes(asked.encode()))
        pair = self._pairs[key]
        answer = self.receive(pair[1])[0].message
        pair[1].flow(1)
        condition = answer.properties.get("error-condition")
        return int(answer.properties["status-code"]), answer.properties["status-description"], None if condition is None else str(condition)

    # Transactions

    def coordinator(self) -> Any:
        link = self.session.sender(f"coordinator-{next(_numbers)}")
        link.target.type = Terminus.COORDINATOR
        self.attach(link)
        self.until(lambda: link.credit > 0)
        return link

    def declare(self, coordinator: Any) -> bytes:
        delivery = self.post(coordinator, bytes(Message(body=Described(ulong(0x31), [None])).encode()))
        self.until(lambda: delivery.remote_state == DECLARED)
        transaction_id = bytes(delivery.remote.data[0])
        delivery.settle()
        return transaction_id

    def discharge(self, coordinator: Any, transaction: bytes, *, fail: bool = False) -> Outcome:
        return self.send(coordinator, bytes(Message(body=Described(ulong(0x32), [transaction, fail])).encode()))


def tag_of(delivery: Delivery) -> bytes:
    """The tag as bytes: what proton shows is text, and a lock token is none."""
    tag = lib.pn_delivery_tag(delivery._impl)
    return bytes(ffi.buffer(tag.start, tag.size))


def outcome_of(delivery: Delivery) -> Outcome:
    state = delivery.remote_state
    if state == TRANSACTIONAL_STATE:
        outcome = delivery.remote.data[1]
        return Outcome(f"transactional {_STATES[int(outcome.descriptor)]}")
    condition = delivery.remote.condition if state == Delivery.REJECTED else None
    return Outcome(_STATES[state], None if condition is None else str(condition.name))


def eventually(condition: Callable[[], bool]) -> None:
    """Ask, each time over again, until the answer is yes. The condition is a question to the emulator, which takes a turn to answer."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"


def peeked(peer: Peer, entity: str, count: int = 100) -> list[bytes]:
    """The bodies of what stands in an entity."""
    reply = peer.request(entity, "peek-message", peek_body(count))
    return [] if reply.status == 204 else [bytes(each.body) for each in reply.messages]


def peek_body(count: int = 100, start: int = 0) -> dict[str, Any]:
    return {"from-sequence-number": start, "message-count": int32(count)}


def array(kind: int, *items: Any) -> Any:
    return Array(UNDESCRIBED, kind, *items)


LONG, UUID = Data.LONG, Data.UUID
