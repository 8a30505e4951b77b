"""Where a namespace is and how to get there: a byte stream, opened in the way that the settings and the connection string say.

The one rule: without encryption only to a development emulator.
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from spark_sb_mgmt.connection.settings import Settings
from spark_sb_mgmt.connection.streams import ByteStream, connect_tcp, over_socket, tls_context
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import InvalidArgumentError

# By transport and whether it is encrypted (wire-facts.md, section 3.1).
_PORTS: Final = {("amqp", True): 5671, ("amqp", False): 5672, ("amqpWebSocket", True): 443, ("amqpWebSocket", False): 80}
_HIGHEST_PORT: Final = 65_535
_NAMESPACE: Final = re.compile(r"([A-Za-z0-9._-]+)(?::(\d{1,5}))?")


@dataclass(frozen=True)
class Endpoint:
    """`port` None is the usual one of the transport."""

    host: str
    port: int | None
    settings: Settings
    use_development_emulator: bool = False

    @property
    def is_encrypted(self) -> bool:
        return not self.use_development_emulator

    @property
    def actual_port(self) -> int:
        return self.port or _PORTS[self.settings.transport, self.is_encrypted]

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        return tls_context(self.settings.ca_file) if self.is_encrypted else None

    def open(self, deadline: Deadline) -> ByteStream:
        """A stream on which AMQP may start at once."""
        if self.settings.transport == "amqp":
            return over_socket(connect_tcp(self.host, self.actual_port, deadline), self.host, self.tls, deadline)
        # Here: wsproto is an extra, for those who ask for this transport.
        from spark_sb_mgmt.connection.websocket import WebSocketStream

        return WebSocketStream(over_socket(self._web_socket(deadline), self.host, self.tls, deadline), self.host, deadline)

    def _web_socket(self, deadline: Deadline) -> socket.socket:
        from spark_sb_mgmt.connection.http_proxy import connect_through, proxy_for

        proxy = proxy_for(self.host)
        if proxy is None:
            return connect_tcp(self.host, self.actual_port, deadline)
        return connect_through(proxy, self.host, self.actual_port, deadline)

    def audience(self, entity: str) -> str:
        """The URI that a token for this entity is for."""
        return f"sb://{self.host}/{entity}"


def namespace_endpoint(fully_qualified_namespace: str, settings: Settings) -> Endpoint:
    """From `<namespace>.servicebus.windows.net`, perhaps with a port."""
    # It may be a whole connection string, so it is not shown.
    problem = InvalidArgumentError(
        "fullyQualifiedNamespace", "is not <namespace>.servicebus.windows.net, perhaps with a port: give the host alone, without sb://"
    )
    if not isinstance(fully_qualified_namespace, str):
        raise problem
    found = _NAMESPACE.fullmatch(fully_qualified_namespace)
    if found is None or (found[2] is not None and not 0 < int(found[2]) <= _HIGHEST_PORT):
        raise problem
    return Endpoint(found[1], int(found[2]) if found[2] else None, settings)
