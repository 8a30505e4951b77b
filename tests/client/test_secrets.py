"""No key, signature, token or password in anything that a person or a log may see: errors with their tracebacks, and every repr."""

from __future__ import annotations

import gc
import pickle
import socket
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.client import ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.credentials import as_credential
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.operations.schedule import schedule_message
from tests.client.http_proxy import Proxy
from tests.client.scripted_peer import QUICK, Asked, ScriptedPeer

KEY = "aGlkZGVuLWtleS1vZi10aGUtcG9saWN5+/8="
SIGNATURE = "hidden%2Bsignature%3D"
TOKEN = "eyJhbGciOiJub25lIn0.eyJoaWRkZW4iOjF9.hidden-signature"
PASSWORD = "hidden-password"
BODY = b"hidden body of a message"
# None of it, and no part of it that would do.
HIDDEN = (KEY, KEY[:20], "hidden%2Bsignature", "hidden+signature", TOKEN, "hidden-signature", PASSWORD, BODY.decode())
LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
POLICY = f"SharedAccessKeyName=root;SharedAccessKey={KEY}"
SHARED_ACCESS_SIGNATURE = f"SharedAccessSignature sr=sb%3A%2F%2Fns&sig={SIGNATURE}&se=4102444800&skn=root"
# What a careless service may put into its texts.
ECHO = f"no access with {SHARED_ACCESS_SIGNATURE}, nor with SharedAccessKey={KEY}; and not with Bearer {TOKEN}"


def shown(error: BaseException) -> str:
    """All that a person may see of an error: here, and on the driver after a pickle."""
    carried = pickle.loads(pickle.dumps(error))
    return "\n".join(["".join(traceback.format_exception(error)), *(f"{one} {one!r} {vars(one)}" for one in (error, carried))])


def failing(use: Callable[[], Any]) -> str:
    with pytest.raises(SbMgmtError) as caught:
        use()
    return shown(caught.value)


def check(text: str) -> None:
    assert [hidden for hidden in HIDDEN if hidden in text] == []


def use(client: ManagementClient) -> Any:
    return client.entity("orders").schedule_message(ScheduledMessage(BODY, LATER, "m"))


def scripted(script: Callable[[Asked], None], **peer: Any) -> str:
    """What a client with the key shows of what this service does to it."""
    with ScriptedPeer(script, **peer) as service:
        text = f"Endpoint=sb://127.0.0.1:{service.port};{POLICY};UseDevelopmentEmulator=true"
        with ManagementClient.from_connection_string(text, **QUICK) as client:
            return failing(lambda: use(client)) + repr(client)


ECHOES: dict[str, Callable[[Asked], None]] = {
    "answer": lambda asked: asked.reply(401, None, "amqp:unauthorized-access", description=ECHO),
    "answer of no known status": lambda asked: asked.reply(299, None, description=ECHO),
    "condition": lambda asked: asked.reply(400, None, ECHO.encode("ascii", "replace").decode()),
    "status of another type": lambda asked: asked.reply(ECHO),
    "correlation id": lambda asked: asked.reply(200, None, correlation_id=ECHO),
    "tracking id": lambda asked: asked.reply(500, None, properties={"com.microsoft:tracking-id": ECHO}),
    "detach": lambda asked: asked.detach("amqp:unauthorized-access", ECHO),
    "no answer": lambda asked: None,
    "connection lost": Asked.drop,
    "garbage": lambda asked: asked.write(ECHO.encode()),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_what_a_service_says_is_shown_without_secrets(echo: Callable[[Asked], None]) -> None:
    check(scripted(echo))


def test_what_a_service_says_of_a_token_is_shown_without_secrets() -> None:
    said = {"status-code": Int(401), "status-description": ECHO}
    check(scripted(lambda asked: None, cbs=lambda asked: asked.reply(None, None, properties=said)))


def test_a_service_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessSignature={SHARED_ACCESS_SIGNATURE};UseDevelopmentEmulator=true"
    with ManagementClient.from_connection_string(text, **QUICK) as client:
        check(failing(lambda: use(client)) + repr(client))


@pytest.mark.parametrize(
    "text",
    [
        f"Endpoint=sb://ns;{POLICY};{KEY}",
        f"Endpoint=sb://ns;{POLICY};SharedAccessSignature={SHARED_ACCESS_SIGNATURE}",
        f"{POLICY}",
        f"Endpoint=sb://ns/;SharedAccessSignature={SHARED_ACCESS_SIGNATURE.replace('skn', 'skin')}",
        f"Endpoint=sb://root:{PASSWORD}@ns;{POLICY}",
        f"Endpoint=sb://ns;{POLICY};UseDevelopmentEmulator={KEY}",
    ],
)
def test_a_connection_string_that_is_none(text: str) -> None:
    check(failing(lambda: ManagementClient.from_connection_string(text)))
    check(failing(lambda: ManagementClient(text, SimpleNamespace(get_token=None))))


def test_a_credential_that_says_too_much() -> None:
    class Identity:
        def get_token(self, *scopes: str, **_: Any) -> Any:
            raise RuntimeError(f"client_secret='{PASSWORD}' was not accepted, nor {TOKEN}")

    with ScriptedPeer(lambda asked: None) as service, service.client() as client:
        client._connection._credential = as_credential(Identity())
        check(failing(lambda: use(client)) + repr(client._connection._credential))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 user:hidden-password is wrong\r\n\r\n", b"hidden-password\r\n\r\n", b""])
def test_a_proxy_and_its_password(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(lambda client, target: client.sendall(answer)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@{proxy.address}")
        with ManagementClient.from_connection_string(f"Endpoint=sb://ns;{POLICY}", transport="amqpWebSocket", max_retries=0) as client:
            check(failing(lambda: use(client)))


@pytest.mark.parametrize("named", [f"socks5://user:{PASSWORD}@proxy", f"http://user:{PASSWORD}@proxy:none"])
def test_a_proxy_that_is_named_wrongly(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", named)
    with ManagementClient.from_connection_string(f"Endpoint=sb://ns;{POLICY}", transport="amqpWebSocket") as client:
        check(failing(lambda: use(client)))


def parts(root: object) -> Iterator[object]:
    """Every object of our own that is reachable from one."""
    seen, todo = {id(root)}, [root]
    while todo:
        found = todo.pop()
        ours = type(found).__module__.startswith("spark_sb_mgmt.")
        if ours:
            yield found
        if ours or isinstance(found, (dict, list, tuple, set)) or type(found).__name__ in ("deque", "method", "generator"):
            fresh = [one for one in gc.get_referents(found) if id(one) not in seen and not isinstance(one, type)]
            seen.update(map(id, fresh))
            todo += fresh


def test_no_repr_of_anything_in_an_open_client_shows_a_secret() -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> None:
        held.append(asked)
        if len(held) == 2:
            held[0].reply(400, None, description=ECHO)

    with ScriptedPeer(script) as service:
        text = f"Endpoint=sb://127.0.0.1:{service.port};{POLICY};UseDevelopmentEmulator=true"
        with ManagementClient.from_connection_string(text, **QUICK) as client, client.entity("orders") as orders:
            outcomes = orders.pipeline([schedule_message([ScheduledMessage(BODY, LATER, "m")])] * 2, depth=2)
            next(outcomes)
            # One is in flight: its request, its call and its exchange are among what is looked at.
            found = {type(part).__name__: part for part in parts([client, orders, outcomes])}
            assert {"SharedAccessKey", "NamespaceConnection", "Engine", "RequestLinks", "Call", "Request", "Exchange"} <= set(found)
            for part in parts([client, orders, outcomes]):
                check(f"{part!r} {part}")
