"""Ways to the service: TCP, TLS and WebSocket, through a proxy or not; and certificates that are not to be trusted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

import pytest

from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.streams import tls_context
from spark_sb_mgmt.connection.timing import Timing
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.errors import ConnectionFailedError, DeadlineExceededError, InvalidArgumentError, SbMgmtError
from tests.client.certificates import Authority, Certificate
from tests.client.conftest import CONFIG, SOON
from tests.client.http_proxy import Proxy
from tests.emulator.server.websocket import PATH

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
WAYS = ["TCP", "TLS", "WebSocket", "WebSocket over TLS"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def start() -> Iterator[Callable[..., Emulator]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Emulator.start(CONFIG, **options))


def never_sleep(seconds: float, ended: threading.Event) -> None:
    raise AssertionError("it was tried again")


def failure(text: str, **settings: Any) -> SbMgmtError:
    """What a change ends in that is tried once."""
    settings = {"max_retries": 0, **settings}
    with ManagementClient.from_connection_string(text, **settings) as client, pytest.raises(SbMgmtError) as caught:
        client.entity("orders").cancel_scheduled_message([1])
    return caught.value


def open_client(
    start: Callable[..., Emulator], way: str, certificate: Certificate, authority: Authority, **settings: Any
) -> ManagementClient:
    """A client of a new emulator, by one of the WAYS."""
    options: dict[str, Any] = {"websocket_port": 0} if "WebSocket" in way else {}
    if "TLS" in way:
        options |= {"cert": certificate.cert, "key": certificate.key, **({} if "WebSocket" in way else {"tls_port": 0})}
    emulator = start(**options)
    port = emulator.websocket_port if "WebSocket" in way else emulator.tls_port if way == "TLS" else emulator.port
    text = f"Endpoint=sb://localhost:{port};{KEY}"
    if "TLS" in way:
        settings["ca_file"] = str(authority.ca_file)
    else:
        text += ";UseDevelopmentEmulator=true"
    settings = {"transport": "amqpWebSocket" if "WebSocket" in way else "amqp", "retry": SOON, **settings}
    return ManagementClient.from_connection_string(text, **settings)


# --- every way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_requests_and_answers_of_any_size_go_every_way(way: str, start: Callable[..., Emulator], authority: Authority) -> None:
    with open_client(start, way, authority.good(), authority) as client, client.entity("orders") as orders:
        bodies = [bytes([number]) * size for number, size in enumerate((0, 1, 65_535, 200_000, 250_000))]
        # More than a socket takes at once, and more than a frame.
        orders.schedule_message([ScheduledMessage(body, LATER, f"m{number}") for number, body in enumerate(bodies)])
        for _ in range(3):
            orders.schedule_message([ScheduledMessage(bodies[-1], LATER, f"n{number}") for number in range(3)])
        assert [message.body for message in orders.peek_message(message_count=5)] == bodies
        pages = list(orders.peek_range(page_size=2, depth=8))
        assert sorted(message.sequence_number for page in pages for message in page) == list(range(1, 15))
        assert orders.peek_message(6)[0].body == bodies[-1]


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_is_lost_is_opened_again_every_way(way: str, start: Callable[..., Emulator], authority: Authority) -> None:
    with open_client(start, way, authority.good(), authority) as client, client.entity("orders") as orders:
        (number,) = orders.schedule_message(ScheduledMessage(b"x", LATER, "m"))
        engine: Any = client._connection.engine
        engine.interrupt()
        assert orders.peek_message()[0].sequence_number == number


# --- certificates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["TLS", "WebSocket over TLS"])
@pytest.mark.parametrize(
    ("issue", "says"),
    [
        (Authority.unknown, "unable to get local issuer certificate"),
        (Authority.expired, "certificate has expired"),
        (Authority.of_another_name, "'localhost'"),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted(
    issue: Callable[[Authority], Certificate], says: str, way: str, start: Callable[..., Emulator], authority: Authority
) -> None:
    timing = Timing(sleep=never_sleep)
    with open_client(start, way, issue(authority), authority, timing=timing) as client:
        with pytest.raises(ConnectionFailedError, match="certificate of localhost is not to be trusted") as caught:
            client.entity("orders").schedule_message(ScheduledMessage(b"x", LATER, "m"))
        assert says in str(caught.value)
        assert "caFile" in str(caught.value)
        assert (caught.value.retryable, caught.value.may_have_taken_effect) == (False, False)


def test_the_authorities_of_the_system_are_trusted_besides_those_of_the_file(authority: Authority) -> None:
    own, both = tls_context(), tls_context(str(authority.ca_file))
    assert len(both.get_ca_certs()) == len(own.get_ca_certs()) + 1
    assert both.check_hostname
    assert both.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_of_authorities_that_is_none_is_found_before_anything_is_opened(content: bytes | None, tmp_path: Any) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match="no readable PEM file") as caught:
        ManagementClient.from_connection_string(f"Endpoint=sb://localhost;{KEY}", ca_file=str(path))
    assert caught.value.argument == "caFile"


def test_without_encryption_only_to_a_development_emulator(start: Callable[..., Emulator]) -> None:
    emulator = start()
    text = f"Endpoint=sb://localhost:{emulator.port};{KEY}"
    with ManagementClient.from_connection_string(text, timing=Timing(sleep=never_sleep)) as client:
        orders = client.entity("orders")
        with pytest.raises(ConnectionFailedError, match="no TLS with localhost"):
            orders.peek_message()
    # What reached it was no AMQP, so it never counted as a client.
    assert emulator.requests == {}


# --- WebSocket ----------------------------------------------------------------------------------------------------------


def http_server(answer: bytes) -> Proxy:
    """A server that answers any request with these bytes."""
    return Proxy(lambda client, target: client.sendall(answer))


@pytest.mark.parametrize(
    ("answer", "says", "retryable"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404", False),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP status 503", True),
        (b"AMQP\x00\x01\x00\x00 not HTTP at all\r\n\r\n", "WebSocket protocol", False),
        (b"", "instead of opening a WebSocket", True),
    ],
)
def test_a_server_that_opens_no_websocket(answer: bytes, says: str, retryable: bool) -> None:
    with http_server(answer) as server:
        error = failure(f"Endpoint=sb://{server.address};{KEY};UseDevelopmentEmulator=true", transport="amqpWebSocket")
    assert says in str(error)
    assert (error.retryable, error.may_have_taken_effect) == (retryable, False)
    assert server.requests[0].startswith(f"GET {PATH}")


# --- proxy --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["WebSocket", "WebSocket over TLS"])
def test_a_websocket_goes_through_the_proxy_of_the_environment(
    way: str, start: Callable[..., Emulator], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy() as proxy, open_client(start, way, authority.good(), authority) as client:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@{proxy.address}")
        with client.entity("orders") as orders:
            numbers = orders.schedule_message([ScheduledMessage(bytes(200_000), LATER, f"m{n}") for n in range(3)])
            assert [message.sequence_number for message in orders.peek_message()] == numbers
        (request,) = proxy.requests
        assert request.startswith(f"CONNECT localhost:{client._connection.endpoint.actual_port} HTTP/1.1\r\n")
        # user:p@ss
        assert "proxy-authorization: basic dxnlcjpwqhnz" in request.lower()


@pytest.mark.parametrize("way", ["TCP", "WebSocket"])
def test_no_proxy_for_hosts_without_one_and_for_plain_amqp(
    way: str, start: Callable[..., Emulator], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy() as proxy, open_client(start, way, authority.good(), authority) as client:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        if way == "WebSocket":
            monkeypatch.setenv("NO_PROXY", "elsewhere.example,localhost")
        assert len(client.entity("orders").peek_message()) == 0
        assert proxy.requests == []


@pytest.mark.parametrize(
    ("answer", "says", "retryable"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required", False),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502 Bad Gateway", True),
        (b"nonsense\r\n\r\n", "does not speak HTTP", False),
        (b"", "closed the connection without an answer", True),
    ],
)
def test_a_proxy_that_does_not_connect(answer: bytes, says: str, retryable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(answer) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:hidden@{proxy.address}")
        error = failure(f"Endpoint=sb://ns.example;{KEY}", transport="amqpWebSocket")
    assert isinstance(error, ConnectionFailedError)
    assert says in str(error)
    assert proxy.address in str(error)
    assert "hidden" not in str(error)
    assert error.retryable is retryable


@pytest.mark.parametrize("named", ["socks5://127.0.0.1:1080", "http://127.0.0.1:none", "http://", "http://[::1"])
def test_a_proxy_of_another_kind_is_refused_by_name(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", named)
    error = failure(f"Endpoint=sb://ns.example;{KEY}", transport="amqpWebSocket")
    assert isinstance(error, InvalidArgumentError)
    assert error.argument == "HTTPS_PROXY"
    assert "the one kind of proxy that is supported" in str(error)


# --- deadlines ----------------------------------------------------------------------------------------------------------


def connect_deadline(text: str, **settings: Any) -> None:
    error = failure(text, connect_timeout_s=0.2, **settings)
    assert isinstance(error, DeadlineExceededError)
    assert (error.deadline, error.seconds, error.may_have_taken_effect) == ("connect", 0.2, False)
    assert error.entity == "orders"


def test_a_name_that_nobody_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: never.wait())
    try:
        connect_deadline(f"Endpoint=sb://ns.example;{KEY}")
    finally:
        never.set()


def test_a_name_that_there_is_not() -> None:
    error = failure(f"Endpoint=sb://no-such-namespace.invalid;{KEY}")
    assert isinstance(error, ConnectionFailedError)
    assert "the name no-such-namespace.invalid is not known" in str(error)


@pytest.mark.parametrize("host", ["ns..example", f"{'n' * 64}.servicebus.windows.net"])
@pytest.mark.parametrize("transport", ["amqp", "amqpWebSocket"])
def test_a_name_that_cannot_be_one(host: str, transport: str) -> None:
    error = failure(f"Endpoint=sb://{host};{KEY}", transport=transport)
    assert isinstance(error, ConnectionFailedError)
    assert f"{host} cannot be the name of a host" in str(error)
    assert (error.retryable, error.entity) == (False, "orders")


def test_an_address_of_a_kind_that_this_machine_does_not_have(start: Callable[..., Emulator], monkeypatch: pytest.MonkeyPatch) -> None:
    text = start().connection_string
    resolve = socket.getaddrinfo

    def both(*args: Any, **options: Any) -> list[Any]:
        # A family that there is not, as IPv6 is none where it is turned off.
        return [(9999, socket.SOCK_STREAM, 6, "", ("::1", 5671)), *resolve(*args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with ManagementClient.from_connection_string(text) as client:
        assert len(client.entity("orders").peek_message()) == 0


def test_a_host_that_answers_no_connection() -> None:
    # A queue of one that is full: Linux answers no further connection.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as waiting:
        for _ in range(3):
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        connect_deadline(f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};{KEY};UseDevelopmentEmulator=true")


@pytest.mark.parametrize("transport", ["amqp", "amqpWebSocket"])
def test_a_server_that_never_finishes_tls(transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect_deadline(f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};{KEY}", transport=transport)


def test_a_server_that_never_answers_the_websocket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = f"Endpoint=sb://127.0.0.1:{listener.getsockname()[1]};{KEY};UseDevelopmentEmulator=true"
        connect_deadline(text, transport="amqpWebSocket")


def test_a_proxy_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
        connect_deadline(f"Endpoint=sb://ns.example;{KEY}", transport="amqpWebSocket")
