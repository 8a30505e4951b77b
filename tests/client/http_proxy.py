"""An HTTP proxy that knows CONNECT, in a thread; or one that does what a test tells it to instead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.client.listening import Listening

_DEADLINE_S = 10.0


def pass_on(client: socket.socket, target: str) -> None:
    """Connect to the target and carry everything both ways."""
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), _DEADLINE_S) as server:
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join(_DEADLINE_S)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Proxy(Listening):
    """`requests` are the heads of what was asked. `answer` gets the client's socket and the target."""

    def __init__(self, answer: Callable[[socket.socket, str], None] = pass_on) -> None:
        super().__init__()
        self.address = f"127.0.0.1:{self.port}"
        self.requests: list[str] = []
        self._answer = answer

    def serve(self, client: socket.socket) -> None:
        head = b""
        with client:
            while not head.endswith(b"\r\n\r\n"):
                data = client.recv(1)
                if not data:
                    return
                head += data
            self.requests.append(head.decode())
            with suppress(OSError):
                self._answer(client, head.split()[1].decode())
