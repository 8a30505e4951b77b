"""A service that only listens: it takes what an SDK sends to `$management`, keeps the bytes, and answers so that the SDK is content.

Everything else (SASL ANONYMOUS, `$cbs`, entity links, sessions) is granted without a look. Written with proton alone, so that no line of
our own codec stands between an SDK's bytes and the test that compares them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import proton
from proton import Array, Data, Delivery, int32, timestamp

ADDRESS = "127.0.0.1"
LOCK_TOKEN = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
# All locks last until 2100: an SDK that finds its lock expired does not go on.
_LATER = 4_102_444_800_000
# And in ticks of 100 ns since the year 1.
_LOCKED_UNTIL = 621_355_968_000_000_000 + _LATER * 10_000
_CREDIT = 100


def _message(number: int, session_id: str | None = None) -> bytes:
    annotations = {"x-opt-sequence-number": number, "x-opt-enqueued-time": timestamp(1_700_000_000_000)}
    named = {proton.symbol(key): value for key, value in annotations.items()}
    return bytes(proton.Message(body=b"body", inferred=True, id=f"id-{number}", group_id=session_id, annotations=named).encode())


def _timestamps(count: int) -> Array:
    return Array(proton.UNDESCRIBED, Data.TIMESTAMP, *[timestamp(_LATER)] * count)


def _answer(operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a 200 that every SDK accepts."""
    if operation == "com.microsoft:peek-message":
        return {"messages": [{"message": _message(body["from-sequence-number"])}]}
    if operation == "com.microsoft:receive-by-sequence-number":
        numbers, session_id = body["sequence-numbers"].elements, body.get("session-id")
        return {"messages": [{"message": _message(number, session_id), "lock-token": LOCK_TOKEN} for number in numbers]}
    if operation == "com.microsoft:renew-lock":
        return {"expirations": _timestamps(len(body["lock-tokens"].elements))}
    if operation == "com.microsoft:renew-session-lock":
        return {"expiration": timestamp(_LATER)}
    if operation == "com.microsoft:schedule-message":
        return {"sequence-numbers": Array(proton.UNDESCRIBED, Data.LONG, *range(1, len(body["messages"]) + 1))}
    if operation == "com.microsoft:get-session-state":
        return {"session-state": b"state"}
    if operation == "com.microsoft:get-message-sessions":
        return {"skip": int32(1), "sessions-ids": Array(proton.UNDESCRIBED, Data.STRING, "one")}
    if operation == "com.microsoft:batch-delete-messages":
        return {"message-count": body["message-count"]}
    if operation == "com.microsoft:enumerate-rules":
        return {"rules": []}
    return {}


class CapturingService:
    """Listens on a free port of this machine until it is closed. `requests` are the messages that came to `$management`, as bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self._listener = socket.create_server((ADDRESS, 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connection_string(self) -> str:
        port = self._listener.getsockname()[1]
        return f"Endpoint=sb://{ADDRESS}:{port};SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true;"

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            _shut_down(one)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(accepted)
            thread = threading.Thread(target=_Peer(accepted, self.requests).run, daemon=True)
            self._threads.append(thread)
            thread.start()


def _shut_down(one: socket.socket) -> None:
    """Close a socket that another thread may be waiting on: shutting it down is what wakes that thread."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class _Peer:
    """One connection: proton's engine between a socket and the events below."""

    def __init__(self, accepted: socket.socket, requests: list[bytes]) -> None:
        self.socket = accepted
        self.requests = requests
        self.collector = proton.Collector()
        self.transport = proton.Transport(proton.Transport.SERVER)
        sasl = self.transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self.connection = proton.Connection()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.has_ended_session = False

    def run(self) -> None:
        try:
            while not self.transport.closed:
                self._events()
                while self.transport.pending() > 0:
                    out = self.transport.peek(self.transport.pending())
                    self.socket.sendall(out)
                    self.transport.pop(len(out))
                    self._events()
                received = self.socket.recv(65536)
                if not received:
                    return
                self._push(received)
        except OSError:
            return
        finally:
            self.socket.close()

    def _push(self, received: bytes) -> None:
        while received:
            taken = min(self.transport.capacity(), len(received))
            try:
                self.transport.push(received[:taken])
            except proton.TransportException:
                # azure-servicebus' other threads may speak once more on a session that it has ended; its requests are all there by then.
                if not self.has_ended_session:
                    raise
                raise ConnectionResetError("the client ended a session and went on with it") from None
            received = received[taken:]
            self._events()

    def _events(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type == proton.Event.CONNECTION_REMOTE_OPEN:
                event.connection.open()
            elif event.type == proton.Event.SESSION_REMOTE_OPEN:
                event.session.open()
            elif event.type == proton.Event.LINK_REMOTE_OPEN:
                self._open(event.link)
            elif event.type == proton.Event.DELIVERY:
                self._delivery(event.delivery)
            elif event.type == proton.Event.LINK_REMOTE_CLOSE:
                event.link.close()
            elif event.type == proton.Event.SESSION_REMOTE_CLOSE:
                self.has_ended_session = True
                event.session.close()
            elif event.type == proton.Event.CONNECTION_REMOTE_CLOSE:
                event.connection.close()
            self.collector.pop()

    def _open(self, link: proton.Link) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode, link.rcv_settle_mode = link.remote_snd_settle_mode, link.remote_rcv_settle_mode
        link.max_message_size = 1 << 20
        link.properties = {proton.symbol("com.microsoft:locked-until-utc"): _LOCKED_UNTIL}
        link.open()
        if link.is_receiver:
            link.flow(_CREDIT)

    def _delivery(self, delivery: Delivery) -> None:
        link = delivery.link
        if not link.is_receiver or not delivery.readable or delivery.partial:
            return
        raw = bytes(link.recv(delivery.pending))
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        link.flow(1)
        request = proton.Message()
        request.decode(raw)
        node = link.remote_target.address or ""
        if node.endswith("/$management"):
            self.requests.append(raw)
            properties = {"statusCode": int32(200), "statusDescription": "OK"}
            self._reply(link, node, request, properties, _answer(request.properties["operation"], request.body))
        elif node == "$cbs":
            self._reply(link, node, request, {"status-code": int32(200), "status-description": "OK"}, None)

    def _reply(self, link: proton.Link, node: str, request: proton.Message, properties: dict[str, Any], body: Any) -> None:
        """On the link of the same session that reads from the node: reply addresses need not be unique (wire-facts.md, section 3.3)."""
        reply = proton.Message(body=body, correlation_id=request.id, properties=properties)
        sender = self.connection.link_head(proton.Endpoint.LOCAL_ACTIVE)
        while sender is not None:
            if sender.is_sender and sender.session == link.session and sender.remote_source.address == node:
                sender.delivery(str(len(self.requests)))
                sender.send(reply.encode())
                sender.advance()
                return
            sender = sender.next(proton.Endpoint.LOCAL_ACTIVE)
        raise AssertionError(f"nobody reads the answers of {node}")


@contextmanager
def capturing() -> Iterator[CapturingService]:
    service = CapturingService()
    try:
        yield service
    finally:
        service.close()
