"""A service that does what a test tells it to, right or wrong: a small AMQP server around one function.

    def script(asked: Asked) -> None:
        asked.reply(200, Map([("session-state", None)]))

    with ScriptedPeer(script) as peer, peer.client() as client: ...

`$cbs` and attaches are answered as they should be unless the test says otherwise. The function runs in the peer's thread, for every
management request.
"""

from __future__ import annotations

import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from proton import Collector, Condition, Connection, Delivery, Endpoint, Event, Terminus, Transport

from spark_sb_mgmt.amqp.message import AmqpValue, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Int, Map, Symbol, Value
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.emulator.server.sasl import SaslServer, SaslState

# Short enough that a test of what never comes does not take long, long enough that what does come is never late.
QUICK = {"server_timeout_ms": 200, "request_margin_s": 0.1, "retry": RetryPolicy(max_retries=2, base_delay_s=0.001, max_delay_s=0.01)}


def wait_for_bytes(client: ManagementClient) -> None:
    """Until something, or the end, has come for the client: not every system delivers at once, not even to itself."""
    engine: Any = client._connection.engine
    assert select.select([engine._stream._socket], [], [], 10)[0]


class Asked:
    """One request, and the ways to answer it."""

    def __init__(self, peer: PeerConnection, sender: Any, delivery: Any, message: Message) -> None:
        self._peer = peer
        self._sender = sender
        self._delivery = delivery
        self.message = message
        self.properties: Map = message.application_properties or Map()
        self.message_id: Value = message.properties.message_id if message.properties else None
        self.body: Any = message.body.value if isinstance(message.body, AmqpValue) else None

    @property
    def operation(self) -> str:
        return str(self.properties["operation"]).removeprefix("com.microsoft:")

    @property
    def position(self) -> int:
        """How many management requests the peer had before this one, over all its connections."""
        return len(self._peer.server.requests) - 1

    @property
    def delivery_state(self) -> tuple[int, Any]:
        return int(self._delivery.remote_state), self._delivery.remote.data

    def reply(self, status: Value = 200, body: Value = None, condition: str | None = None, **other: Any) -> None:
        """`correlation_id`, `description` and `properties` to say it differently."""
        self.send(self.encode(status, body, condition, **other))

    def encode(
        self,
        status: Value = 200,
        body: Value = None,
        condition: str | None = None,
        *,
        correlation_id: Value = None,
        description: str = "as scripted",
        properties: Mapping[str, Value] | None = None,
    ) -> bytes:
        said: list[tuple[Value, Value]] = [("statusDescription", description)]
        if status is not None:
            said.append(("statusCode", Int(status) if type(status) is int else status))
        if condition is not None:
            said.append(("errorCondition", Symbol(condition)))
        return encode_message(
            Message(
                properties=Properties(correlation_id=self.message_id if correlation_id is None else correlation_id),
                application_properties=Map([*said, *(properties or {}).items()]),
                body=AmqpValue(body),
            )
        )

    def send(self, raw: bytes) -> None:
        self._peer.send(self._sender, raw)

    def abort(self, raw: bytes) -> None:
        """Begin an answer and take it back (AMQP 1.0 part 2.6.14)."""
        self._peer.send(self._sender, raw, abort=True)

    def drop(self) -> None:
        """Close the socket without a word."""
        self._peer.drop()

    def write(self, data: bytes) -> None:
        """Bytes that are not AMQP, between the frames."""
        self._peer.garbage += data

    def detach(self, condition: str, description: str = "as scripted") -> None:
        self._sender.condition = Condition(condition, description)
        self._sender.close()

    def end_session(self, condition: str) -> None:
        self._sender.session.condition = Condition(condition, "as scripted")
        self._sender.session.close()

    def close_connection(self, condition: str) -> None:
        self._peer.connection.condition = Condition(condition, "as scripted")
        self._peer.connection.close()

    def reject(self, condition: str) -> None:
        self._delivery.local.condition = Condition(condition, "as scripted")
        self._delivery.update(Delivery.REJECTED)
        self._delivery.settle()

    def release(self) -> None:
        self._delivery.update(Delivery.RELEASED)
        self._delivery.settle()


