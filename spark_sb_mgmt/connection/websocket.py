"""AMQP in binary WebSocket messages, for networks that let nothing but HTTPS out (wire-facts.md, section 3.1).

The one rule: a stream like the others. What WebSocket adds (the upgrade, pings, its own close) is dealt with here and seen by nobody above.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from spark_sb_mgmt.connection.streams import ByteStream
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import ConnectionFailedError, InvalidArgumentError, RemoteProtocolError

try:
    import wsproto
    from wsproto import events
    from wsproto.utilities import RemoteProtocolError as WebSocketError
except ImportError:
    raise InvalidArgumentError("transport", "amqpWebSocket needs wsproto: pip install 'sbmgmt[websocket]'") from None

PATH: Final = "/$servicebus/websocket/"
SUBPROTOCOL: Final = "AMQPWSB10"
# Bytes of one message to the service.
_MESSAGE_SIZE: Final = 256 * 1024
_NOTHING: Final = memoryview(b"")


class WebSocketStream:
    """The client's side, over a stream that is connected and, but for an emulator, encrypted."""

    def __init__(self, below: ByteStream, host: str, deadline: Deadline) -> None:
        self._below = below
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._host = host
        self._to_send = bytearray()
        self._received: deque[bytes | bytearray] = deque()
        self._is_open = False
        self._ended = False
        try:
            self._upgrade(deadline)
        except BaseException:
            below.close()
            raise

    def _upgrade(self, deadline: Deadline) -> None:
        self._to_send += self._protocol.send(events.Request(host=self._host, target=PATH, subprotocols=[SUBPROTOCOL]))
        while not self._is_open:
            self._flush()
            self._take()
            if self._ended:
                raise ConnectionFailedError(f"{self._host} ended the connection instead of opening a WebSocket")
            if not self._is_open:
                deadline.check()
                self._below.wait(deadline.remaining, to_send=bool(self._to_send))

    def receive(self) -> memoryview | None:
        self._flush()
        if not self._received and not self._ended:
            self._take()
        if self._received:
            return memoryview(self._received.popleft())
        return _NOTHING if self._ended else None

    def send(self, data: bytes | bytearray | memoryview) -> int:
        if not self._flush():
            return 0
        part = bytes(data[:_MESSAGE_SIZE])
        self._to_send += self._protocol.send(events.BytesMessage(data=part))
        self._flush()
        return len(part)

    def wait(self, timeout: float, *, to_send: bool = False) -> None:
        if not self._received and not self._ended:
            self._below.wait(timeout, to_send=to_send or bool(self._to_send))

    def close(self) -> None:
        self._below.close()

    def interrupt(self) -> None:
        self._below.interrupt()

    def abandon(self) -> None:
        self._below.abandon()

    def _flush(self) -> bool:
        """Whether all went out."""
        while self._to_send:
            taken = self._below.send(self._to_send)
            if not taken:
                return False
            del self._to_send[:taken]
        return True

    def _take(self) -> None:
        data = self._below.receive()
        if data is None:
            return
        if not len(data):
            self._ended = True
            return
        try:
            self._protocol.receive_data(bytes(data))
            for event in self._protocol.events():
                self._handle(event)
        except WebSocketError as problem:
            raise RemoteProtocolError(f"{self._host} broke the WebSocket protocol: {problem}") from None

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.BytesMessage):
            # Some end a message by a frame with nothing in it; to those above, nothing would be the end of the stream.
            if event.data:
                self._received.append(event.data)
        elif isinstance(event, events.Ping):
            self._to_send += self._protocol.send(event.response())
        elif isinstance(event, events.CloseConnection):
            self._to_send += self._protocol.send(event.response())
            self._ended = True
        elif isinstance(event, events.AcceptConnection):
            if event.subprotocol != SUBPROTOCOL:
                raise ConnectionFailedError(f"{self._host} opened a WebSocket, but not for {SUBPROTOCOL}", retryable=False)
            self._is_open = True
        elif isinstance(event, events.RejectConnection):
            # Of what refuses, only overload passes by itself.
            raise ConnectionFailedError(
                f"{self._host} opened no WebSocket at {PATH}: HTTP status {event.status_code}", retryable=event.status_code >= 500
            )
        elif isinstance(event, events.TextMessage):
            raise RemoteProtocolError(f"{self._host} sent text in a WebSocket that carries AMQP")
