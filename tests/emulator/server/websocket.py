"""A WebSocket client by wsproto, as far as it looks like a socket."""

from __future__ import annotations

import socket

from wsproto import ConnectionType, WSConnection, events

PATH, SUBPROTOCOL = "/$servicebus/websocket/", "AMQPWSB10"


class WebSocketClosedError(Exception):
    """The server does not go on; `code` is its HTTP status or its close code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


class WebSocketClient:
    """Over a connected socket, plain or TLS, which it owns."""

    def __init__(self, below: socket.socket, path: str = PATH, subprotocols: tuple[str, ...] = (SUBPROTOCOL,)) -> None:
        self.below = below
        self.protocol = WSConnection(ConnectionType.CLIENT)
        below.sendall(self.protocol.send(events.Request(host="localhost", target=path, subprotocols=list(subprotocols))))
        accepted = self.next_event()
        assert isinstance(accepted, events.AcceptConnection)
        self.subprotocol = accepted.subprotocol

    def next_event(self) -> events.Event:
        """The next thing that the server said."""
        while True:
            for event in self.protocol.events():
                if isinstance(event, events.RejectConnection):
                    raise WebSocketClosedError(event.status_code)
                if isinstance(event, events.CloseConnection):
                    raise WebSocketClosedError(event.code)
                return event
            data = self.below.recv(1 << 20)
            self.protocol.receive_data(data or None)
            if not data:
                raise WebSocketClosedError(1006)

    def say(self, event: events.Event) -> None:
        self.below.sendall(self.protocol.send(event))

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # As a socket

    def fileno(self) -> int:
        return self.below.fileno()

    def sendall(self, data: bytes) -> None:
        self.say(events.BytesMessage(data=data))

    def recv(self, size: int) -> bytes:
        """All that one read of the socket brings, so that nothing is left that no selector tells of."""
        self.protocol.receive_data(self.below.recv(1 << 20) or None)
        while getattr(self.below, "pending", lambda: 0)():
            self.protocol.receive_data(self.below.recv(1 << 20))
        return b"".join(event.data for event in self.protocol.events() if isinstance(event, events.BytesMessage))

    def close(self) -> None:
        self.below.close()
