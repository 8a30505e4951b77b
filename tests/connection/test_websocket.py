"""The stream inside a WebSocket, against wsproto's own server in memory."""

from __future__ import annotations

import time

from wsproto import ConnectionType, WSConnection, events

from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.connection.websocket import SUBPROTOCOL, WebSocketStream


class Server:
    """Both the byte stream below and the peer at its other end."""

    def __init__(self) -> None:
        self.peer = WSConnection(ConnectionType.SERVER)
        self.to_client = bytearray()

    def say(self, event: events.Event) -> None:
        self.to_client += self.peer.send(event)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        self.peer.receive_data(bytes(data))
        for event in self.peer.events():
            if isinstance(event, events.Request):
                self.say(events.AcceptConnection(subprotocol=SUBPROTOCOL))
        return len(data)

    def receive(self) -> memoryview | None:
        data, self.to_client = self.to_client, bytearray()
        return memoryview(data) if data else None

    def wait(self, timeout: float, *, to_send: bool = False) -> None:
        raise AssertionError("all is there at once")

    def close(self) -> None: ...
    def interrupt(self) -> None: ...
    def abandon(self) -> None: ...


def open_stream(server: Server) -> WebSocketStream:
    return WebSocketStream(server, "localhost", Deadline("connect", 10, time.monotonic))


def received(stream: WebSocketStream) -> bytes:
    data = b""
    while (part := stream.receive()) is not None:
        assert len(part), "the end of the stream"
        data += part
    return data


def test_a_message_that_ends_with_an_empty_frame_does_not_end_the_stream() -> None:
    server = Server()
    stream = open_stream(server)
    server.say(events.BytesMessage(data=b"one", message_finished=False))
    server.say(events.BytesMessage(data=b""))
    server.say(events.BytesMessage(data=b""))
    assert received(stream) == b"one"
    server.say(events.BytesMessage(data=b" more"))
    assert received(stream) == b" more"


def test_the_close_of_the_websocket_is_the_end_of_the_stream() -> None:
    server = Server()
    stream = open_stream(server)
    server.say(events.BytesMessage(data=b"last"))
    server.say(events.CloseConnection(code=1000))
    assert bytes(stream.receive() or b"") == b"last"
    assert stream.receive() == b""
