"""Ports that clients come to.

The one rule: what a newcomer speaks is told by its first byte, and nothing is done for it before.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Final

from spark_sb_mgmt.emulator.server.loop import Loop
from spark_sb_mgmt.errors import SbMgmtError

# Given a socket and its first byte, which is still to be read.
Welcome = Callable[[socket.socket, bytes], None]
_BACKLOG: Final = 512
# A newcomer that says nothing for so long is not waited for.
_PATIENCE_S: Final = 60.0
_log = logging.getLogger(__name__)


class ListenError(SbMgmtError):
    """A port that cannot be listened on."""


class Listener:
    """One port. `refuses` is asked at every newcomer."""

    def __init__(self, loop: Loop, host: str, port: int, welcome: Welcome, refuses: Callable[[], bool]) -> None:
        self._loop = loop
        self._welcome = welcome
        self._refuses = refuses
        self._at_the_door: set[socket.socket] = set()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        except (OSError, UnicodeError) as error:
            raise ListenError(f"the host '{host}' is not known: {error}") from error
        self._sock = socket.socket(family, kind, protocol)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind(address)
            self._sock.listen(_BACKLOG)
        except OSError as error:
            self._sock.close()
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port, or 0 for a free one") from error
        self._sock.setblocking(False)
        loop.watch(self._sock, self._on_ready)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def _on_ready(self, _: int) -> None:
        while True:
            try:
                sock, _address = self._sock.accept()
            except OSError:
                # Nobody more; or one who went again, or no file descriptor is free: later.
                return
            if self._refuses():
                sock.close()
                continue
            sock.setblocking(False)
            self._at_the_door.add(sock)
            self._loop.watch(sock, lambda _, sock=sock: self._look(sock))  # type: ignore[misc]
            self._loop.call_later(_PATIENCE_S, lambda sock=sock: self._send_away(sock))  # type: ignore[misc]

    def _look(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        if not first:
            self._send_away(sock)
            return
        self._at_the_door.discard(sock)
        self._loop.unwatch(sock)
        try:
            self._welcome(sock, first)
        except Exception as error:
            # A TLS client that went again before its socket was wrapped, for one.
            _log.warning("a connection could not be taken: %s", error)
            sock.close()

    def _send_away(self, sock: socket.socket) -> None:
        if sock in self._at_the_door:
            self._at_the_door.discard(sock)
            self._loop.unwatch(sock)
            sock.close()

    def close(self) -> None:
        self._loop.unwatch(self._sock)
        self._sock.close()
        for sock in list(self._at_the_door):
            self._send_away(sock)
