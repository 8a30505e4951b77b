"""A whole emulator, put together: configuration, state, broker, ports. It runs in the thread that makes it.

The one rule: it ends in order. Ports close, clients are told, the data directory is let go; after a failure to write, clients are told
nothing, because what they wait for did not happen.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from spark_sb_mgmt.emulator.clock import Clock
from spark_sb_mgmt.emulator.config import AuthorizationRule, EmulatorConfig, load_config, parse_config
from spark_sb_mgmt.emulator.control import FIRST_BYTE
from spark_sb_mgmt.emulator.entities import Namespace
from spark_sb_mgmt.emulator.management import Management
from spark_sb_mgmt.emulator.rules import compile_rule
from spark_sb_mgmt.emulator.server.attach import attach
from spark_sb_mgmt.emulator.server.authorization import Policies
from spark_sb_mgmt.emulator.server.broker import Broker
from spark_sb_mgmt.emulator.server.byte_streams import TcpStream, TlsStream, WebSocketStream
from spark_sb_mgmt.emulator.server.controls import CommandConnection, Commands
from spark_sb_mgmt.emulator.server.listener import Listener, ListenError
from spark_sb_mgmt.emulator.storage import Store

# How the first record of a TLS client starts.
_TLS_HANDSHAKE: Final = b"\x16"


@dataclass(frozen=True)
class ServerSettings:
    """How to listen. Port 0 is a free one, None is none."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_port: int | None = None
    websocket_port: int | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    data_dir: str | Path | None = None
    accept_jwt: bool = False
    # Seconds without a frame after which a peer is taken for dead; half of it is told to the peer (AMQP 1.0 part 2.4.5).
    idle_timeout: float = 240.0


class Server:
    def __init__(self, config: Mapping[str, Any] | str | Path, settings: ServerSettings, clock: Clock | None = None) -> None:
        self.config = _read(config)
        self._settings = settings
        self._tls = _tls_context(settings)
        _check_websocket(settings)
        clock = clock or Clock()
        self._store = None if settings.data_dir is None else Store.open(Path(settings.data_dir), compile_rule=compile_rule)
        self._listeners: list[Listener] = []
        with ExitStack() as undo:
            if self._store is not None:
                undo.callback(self._store.close)
            namespace = Namespace(self.config.queues, self.config.topics, clock=clock, new_lock_token=uuid4, journal=self._store)
            if self._store is not None:
                namespace.restore(self._store.read())
                self._store.commit()
            self._broker = Broker(
                namespace,
                Management(namespace, compile_rule),
                Policies(self.config.authorization_rules, settings.accept_jwt),
                clock,
                commit=self._commit,
                attach=attach,
                idle_timeout=settings.idle_timeout,
            )
            self.loop = self._broker.loop
            undo.callback(self.loop.close)
            undo.callback(self._close_ports)
            self.commands = Commands(self._broker, clock)
            self.port = self._listen(settings.port, self._welcome)
            self.tls_port = None if settings.tls_port is None else self._listen(settings.tls_port, self._welcome_tls)
            self.websocket_port = (
                None if settings.websocket_port is None else self._listen(settings.websocket_port, self._welcome_websocket)
            )
            # All is there, so nothing is undone.
            undo.pop_all()

    @property
    def connection_string(self) -> str:
        """For a policy that may do everything, as clients of a development emulator take it."""
        policy = _strongest(self.config.authorization_rules)
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._settings.host, self._settings.host)
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return (
            f"Endpoint=sb://{host}:{self.port};SharedAccessKeyName={policy.key_name};SharedAccessKey={policy.primary_key};"
            "UseDevelopmentEmulator=true;"
        )

    def run(self) -> None:
        """Serve until `loop.stop()`; raises what makes it impossible to go on."""
        failed = True
        try:
            self.loop.run()
            failed = False
        finally:
            self._close_ports()
            for commander in list(self._broker.commanders):
                commander.close()
            for connection in list(self._broker.connections):
                if not failed:
                    connection.guard(connection.close)
                    connection.flush()
                connection.drop(by_peer=False)
            try:
                if not failed:
                    self._commit()
            finally:
                if self._store is not None:
                    self._store.close()
                self.loop.close()

    def _commit(self) -> None:
        if self._store is not None:
            self._store.commit()

    # Ports

    def _listen(self, port: int, welcome: Any) -> int:
        listener = Listener(self.loop, self._settings.host, port, welcome, self._broker.refuses)
        self._listeners.append(listener)
        return listener.port

    def _close_ports(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _welcome(self, sock: socket.socket, first: bytes) -> None:
        if first == FIRST_BYTE:
            CommandConnection(self._broker, self.commands, sock)
        else:
            self._broker.accept(TcpStream(sock))

    def _welcome_tls(self, sock: socket.socket, first: bytes) -> None:
        assert self._tls is not None
        # What is not TLS is found out by the handshake.
        self._broker.accept(TlsStream(sock, self._tls))

    def _welcome_websocket(self, sock: socket.socket, first: bytes) -> None:
        if self._tls is not None and first == _TLS_HANDSHAKE:
            self._broker.accept(WebSocketStream(TlsStream(sock, self._tls)))
        else:
            self._broker.accept(WebSocketStream(TcpStream(sock)))


def _read(config: Mapping[str, Any] | str | Path) -> EmulatorConfig:
    if isinstance(config, Mapping):
        return parse_config(config, compile_rule)
    return load_config(config, compile_rule)


def _strongest(rules: tuple[AuthorizationRule, ...]) -> AuthorizationRule:
    return max(rules, key=lambda rule: ("Manage" in rule.rights, len(rule.rights)))


def _check_websocket(settings: ServerSettings) -> None:
    if settings.websocket_port is not None and find_spec("wsproto") is None:
        raise ListenError("WebSockets need the package wsproto: pip install 'sbmgmt[websocket]'")


def _tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.cert is None:
        if settings.tls_port is not None or settings.key is not None:
            raise ListenError("TLS needs a certificate: give the PEM files of a certificate and its key (--cert and --key)")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.cert, settings.key)
    except OSError as error:
        # ssl's errors are OSErrors too, without a text of the system's.
        key = "a key in the same file (there is no --key)" if settings.key is None else f"the key {settings.key}"
        raise ListenError(f"the certificate {settings.cert} with {key} cannot be used: {error}") from error
    return context
