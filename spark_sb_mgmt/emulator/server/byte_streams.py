"""The listening side's byte streams: plain TCP, TLS by Python's ssl, and WebSocket by wsproto, on sockets that never block.

The one rule: a stream moves bytes and knows nothing of AMQP. `receive` gives what is there, `send` tells how much it took.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final, Protocol

from spark_sb_mgmt.emulator.server.loop import READ, WRITE

if TYPE_CHECKING:
    from wsproto import WSConnection

CHUNK: Final = 256 * 1024
# wire-facts.md section 3.1.
WEBSOCKET_PATH: Final = "/$servicebus/websocket"
WEBSOCKET_SUBPROTOCOL: Final = "AMQPWSB10"


class EndOfStreamError(Exception):
    """The peer has closed, or the stream broke; nothing more comes or goes."""


class ByteStream(Protocol):
    @property
    def sock(self) -> socket.socket: ...

    def receive(self) -> bytes:
        """What is there, b"" if that is nothing now. Raises EndOfStreamError at the end."""

    def send(self, data: bytes | bytearray) -> int:
        """How many of these bytes were taken. Raises EndOfStreamError if none can go any more."""

    @property
    def wants(self) -> int:
        """The events that it needs to go on by itself, besides those that its user waits for."""

    def close(self) -> None: ...


class TcpStream:
    wants = 0

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    def receive(self) -> bytes:
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise EndOfStreamError(str(error)) from error
        if not data:
            raise EndOfStreamError("closed by the peer")
        return data

    def send(self, data: bytes | bytearray) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise EndOfStreamError(str(error)) from error

    def close(self) -> None:
        self.sock.close()


class TlsStream:
    """TLS over a socket; the handshake is done along the way."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock: ssl.SSLSocket = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._handshaken = False
        self.wants = READ

    def _handshake(self) -> bool:
        if not self._handshaken:
            self.sock.do_handshake()
            self._handshaken = True
            self.wants = 0
        return True

    def receive(self) -> bytes:
        parts: list[bytes] = []
        try:
            self._handshake()
            # ssl may hold decrypted bytes that no selector tells of: take all.
            while sum(map(len, parts)) < CHUNK or self.sock.pending():
                data = self.sock.recv(CHUNK)
                if not data:
                    if parts:
                        break
                    raise EndOfStreamError("closed by the peer")
                parts.append(data)
        except ssl.SSLWantReadError:
            self.wants &= ~WRITE
        except ssl.SSLWantWriteError:
            self.wants |= WRITE
        except OSError as error:
            raise EndOfStreamError(str(error)) from error
        return b"".join(parts)

    def send(self, data: bytes | bytearray) -> int:
        try:
            self._handshake()
            return self.sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise EndOfStreamError(str(error)) from error

    def close(self) -> None:
        self.sock.close()


class WebSocketStream:
    """AMQP in binary WebSocket messages, over a TCP or TLS stream."""

    def __init__(self, below: ByteStream) -> None:
        # Here and not above: wsproto is an extra, needed by those who listen for WebSockets.
        from wsproto import WSConnection
        from wsproto.connection import ConnectionType

        self._below = below
        self.sock = below.sock
        self._protocol: WSConnection = WSConnection(ConnectionType.SERVER)
        self._backlog = b""
        self._open = False
        self._closed = False

    @property
    def wants(self) -> int:
        return self._below.wants | (WRITE if self._backlog else 0)

    def receive(self) -> bytes:
        from wsproto import events
        from wsproto.utilities import ProtocolError

        data = self._below.receive()
        if not data:
            self._flush()
            return b""
        received = []
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if isinstance(event, events.Request):
                    self._answer(event)
                elif isinstance(event, events.BytesMessage):
                    received.append(bytes(event.data))
                elif isinstance(event, events.TextMessage):
                    self._write(self._protocol.send(events.CloseConnection(code=1003, reason="AMQP is binary")))
                    self._closed = True
                elif isinstance(event, events.Ping):
                    self._write(self._protocol.send(event.response()))
                elif isinstance(event, events.CloseConnection):
                    self._write(self._protocol.send(event.response()))
                    self._closed = True
        except ProtocolError as error:
            # The peer broke the protocol, or went on after its end.
            raise EndOfStreamError(str(error)) from error
        if self._closed and not received:
            raise EndOfStreamError("closed by the peer")
        return b"".join(received)

    def _answer(self, request: object) -> None:
        from wsproto import events

        assert isinstance(request, events.Request)
        path, _, _ = request.target.partition("?")
        if path.rstrip("/").lower() != WEBSOCKET_PATH or WEBSOCKET_SUBPROTOCOL not in request.subprotocols:
            self._write(
                self._protocol.send(events.RejectConnection(status_code=404 if WEBSOCKET_SUBPROTOCOL in request.subprotocols else 400))
            )
            raise EndOfStreamError("no AMQP WebSocket request")
        self._write(self._protocol.send(events.AcceptConnection(subprotocol=WEBSOCKET_SUBPROTOCOL)))
        self._open = True

    def send(self, data: bytes | bytearray) -> int:
        self._flush()
        if self._closed:
            # What came before the close was still taken; there is nobody for the answer.
            raise EndOfStreamError("closed by the peer")
        if self._backlog or not self._open:
            return 0
        from wsproto import events

        self._write(self._protocol.send(events.BytesMessage(data=bytes(data))))
        return len(data)

    def _write(self, data: bytes) -> None:
        self._backlog += data
        self._flush()

    def _flush(self) -> None:
        while self._backlog:
            taken = self._below.send(self._backlog)
            if not taken:
                return
            self._backlog = self._backlog[taken:]

    def close(self) -> None:
        self._below.close()
