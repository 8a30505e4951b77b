"""`ManagementClient`: one namespace, one connection, as many entities as one likes.

The one rule: nothing is opened before it is needed, nothing is left open after `close`, and nothing shows a secret.

Threads and processes: a client may be used from several threads, which take turns; for requests side by side, use `pipeline`, or give each
thread `another` client. In a forked process a client opens a connection of its own. A client does not pickle.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

from spark_sb_mgmt.client.addresses import check_path
from spark_sb_mgmt.client.entity import EntityClient
from spark_sb_mgmt.connection.channel import Channel
from spark_sb_mgmt.connection.connection_string import ENTITY_PATH, parse_connection_string
from spark_sb_mgmt.connection.credentials import AnyCredential, Credential, as_credential, credential_of
from spark_sb_mgmt.connection.endpoint import Endpoint, namespace_endpoint
from spark_sb_mgmt.connection.namespace import NamespaceConnection
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.settings import Settings
from spark_sb_mgmt.connection.timing import Timing
from spark_sb_mgmt.errors import InvalidArgumentError


class ManagementClient:
    """The management side of a Service Bus namespace.

        with ManagementClient.from_connection_string(cs) as client, client.entity("orders") as orders:
            for message in orders.peek_message(from_sequence_number=0, message_count=10):
                print(message.sequence_number, message.body)

    Settings, all by name: `transport` (`amqp` or `amqpWebSocket`), `ca_file`, `server_timeout_ms`, `max_retries`, `pipeline_depth`, and
    the times of `connection.settings.Settings`; `retry` gives a whole RetryPolicy, of which `max_retries` is one field.

    `credential` is one of azure-identity, azure-core's AzureNamedKeyCredential or AzureSasCredential, or a SharedAccessKey or
    SharedAccessSignature of `connection.credentials`.
    """

    def __init__(self, fully_qualified_namespace: str, credential: AnyCredential, **settings: Any) -> None:
        timing = settings.pop("timing", None)
        self._open(namespace_endpoint(fully_qualified_namespace, _settings(settings)), as_credential(credential), timing)

    @classmethod
    def from_connection_string(cls, connection_string: str, **settings: Any) -> ManagementClient:
        """A client by a connection string. With `UseDevelopmentEmulator=true` there is no encryption, without it always."""
        parsed = parse_connection_string(connection_string)
        timing = settings.pop("timing", None)
        endpoint = Endpoint(parsed.host, parsed.port, _settings(settings), parsed.use_development_emulator)
        client = cls.__new__(cls)
        client._open(endpoint, credential_of(parsed), timing, parsed.entity_path)
        return client

    def _open(self, endpoint: Endpoint, credential: Credential, timing: Timing | None, default_entity: str | None = None) -> None:
        if endpoint.is_encrypted:
            # Read now: a wrong caFile is the user's to know before anything is tried.
            _ = endpoint.tls
        self._use(NamespaceConnection(endpoint, credential, timing), default_entity)

    def _use(self, connection: NamespaceConnection, default_entity: str | None) -> None:
        self._connection = connection
        self._default_entity = default_entity

    def another(self) -> ManagementClient:
        """A client like this one, with a connection of its own, such as for another thread. Each is closed by itself."""
        client = type(self).__new__(type(self))
        client._use(self._connection.another(), self._default_entity)
        return client

    @property
    def fully_qualified_namespace(self) -> str:
        return self._connection.endpoint.host

    def entity(self, path: str | None = None) -> EntityClient:
        """The management node of an entity: `orders`, `site1/orders`, `events`, `events/Subscriptions/audit`, and of each but a topic
        `.../$DeadLetterQueue` and `.../$Transfer/$DeadLetterQueue`. Without a path, the EntityPath of the connection string. Nothing is
        opened yet."""
        if path is None:
            path = self._default_entity
            if path is None:
                raise InvalidArgumentError("path", f"must be given: the connection string has no {ENTITY_PATH}")
        self._connection.check_open()
        return EntityClient(Channel(self._connection, check_path(path)))

    def close(self) -> None:
        """Prompt, and harmless the second time."""
        self._connection.close()

    def __enter__(self) -> ManagementClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ManagementClient({self._connection!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ManagementClient does not pickle, and neither should its credential: open it where it is used")


def _settings(given: dict[str, Any]) -> Settings:
    if "max_retries" in given:
        retries, policy = given.pop("max_retries"), given.get("retry", RetryPolicy())
        # What is no policy is told by Settings.
        given["retry"] = replace(policy, max_retries=retries) if isinstance(policy, RetryPolicy) else policy
    unknown = sorted(set(given) - set(Settings.__dataclass_fields__))
    if unknown:
        known = sorted({*Settings.__dataclass_fields__, "max_retries"})
        raise InvalidArgumentError(unknown[0], f"is no setting: there are {', '.join(known)}")
    return Settings(**given)
