"""Through an HTTP proxy by CONNECT (RFC 9110, section 9.3.6), where the environment names one.

The one rule: the usual variables mean what they mean elsewhere (HTTPS_PROXY, NO_PROXY and their lower-case forms), and what they hold of a
user and a password is sent to the proxy and shown to nobody.
"""

from __future__ import annotations

import base64
import socket
from dataclasses import dataclass, field
from http.client import responses
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import h11

from spark_sb_mgmt.connection.streams import connect_tcp
from spark_sb_mgmt.connection.timing import Deadline
from spark_sb_mgmt.errors import ConnectionFailedError, InvalidArgumentError

_DEFAULT_PORT: Final = 8080
# A proxy answers with a status and some headers; h11 refuses what is longer than this.
_LONGEST_ANSWER: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Proxy:
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def proxy_for(host: str) -> Proxy | None:
    """The proxy that the environment names for HTTPS to this host."""
    proxies = getproxies_environment()
    named = proxies.get("https") or proxies.get("all")
    if not named or proxy_bypass(host):
        return None
    problem = InvalidArgumentError("HTTPS_PROXY", "of the environment is not http://<host>:<port>, the one kind of proxy that is supported")
    try:
        parts = urlsplit(named if "//" in named else f"//{named}")
        name, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        raise problem from None
    if parts.scheme not in ("", "http") or not name:
        raise problem
    authorization = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
    return Proxy(name, port, authorization)


def connect_through(proxy: Proxy, host: str, port: int, deadline: Deadline) -> socket.socket:
    """A socket on which everything goes to and comes from that host."""
    sock = connect_tcp(proxy.host, proxy.port, deadline)
    try:
        _ask(sock, proxy, f"{host}:{port}", deadline)
    except OSError as problem:
        sock.close()
        if isinstance(problem, TimeoutError):
            raise deadline.error() from None
        raise ConnectionFailedError(f"the proxy {proxy.host}:{proxy.port} broke the connection: {problem.strerror or problem}") from problem
    except BaseException:
        sock.close()
        raise
    return sock


def _ask(sock: socket.socket, proxy: Proxy, target: str, deadline: Deadline) -> None:
    where = f"the proxy {proxy.host}:{proxy.port}"
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_ANSWER)
    headers = [("Host", target)]
    if proxy.authorization is not None:
        headers.append(("Proxy-Authorization", proxy.authorization))
    asked = protocol.send(h11.Request(method="CONNECT", target=target, headers=headers)) or b""
    sock.settimeout(deadline.remaining or 0.001)
    sock.sendall(asked + (protocol.send(h11.EndOfMessage()) or b""))
    while True:
        try:
            event = protocol.next_event()
        except h11.RemoteProtocolError:
            # What it said is not repeated, here and below: it may repeat what we did.
            raise ConnectionFailedError(f"{where} does not speak HTTP", retryable=False) from None
        if event is h11.NEED_DATA:
            deadline.check()
            sock.settimeout(deadline.remaining or 0.001)
            # One byte at a time past the headers would be the far end's; a proxy sends nothing of its own after its answer, and the
            # far end speaks second in TLS, so there is nothing to lose in reading more.
            data = sock.recv(4096)
            if not data:
                # h11 would call that a breach of the protocol; it is a connection that broke.
                raise ConnectionFailedError(f"{where} closed the connection without an answer")
            protocol.receive_data(data)
        elif isinstance(event, h11.Response):
            if not 200 <= event.status_code < 300:
                reason = responses.get(event.status_code, "")
                raise ConnectionFailedError(
                    f"{where} does not connect to {target}: {event.status_code} {reason}", retryable=event.status_code >= 500
                )
            return
