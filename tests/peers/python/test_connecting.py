"""azure-servicebus comes in: keys, signatures, rights, tokens, TLS, WebSocket, faults on the way, and the async clients."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import hmac
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus import aio as asynchronous
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from spark_sb_mgmt.emulator import Emulator, Fault
from tests.peers.python.conftest import CONFIG
from tests.peers.python.traffic import ONCE, PATIENT, WAIT, one, send, texts


def with_key(emulator: Emulator, name: str, key: str) -> ServiceBusClient:
    connection_string = emulator.connection_string.replace("=RootManageSharedAccessKey", f"={name}").replace("=SAS_KEY_VALUE", f"={key}")
    return ServiceBusClient.from_connection_string(connection_string, **ONCE)


def with_credential(emulator: Emulator, credential: Any, **options: Any) -> ServiceBusClient:
    return ServiceBusClient(f"127.0.0.1:{emulator.port}", credential, use_tls=False, **(options or ONCE))


def signature(path: str, seconds: int) -> str:
    """A ready-made one that is good for so long."""
    resource, expires = quote(f"sb://127.0.0.1/{path}", safe=""), int(time.time()) + seconds
    signed = base64.b64encode(hmac.new(b"SAS_KEY_VALUE", f"{resource}\n{expires}".encode(), hashlib.sha256).digest())
    return f"SharedAccessSignature sr={resource}&sig={quote(signed, safe='')}&se={expires}&skn=RootManageSharedAccessKey"


def peek(client: ServiceBusClient, queue: str = "orders") -> list[str]:
    with client.get_queue_receiver(queue) as receiver:
        return texts(receiver.peek_messages(10, sequence_number=1))


# Who gets in. What a token was refused for the SDK does not say.


def test_a_wrong_key_and_an_unknown_policy_are_refused_and_nothing_is_stored(emulator: Emulator) -> None:
    for name, key in (("RootManageSharedAccessKey", "WRONG"), ("nobody", "SAS_KEY_VALUE")):
        with with_key(emulator, name, key) as client:
            with pytest.raises(ServiceBusAuthenticationError):
                send(client, "orders", "x")
            with pytest.raises(ServiceBusAuthenticationError):
                peek(client)
    assert emulator.counts("orders")["active"] == 0


def test_a_policy_that_may_only_listen_receives_and_does_not_send(emulator: Emulator, client: ServiceBusClient) -> None:
    send(client, "orders", "heard")
    with with_key(emulator, "reader", "reader-key") as reader:
        assert peek(reader) == ["heard"]
        with reader.get_queue_receiver("orders") as receiver:
            receiver.complete_message(one(receiver))
        with pytest.raises(ServiceBusAuthorizationError, match="Send"):
            send(reader, "orders", "x")


def test_a_named_key_is_as_good_as_a_connection_string(emulator: Emulator) -> None:
    with with_credential(emulator, AzureNamedKeyCredential("RootManageSharedAccessKey", "SAS_KEY_VALUE")) as client:
        send(client, "orders", "a")
        assert peek(client) == ["a"]


def test_a_ready_made_signature_is_good_for_its_entity_and_until_it_expires(emulator: Emulator) -> None:
    credential = AzureSasCredential(signature("orders", 600))
    with with_credential(emulator, credential, **PATIENT) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("in time"))
        with pytest.raises(ServiceBusAuthenticationError):
            send(client, "failed", "x")
        emulator.advance(601)
        # The link that was open goes, and there is no way to another.
        with pytest.raises(ServiceBusAuthenticationError):
            sender.send_messages(ServiceBusMessage("too late"))
    assert emulator.counts("orders")["active"] == 1


def test_an_expired_signature_is_refused(emulator: Emulator) -> None:
    with with_credential(emulator, AzureSasCredential(signature("orders", -1))) as client, pytest.raises(ServiceBusAuthenticationError):
        peek(client)


class Identity:
    """A credential of Entra ID, as azure-identity makes them."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        expires = int(time.time()) + 3600
        parts = ({"alg": "RS256", "typ": "JWT"}, {"exp": expires})
        head, claims = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        return AccessToken(f"{head}.{claims}.c2lnbmF0dXJl", expires)


def test_tokens_of_entra_id_are_accepted_only_where_that_is_wished(emulator: Emulator) -> None:
    with with_credential(emulator, Identity()) as client, pytest.raises(ServiceBusAuthenticationError):
        peek(client)
    with Emulator.start(CONFIG, accept_jwt=True) as trusting, with_credential(trusting, Identity()) as client:
        send(client, "orders", "a")
        assert peek(client) == ["a"]


