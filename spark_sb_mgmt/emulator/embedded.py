"""The emulator inside a Python program: started in a thread of its own, stopped with the `with` block.

    with Emulator.start("conf/emulator.json") as emulator:
        client = ServiceBusClient.from_connection_string(emulator.connection_string)

The one rule: the thread that serves is the only one that touches its state; everything here asks it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from spark_sb_mgmt.emulator.clock import Clock
from spark_sb_mgmt.emulator.control import ControlError, EmulatorControl
from spark_sb_mgmt.emulator.server.loop import LoopEndedError
from spark_sb_mgmt.emulator.server.server import Server, ServerSettings

_STOP_TIMEOUT_S = 30.0


class Emulator(EmulatorControl):
    """A running emulator; get one by `Emulator.start`."""

    def __init__(self, server: Server, thread: threading.Thread, ended: Future[None]) -> None:
        super().__init__(self._command)
        self._server = server
        self._thread = thread
        self._ended = ended
        self.connection_string = server.connection_string
        self.port = server.port
        self.tls_port = server.tls_port
        self.websocket_port = server.websocket_port

    @classmethod
    def start(
        cls,
        config: Mapping[str, Any] | str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls_port: int | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        websocket_port: int | None = None,
        data_dir: str | Path | None = None,
        clock: Clock | None = None,
        accept_jwt: bool = False,
        idle_timeout: float = ServerSettings.idle_timeout,
    ) -> Emulator:
        """Serve `config`, a file of the official emulator's format or what it holds. It accepts connections when this returns.

        `port` 0 picks a free one. `clock=ManualClock()` gives a service whose time only `advance` moves.
        """
        settings = ServerSettings(host, port, tls_port, websocket_port, cert, key, data_dir, accept_jwt, idle_timeout)
        started: Future[Server] = Future()
        ended: Future[None] = Future()

        def serve() -> None:
            try:
                server = Server(config, settings, clock)
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result(server)
            try:
                server.run()
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        thread = threading.Thread(target=serve, name="sbmgmt-emulator", daemon=True)
        thread.start()
        return cls(started.result(), thread, ended)

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Close all connections and end; stopping twice is harmless. Raises what made it end before, if something did."""
        self._server.loop.stop()
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise ControlError(f"the emulator did not stop within {_STOP_TIMEOUT_S:g} s")
        self._ended.result()

    def _command(self, command: str, arguments: Mapping[str, Any]) -> Any:
        try:
            return self._server.loop.run_in_loop(lambda: self._server.commands(command, arguments))
        except LoopEndedError:
            raise ControlError(f"'{command}' comes too late: the emulator has ended") from None

    def __repr__(self) -> str:
        return f"<Emulator on port {self.port}>"
