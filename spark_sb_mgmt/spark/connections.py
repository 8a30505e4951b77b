"""Connections that a Python worker keeps between its tasks.

Spark reuses its Python workers, and opening a connection costs several round trips; so what one task opened the next one finds.

The one rule: a client never leaves its process. Pickling sends none along, and a client that was forked with its worker opens a connection
of its own (`connection.namespace`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.connection.credentials import entra_credential
from spark_sb_mgmt.spark.options.objects import ConnectionOptions

# Of options: a worker serves one application, which has few namespaces; the rest would only stand idle until the service drops them.
_MOST_KEPT: Final = 4


class Connections:
    """Clients by their options, those that were used last kept longest. Pickled it is empty: where the package is shipped by value, its
    modules' variables go with it."""

    def __init__(self) -> None:
        self._clients: OrderedDict[ConnectionOptions, list[ManagementClient]] = OrderedDict()

    def client(self, options: ConnectionOptions) -> ManagementClient:
        """The client for these options. It is kept: do not close it."""
        return self.clients(options, 1)[0]

    def clients(self, options: ConnectionOptions, count: int) -> Sequence[ManagementClient]:
        """As many for these options, such as for threads; they have one credential, so that a token is asked for once. Likewise kept."""
        clients = self._clients.setdefault(options, [])
        self._clients.move_to_end(options)
        while len(clients) < count:
            clients.append(clients[0].another() if clients else open_client(options))
        while len(self._clients) > _MOST_KEPT:
            _close_all(self._clients.popitem(last=False)[1])
        return clients[:count]

    def forget(self, options: ConnectionOptions) -> None:
        """Close those for these options, also under whoever uses them; the next use opens them again."""
        _close_all(self._clients.pop(options, ()))

    def close(self) -> None:
        """Close all; the next use opens them again."""
        while self._clients:
            _close_all(self._clients.popitem()[1])

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Connections, ()


def _close_all(clients: Iterable[ManagementClient]) -> None:
    for client in clients:
        client.close()


CONNECTIONS: Final = Connections()


def open_client(options: ConnectionOptions) -> ManagementClient:
    """A new client, for whoever closes it himself."""
    settings: dict[str, Any] = {
        "transport": options.transport,
        "ca_file": options.ca_file,
        "server_timeout_ms": options.server_timeout_ms,
        "max_retries": options.max_retries,
        "pipeline_depth": options.pipeline_depth,
    }
    if options.connection_string is not None:
        return ManagementClient.from_connection_string(options.connection_string, **settings)
    assert options.fully_qualified_namespace is not None, "options have one of the two"
    assert options.credential is not None, "options have both"
    credential = entra_credential(
        options.credential,
        client_id=options.client_id,
        tenant_id=options.tenant_id,
        client_secret=options.client_secret,
    )
    return ManagementClient(options.fully_qualified_namespace, credential, **settings)


def open_entity(options: ConnectionOptions, entity: str) -> EntityClient:
    """A link pair of one's own on the connection that is kept; closing it leaves the connection."""
    return CONNECTIONS.client(options).entity(entity)