def test_an_entity_that_is_not_there_has_no_token(client: ServiceBusClient) -> None:
    # As its own live tests expect of the service: the SDK gets no further than its token.
    with pytest.raises(ServiceBusAuthenticationError):
        send(client, "nowhere", "x")
    with pytest.raises(ServiceBusAuthenticationError):
        peek(client, "nowhere")


# Other ways in


@pytest.fixture(params=[TransportType.Amqp, TransportType.AmqpOverWebsocket], ids=["TLS", "WebSocket"])
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., ServiceBusClient]]:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ports = {"tls_port": 0} if request.param == TransportType.Amqp else {"websocket_port": 0}
    with Emulator.start(CONFIG, cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", **ports) as emulator:

        def connect(**options: Any) -> ServiceBusClient:
            return ServiceBusClient(
                "localhost",
                AzureNamedKeyCredential("RootManageSharedAccessKey", "SAS_KEY_VALUE"),
                transport_type=request.param,
                custom_endpoint_address=f"sb://localhost:{emulator.tls_port or emulator.websocket_port}",
                retry_total=0,
                **options,
            )

        yield connect


def test_the_secure_ports_serve_as_plain_tcp_does(secure: Callable[..., ServiceBusClient], tmp_path: Path) -> None:
    with secure(connection_verify=str(tmp_path / "ca.pem")) as client:
        send(client, "orders", "small", "x" * 200_000)
        with client.get_queue_receiver("orders") as receiver:
            for size in (5, 200_000):
                message = one(receiver)
                assert len(str(message)) == size
                receiver.complete_message(message)
        assert peek(client) == []


def test_a_certificate_that_is_not_trusted_is_not_connected_to(secure: Callable[..., ServiceBusClient]) -> None:
    with secure() as client, pytest.raises((ServiceBusConnectionError, ServiceBusAuthenticationError), match=r"(?i)certificate"):
        peek(client)


# What goes wrong on the way


@pytest.fixture
def forgotten_sockets() -> Iterator[None]:
    """The SDK does not close the socket of a connection that was lost. Collected here, where that is no failure, and not before."""
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        gc.enable()


def test_an_oversized_message_is_refused_and_the_sender_goes_on(emulator: Emulator) -> None:
    # Its link goes with it, so the SDK needs a second attempt for the next message.
    with ServiceBusClient.from_connection_string(emulator.connection_string, **PATIENT) as client:
        with client.get_queue_sender("orders") as sender:
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(ServiceBusMessage(b"x" * 300 * 1024))
            sender.send_messages(ServiceBusMessage("small"))
        assert peek(client) == ["small"]


def test_a_throttled_request_says_so_and_is_tried_again_by_the_sdk(emulator: Emulator, client: ServiceBusClient) -> None:
    emulator.faults.add(Fault("throttle", operation="peek-message", seconds=0.01))
    with pytest.raises(ServiceBusServerBusyError):
        peek(client)


@pytest.mark.parametrize(
    ("action", "operation"),
    # Not a management link that is detached: the SDK takes that for an error of its user's.
    [("drop-link", "send"), ("drop-link", "settle"), ("drop-connection", "send"), ("drop-connection", "peek-message")],
)
@pytest.mark.usefixtures("forgotten_sockets")
def test_what_is_lost_is_opened_again_by_the_sdk(emulator: Emulator, action: Any, operation: str) -> None:
    with ServiceBusClient.from_connection_string(emulator.connection_string, **PATIENT) as client:
        fault = emulator.faults.add(Fault(action, operation=operation))
        send(client, "orders", "a", "b")
        assert peek(client) == ["a", "b"]
        with client.get_queue_receiver("orders") as receiver:
            receiver.complete_message(one(receiver))
        assert peek(client) == ["b"]
    assert emulator.faults.hits(fault) == 1


def test_async_clients_send_receive_and_settle_side_by_side(emulator: Emulator) -> None:
    queues, count = ("orders", "failed", "once", "site1/Orders"), 20

    async def work(queue: str) -> list[str]:
        async with (
            asynchronous.ServiceBusClient.from_connection_string(emulator.connection_string, **ONCE) as client,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
        ):
            await sender.send_messages([ServiceBusMessage(f"{queue}-{number}", message_id=str(number)) for number in range(count)])
            received: list[str] = []
            while len(received) < count:
                messages = await receiver.receive_messages(count, max_wait_time=WAIT)
                assert messages, f"{count} messages were expected, {len(received)} came"
                for message in messages:
                    received.append(str(message))
                    await receiver.complete_message(message)
            return received

    async def everyone() -> list[list[str]]:
        return await asyncio.gather(*map(work, queues))

    for queue, received in zip(queues, asyncio.run(everyone()), strict=True):
        assert received == [f"{queue}-{number}" for number in range(count)]
        assert emulator.counts(queue)["active"] == 0
