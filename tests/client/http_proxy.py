"""An HTTP proxy that knows CONNECT, in a thread; or one that does what a test tells it to instead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

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


class Proxy:
    """`requests` are the heads of what was asked. `answer` gets the client's socket and the target."""

    def __init__(self, answer: Callable[[socket.socket, str], None] = pass_on) -> None:
        self.requests: list[str] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(_DEADLINE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
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