Script = Callable[[Asked], None]


class PeerConnection:
    def __init__(self, server: ScriptedPeer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.garbage = b""
        self.sasl: SaslServer | None = SaslServer(server.mechanisms)
        self.output = b""
        self.collector = Collector()
        self.transport = Transport(Transport.SERVER)
        self.transport.max_frame_size = 65536
        if server.idle_timeout:
            self.transport.idle_timeout = server.idle_timeout
        self.connection = Connection()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.answers: dict[str, Any] = {}
        self.sent = 0
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True

    def ready(self) -> None:
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self.drop()
            return
        if self.sasl is not None:
            data = self.sasl.receive(data)
            self.output += self.sasl.take_output()
            if self.sasl.state is SaslState.DONE:
                self.sasl = None
        while data and self.transport.capacity() > 0:
            part = data[: self.transport.capacity()]
            self.transport.push(part)
            data = data[len(part) :]
            self.handle_events()
        self.handle_events()

    def flush(self) -> None:
        if self.sasl is None and self.server.opens:
            self.transport.tick(self.server.clock())
            while (pending := self.transport.pending()) > 0:
                self.output += bytes(self.transport.peek(pending) or b"")
                self.transport.pop(pending)
        self.output += self.garbage
        self.garbage = b""
        try:
            self.sock.sendall(self.output)
        except OSError:
            self.drop()
        self.output = b""

    def handle_events(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type in (Event.CONNECTION_REMOTE_OPEN, Event.SESSION_REMOTE_OPEN):
                event.context.open()
            elif event.type == Event.CONNECTION_REMOTE_CLOSE and self.server.closes:
                self.connection.close()
            elif event.type == Event.LINK_REMOTE_OPEN:
                self.attach(event.link)
            elif event.type == Event.DELIVERY:
                self.delivery(event.link, event.delivery)
            self.collector.pop()

    def attach(self, link: Any) -> None:
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        address = (link.remote_target if link.is_receiver else link.remote_source).address
        self.server.attached.append(address)
        refused = self.server.refuse_attach.get(address)
        if address in self.server.ignore_attach:
            return
        if refused is None:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
        if link.is_receiver:
            link.max_message_size = self.server.max_message_size
        link.open()
        if refused is not None:
            link.condition = Condition(refused, "as scripted")
            link.close()
        elif link.is_sender:
            self.answers[link.remote_target.address or link.name] = link
        elif credit := self.server.credit_of_node(address):
            link.flow(credit)

    def delivery(self, link: Any, delivery: Any) -> None:
        if link.is_sender or delivery.partial or not delivery.readable:
            return
        raw = bytes(link.recv(delivery.pending))
        link.advance()
        if link.remote_target.type == Terminus.COORDINATOR:
            self.server.coordinate(decode_message(raw), delivery, self)
            return
        message = decode_message(raw)
        assert message.properties is not None
        asked = Asked(self, self.answers.get(str(message.properties.reply_to)), delivery, message)
        if link.remote_target.address == "$cbs":
            self.server.tokens.append(asked)
            self.server.cbs(asked)
            link.flow(1)
            return
        with self.server.changed:
            self.server.requests.append(asked)
            self.server.changed.notify_all()
        self.server.script(asked)
        if self.server.credit:
            link.flow(1)

    def send(self, link: Any, raw: bytes, *, abort: bool = False) -> None:
        self.sent += 1
        delivery = link.delivery(str(self.sent))
        link.send(raw)
        if abort:
            # What was sent is on its way before it is taken back.
            self.flush()
            delivery.abort()
            return
        link.advance()
        delivery.settle()


def take_token(asked: Asked) -> None:
    asked.send(
        encode_message(
            Message(
                properties=Properties(correlation_id=asked.message_id),
                application_properties=Map([("status-code", Int(202)), ("status-description", "Accepted")]),
            )
        )
    )


def _accept_all(request: Message, delivery: Any, peer: PeerConnection) -> None:
    """Every declare is transaction `t1`, every discharge is accepted."""
    value = request.body.value if isinstance(request.body, AmqpValue) else None
    if value.descriptor == 0x31:
        delivery.local.data = [b"t1"]
        delivery.update(0x33)
    else:
        peer.server.discharged.append(value.value)
        delivery.update(Delivery.ACCEPTED)
    delivery.settle()


class ScriptedPeer:
    """`refuse_attach` has a condition for an address; `ignore_attach` addresses that are never answered; `opens` False never says a word
    after SASL; `closes` False does not answer a close; `credit_of`, unless empty, has all the nodes that give credit."""

    def __init__(
        self,
        script: Script,
        *,
        cbs: Script = take_token,
        coordinate: Callable[[Message, Any, PeerConnection], None] = _accept_all,
        max_message_size: int = 1 << 20,
        credit: int = 100,
        credit_of: dict[str, int] | None = None,
        refuse_attach: Mapping[str, str] | None = None,
        ignore_attach: tuple[str, ...] = (),
        mechanisms: tuple[str, ...] = ("ANONYMOUS",),
        opens: bool = True,
        closes: bool = True,
        idle_timeout: float = 0.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.script = script
        self.cbs = cbs
        self.coordinate = coordinate
        self.max_message_size = max_message_size
        self.credit = credit
        self.credit_of = credit_of
        self.refuse_attach = refuse_attach or {}
        self.ignore_attach = ignore_attach
        self.mechanisms = {name: lambda response: "anyone" for name in mechanisms}
        self.opens = opens
        self.closes = closes
        self.idle_timeout = idle_timeout
        self.clock = clock or time.monotonic
        self.requests: list[Asked] = []
        self.tokens: list[Asked] = []
        self.attached: list[str | None] = []
        self.discharged: list[Any] = []
        self.accepted = 0
        self.changed = threading.Condition()
        self._connections: set[PeerConnection] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._calls: list[Callable[[], None]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="scripted-peer", daemon=True)
        self._failure: BaseException | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def connection_string(self) -> str:
        return f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName=root;SharedAccessKey=top-secret-key;UseDevelopmentEmulator=true"

    def client(self, **settings: Any) -> ManagementClient:
        return ManagementClient.from_connection_string(self.connection_string, **{**QUICK, **settings})

    def credit_of_node(self, address: str) -> int:
        return self.credit_of.get(address, 0) if self.credit_of else self.credit

    def do(self, what: Callable[[], None]) -> None:
        """Run something in the peer's thread: an answer that comes when the test says so."""
        self._calls.append(what)
        self._wake.send(b"x")

    def drop_all(self) -> None:
        """Close every socket, and come back when that is done."""
        done = threading.Event()

        def drop() -> None:
            for connection in self._connections:
                connection.drop()
            self._sweep()
            done.set()

        self.do(drop)
        assert done.wait(10)

    def wait_for_requests(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= count, 10), f"{len(self.requests)} requests came, not {count}"

    def __enter__(self) -> ScriptedPeer:
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping = True
        self._wake.send(b"x")
        self._thread.join(10)
        for sock in (self._listener, self._wake, self._woken, *(one.sock for one in self._connections)):
            sock.close()
        self._selector.close()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        try:
            while not self._stopping:
                for key, _ in self._selector.select(0.05 if self.idle_timeout else None):
                    if key.fileobj is self._listener:
                        sock, _ = self._listener.accept()
                        self.accepted += 1
                        connection = PeerConnection(self, sock)
                        self._connections.add(connection)
                        self._selector.register(sock, selectors.EVENT_READ, connection)
                    elif key.fileobj is self._woken:
                        self._woken.recv(100)
                        calls, self._calls = self._calls, []
                        for call in calls:
                            call()
                    else:
                        key.data.ready()
                for connection in self._connections:
                    if not connection.dropped:
                        connection.flush()
                self._sweep()
        except BaseException as problem:
            self._failure = problem
            for connection in self._connections:
                connection.sock.close()

    def _sweep(self) -> None:
        for connection in [one for one in self._connections if one.dropped]:
            self._connections.remove(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()
