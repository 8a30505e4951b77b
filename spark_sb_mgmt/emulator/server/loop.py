"""One thread for everything: sockets that are ready, timers that are due, calls from other threads.

The one rule: work is done in turns. In a turn all that is ready is handled, then `end_of_turn` runs once; it is there that changes are
committed and answers leave, in this order. What fails in a turn is logged and the loop goes on; only a failure of `end_of_turn` ends it.
"""

from __future__ import annotations

import logging
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
_log = logging.getLogger(__name__)


class LoopEndedError(RuntimeError):
    """What was to be called in the loop is not, because the loop has ended."""

    def __init__(self) -> None:
        super().__init__("the emulator does not run any more")


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
        self._stopping = False
        # Calls of other threads that wait for their result; what is left of them when the loop ends fails.
        self._awaited: set[Future[Any]] = set()
        self._has_ended = False
        self._ending = threading.Lock()

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

        def finish(set_outcome: Callback) -> None:
            with self._ending:
                if future in self._awaited:
                    self._awaited.discard(future)
                    set_outcome()

        def call() -> None:
            try:
                result = function()
            except BaseException as error:
                failure = error
                finish(lambda: future.set_exception(failure))
            else:
                # In the next turn: what the call brought about has happened by then.
                self.call_soon(lambda: finish(lambda: future.set_result(result)))

        with self._ending:
            if self._has_ended:
                raise LoopEndedError
            self._awaited.add(future)
        self.call_soon(call)
        return future.result(timeout)

    # Running

    def run(self) -> None:
        """Until `stop`."""
        self._thread = threading.current_thread()
        while not self._stopping:
            self._turn()

    def stop(self) -> None:
        """End after this turn, or before the first; from any thread, and from a signal handler."""
        self._stopping = True
        self.call_soon(lambda: None)

    def close(self) -> None:
        with self._ending:
            self._has_ended = True
            for future in self._awaited:
                future.set_exception(LoopEndedError())
            self._awaited.clear()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._timeout()):
            callback: Callable[[int], Any] = key.data
            try:
                callback(events)
            except Exception:
                _log.exception("a socket is not listened to any more: what came from it made the emulator fail")
                with suppress(KeyError, ValueError):
                    self._selector.unregister(key.fileobj)
        for _ in range(len(self._calls)):
            _safely(self._calls.popleft())
        now = self.time()
        while self._timers and self._timers[0].when <= now:
            _safely(heappop(self._timers).run)
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


def _safely(callback: Callback) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a call failed, and the emulator goes on")
