"""One thread for everything: sockets that are ready, timers that are due, calls from other threads.

The one rule: work is done in turns. In a turn all that is ready is handled, then `end_of_turn` runs once; it is there that changes are
committed and answers leave, in this order.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")
Callback = Callable[[], None]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Timer:
    """A call at a time. Cancelling it is all that can be done with it."""

    __slots__ = ("_callback", "when")

    def __init__(self, when: float, callback: Callback) -> None:
        self.when = when
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if self._callback is not None:
            self._callback()

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Loop:
    def __init__(self, end_of_turn: Callback) -> None:
        self._end_of_turn = end_of_turn
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._calls: deque[Callback] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        for one in (self._wake_receiver, self._wake_sender):
            one.setblocking(False)
        self._selector.register(self._wake_receiver, READ, lambda _: self._drain_wakes())
        self._thread: threading.Thread | None = None
        self._running = False

    # Sockets

    def watch(self, sock: socket.socket, callback: Callable[[int], None], events: int = READ) -> None:
        """Call back with the ready events, from now on."""
        self._selector.register(sock, events, callback)

    def change(self, sock: socket.socket, callback: Callable[[int], None], events: int) -> None:
        self._selector.modify(sock, events, callback)

    def unwatch(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    # Time

    @staticmethod
    def time() -> float:
        """Seconds of the machine's monotonic clock, which timers go by."""
        return time.monotonic()

    def call_at(self, when: float, callback: Callback) -> Timer:
        timer = Timer(when, callback)
        heappush(self._timers, timer)
        return timer

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        return self.call_at(self.time() + seconds, callback)

    # Other threads

    def call_soon(self, callback: Callback) -> None:
        """In a coming turn, from any thread."""
        self._calls.append(callback)
        # It fails if the loop has been woken often enough, or has ended.
        with suppress(OSError):
            self._wake_sender.send(b"\0")

    def run_in_loop(self, function: Callable[[], T], timeout: float = 30.0) -> T:
        """The result of a call in the loop's thread, after the turn that it was made in; at once if this is that thread."""
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def call() -> None:
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                # In the next turn: what the call brought about has happened by then.
                self.call_soon(lambda: future.set_result(result))

        if not self._running:
            raise RuntimeError("the emulator does not run")
        self.call_soon(call)
        return future.result(timeout)

    # Running

    def run(self) -> None:
        """Until `stop`."""
        self._thread = threading.current_thread()
        self._running = True
        try:
            while self._running:
                self._turn()
        finally:
            self._running = False

    def stop(self) -> None:
        """End after this turn."""
        self._running = False
        self.call_soon(lambda: None)

    def close(self) -> None:
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._timeout()):
            callback: Callable[[int], Any] = key.data
            callback(events)
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        now = self.time()
        while self._timers and self._timers[0].when <= now:
            heappop(self._timers).run()
        self._end_of_turn()

    def _timeout(self) -> float | None:
        if self._calls:
            return 0.0
        if not self._timers:
            return None
        return max(0.0, self._timers[0].when - self.time())

    def _drain_wakes(self) -> None:
        try:
            while self._wake_receiver.recv(4096):
                pass
        except BlockingIOError:
            pass
