"""A server of this machine in threads of its own, gone with its `with` block."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

T = TypeVar("T", bound="Listening")
_DEADLINE_S = 10.0


class Listening:
    """Subclasses say what is done with a client, in `serve`. Sockets in `opened` are closed at the end, threads in `threads` joined."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.opened: list[socket.socket] = [self._listener]
        self.threads: list[threading.Thread] = []

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self.threads.append(thread)
        thread.start()

    def __enter__(self: T) -> T:
        self.start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for one in self.opened:
            with suppress(OSError):
                # What wakes a thread that waits for it.
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self.threads:
            thread.join(_DEADLINE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.opened.append(client)
            self.start(self.serve, client)
