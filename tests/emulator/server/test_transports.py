"""Ports: plain TCP, TLS and WebSocket, idle peers on either side, and newcomers that never say what they want."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from wsproto import events

from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.emulator.server import connection as server_connection
from spark_sb_mgmt.emulator.server import controls, listener
from spark_sb_mgmt.emulator.server.listener import ListenError
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import DEADLINE_S, EndedError, Outcome, Peer, eventually, message, peek_body, peeked
from tests.emulator.server.raw import AMQP_HEADER, PLAIN, SASL_HEADER, open_frame, sasl_init
from tests.emulator.server.websocket import PATH, SUBPROTOCOL, WebSocketClient, WebSocketClosedError

HEARTBEAT = b"\0\0\0\x08\x02\0\0\0"
Connect = Callable[[], Peer]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path, Path]:
    authority = trustme.CA()
    folder = tmp_path_factory.mktemp("certificates")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return authority, folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def listening(authority: tuple[trustme.CA, Path, Path]) -> Iterator[Emulator]:
    """An emulator on every kind of port."""
    _, cert, key = authority
    with Emulator.start(CONFIG, tls_port=0, websocket_port=0, cert=cert, key=key) as emulator:
        yield emulator


def say_all(sock: socket.socket, said: bytes) -> None:
    """Say something and wait for the end, which may come by a reset, since not all that was said is read."""
    with suppress(ConnectionError):
        sock.sendall(said)
        with suppress(OSError):
            # The end may have come already.
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass


def plain(port: int | None) -> socket.socket:
    assert port is not None
    return socket.create_connection(("127.0.0.1", port), DEADLINE_S)


@pytest.fixture
def secure(authority: tuple[trustme.CA, Path, Path]) -> Callable[[int | None], ssl.SSLSocket]:
    context = ssl.create_default_context()
    authority[0].configure_trust(context)
    return lambda port: context.wrap_socket(plain(port), server_hostname="localhost")


@pytest.fixture(params=["TCP", "TLS", "WebSocket", "WebSocket over TLS"])
def connect(request: pytest.FixtureRequest, listening: Emulator, secure: Callable[[int | None], ssl.SSLSocket]) -> Connect:
    ways: dict[str, Callable[[], Any]] = {
        "TCP": lambda: plain(listening.port),
        "TLS": lambda: secure(listening.tls_port),
        "WebSocket": lambda: WebSocketClient(plain(listening.websocket_port)),
        "WebSocket over TLS": lambda: WebSocketClient(secure(listening.websocket_port)),
    }
    return lambda: Peer(ways[request.param]())


# Every kind of port


def test_messages_go_both_ways_and_large_ones_too(connect: Connect) -> None:
    body = bytes(range(256)) * 8_000
    with connect() as peer:
        sender = peer.sender("large")
        assert peer.send(sender, message(b"small"), message(body)) == Outcome("accepted")
        received = peer.receive(peer.receiver("large", 2), 2)
        assert [each.body for each in received] == [b"small", body]
        assert peer.settle(received[1]) == Outcome("accepted")
        assert peeked(peer, "large") == [b"small"]


def test_many_large_answers_in_flight_come_whole(connect: Connect) -> None:
    with connect() as peer:
        sender = peer.sender("q")
        peer.send(sender, *(message(bytes(200_000)) for _ in range(5)))
        pair = peer.pair("q/$management")
        for number in range(20):
            peer.ask(pair, "peek-message", peek_body(), id=number)
        replies = peer.answers(pair, 20)
        assert [reply.message.correlation_id for reply in replies] == list(range(20))
        assert {len(body.body) for reply in replies for body in reply.messages} == {200_000}


def test_a_client_that_says_goodbye_is_told_goodbye(connect: Connect, listening: Emulator) -> None:
    connect().close()
    eventually(lambda: listening.connections == 0)


def test_a_client_that_vanishes_leaves_nothing_behind(connect: Connect, listening: Emulator) -> None:
    with connect() as peer:
        peer.send(peer.sender("q"), message(b"a"))
        peer.receive(peer.receiver("q", 1))
    eventually(lambda: listening.connections == 0)
    with connect() as again:
        assert peeked(again, "q") == [b"a"]


# TLS


@pytest.mark.parametrize("said", [SASL_HEADER, b"\x16\x03\x01", b"\x16\x03\x01\xff\xff" + bytes(500), b"\x16\x03\x01\x00\x02\x01\x00"])
def test_what_is_no_tls_is_closed_and_others_are_served(listening: Emulator, said: bytes) -> None:
    for port in (listening.tls_port, listening.websocket_port):
        with plain(port) as sock:
            say_all(sock, said)
    with Peer.connect(listening) as peer:
        assert peeked(peer, "q") == []
    eventually(lambda: listening.connections == 0)


def test_a_client_that_resets_its_connection_before_the_handshake_harms_nobody(listening: Emulator) -> None:
    for port in (listening.port, listening.tls_port, listening.websocket_port) * 10:
        sock = plain(port)
        # Closed with a reset, at a moment when the server may or may not have looked at it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.sendall(b"\x16")
        sock.close()
    with Peer.connect(listening) as peer:
        assert peeked(peer, "q") == []


def test_a_stranger_to_the_certificate_does_not_connect(listening: Emulator) -> None:
    with plain(listening.tls_port) as sock, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")


def test_a_tls_port_without_a_certificate_or_with_one_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="TLS needs a certificate"):
        Emulator.start(CONFIG, tls_port=0)
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(ListenError, match=r"cert\.pem .* cannot be used"):
        Emulator.start(CONFIG, tls_port=0, cert=tmp_path / "cert.pem", key=tmp_path / "cert.pem")


# WebSocket


def test_the_subprotocol_of_the_service_is_agreed_on(listening: Emulator) -> None:
    for path in (PATH, PATH.rstrip("/"), "/$SERVICEBUS/websocket?a=b"):
        with WebSocketClient(plain(listening.websocket_port), path, ("other", SUBPROTOCOL)) as client:
            assert client.subprotocol == SUBPROTOCOL


@pytest.mark.parametrize(("path", "subprotocols", "status"), [("/other", (SUBPROTOCOL,), 404), (PATH, (), 400), (PATH, ("amqp",), 400)])
def test_another_path_or_subprotocol_is_refused_by_status(
    listening: Emulator, path: str, subprotocols: tuple[str, ...], status: int
) -> None:
    with plain(listening.websocket_port) as sock, pytest.raises(WebSocketClosedError) as refused:
        WebSocketClient(sock, path, subprotocols)
    assert refused.value.code == status


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"no HTTP at all\r\n\r\n", b"\0" * 1000, b"G" * 100_000, SASL_HEADER])
def test_what_is_no_websocket_request_is_closed_and_others_are_served(listening: Emulator, said: bytes) -> None:
    with plain(listening.websocket_port) as sock:
        say_all(sock, said)
    with Peer.connect(listening) as peer:
        assert peeked(peer, "q") == []
    eventually(lambda: listening.connections == 0)


def test_text_is_refused_because_amqp_is_binary(listening: Emulator) -> None:
    with WebSocketClient(plain(listening.websocket_port)) as client:
        client.say(events.TextMessage(data="AMQP"))
        with pytest.raises(WebSocketClosedError) as closed:
            client.next_event()
        assert closed.value.code == 1003


def test_a_ping_is_answered_in_the_midst_of_everything(listening: Emulator) -> None:
    with WebSocketClient(plain(listening.websocket_port)) as client:
        client.say(events.Ping(payload=b"are you there"))
        pong = client.next_event()
        assert isinstance(pong, events.Pong)
        assert pong.payload == b"are you there"


def test_a_close_is_answered_by_a_close(listening: Emulator) -> None:
    with WebSocketClient(plain(listening.websocket_port)) as client:
        client.say(events.CloseConnection(code=1000))
        with pytest.raises(WebSocketClosedError) as closed:
            client.next_event()
        assert closed.value.code == 1000
    eventually(lambda: listening.connections == 0)


def test_a_close_right_behind_what_would_be_answered_is_an_end_and_no_failure(
    listening: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with WebSocketClient(plain(listening.websocket_port)) as client:
        data, close = events.BytesMessage(data=SASL_HEADER), events.CloseConnection(code=1000)
        client.below.sendall(client.protocol.send(data) + client.protocol.send(close))
        with pytest.raises(WebSocketClosedError) as closed:
            client.next_event()
        assert closed.value.code == 1000
    eventually(lambda: listening.connections == 0)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "said",
    [
        b"\x82\x05hello",  # A client's frame must be masked.
        b"\x83\x80\0\0\0\0",  # No such kind of frame.
        b"\x80\x80\0\0\0\0",  # The rest of a message that was never begun.
        b"\x89\xfe\x01\x00" + bytes(300),  # A ping that is too long.
        b"\x88\x82\0\0\0\0\x03\xe8" + b"\x82\x85\0\0\0\0hello" * 3,  # More after the close.
        b"\x88\x82\0\0\0\0\x03\xe8" + b"\x89\x80\0\0\0\0",  # A ping after the close.
        b"\x82\x85\0\0\0\0hello" + b"\x88\x82\0\0\0\0\x03\xe8",
    ],
)
def test_a_client_that_breaks_the_protocol_is_the_only_one_to_be_closed(listening: Emulator, said: bytes) -> None:
    with Peer.connect(listening) as peer, WebSocketClient(plain(listening.websocket_port)) as client:
        say_all(client.below, said)
        assert peeked(peer, "q") == []
        eventually(lambda: listening.connections == 1)


def test_amqp_frames_and_websocket_messages_need_not_have_the_same_bounds(listening: Emulator) -> None:
    stream = SASL_HEADER + sasl_init("PLAIN", PLAIN) + AMQP_HEADER + open_frame()
    with WebSocketClient(plain(listening.websocket_port)) as client:
        for byte in stream[:20]:
            client.say(events.BytesMessage(data=bytes((byte,))))
        # One message in fragments of its own.
        client.say(events.BytesMessage(data=stream[20:40], message_finished=False))
        client.say(events.BytesMessage(data=stream[40:], message_finished=True))
        received = b""
        while b"sbmgmt-emulator" not in received:
            event = client.next_event()
            assert isinstance(event, events.BytesMessage)
            received += event.data


# Idle peers


def test_heartbeats_are_sent_as_often_as_the_peer_asked(emulator: Emulator) -> None:
    with plain(emulator.port) as sock:
        sock.sendall(SASL_HEADER + sasl_init("PLAIN", PLAIN) + AMQP_HEADER + open_frame(idle_timeout=100))
        received = b""
        while received.count(HEARTBEAT) < 3:
            data = sock.recv(4096)
            assert data, "closed instead"
            received += data


def test_a_peer_that_is_silent_for_too_long_is_closed_and_one_with_heartbeats_is_not() -> None:
    with Emulator.start(CONFIG, idle_timeout=0.4) as emulator, Peer.connect(emulator, idle_timeout=0.4) as lively:
        with plain(emulator.port) as silent:
            silent.sendall(SASL_HEADER + sasl_init("PLAIN", PLAIN) + AMQP_HEADER + open_frame())
            received = b""

            def is_over() -> bool:
                nonlocal received
                if not select.select([silent], [], [], 0)[0]:
                    return False
                data = silent.recv(4096)
                received += data
                return not data

            lively.until(is_over, heartbeats=True)
            assert b"amqp:resource-limit-exceeded" in received
        assert peeked(lively, "q") == []
        assert emulator.connections == 1


def test_a_silent_peer_that_does_not_read_is_closed_too() -> None:
    with Emulator.start(CONFIG, idle_timeout=0.4) as emulator, Peer.connect(emulator) as full:
        full.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        full.send(full.sender("q"), *(message(bytes(200_000)) for _ in range(5)))
        pair = full.pair("q/$management")
        for _ in range(40):
            full.ask(pair, "peek-message", peek_body())
        full.flush()
        # It neither reads nor writes any more.
        eventually(lambda: emulator.connections == 0)


def test_a_peer_that_closes_in_the_midst_of_an_answer_harms_nobody(emulator: Emulator) -> None:
    with Peer.connect(emulator) as peer:
        peer.send(peer.sender("q"), *(message(bytes(200_000)) for _ in range(5)))
        for _ in range(10):
            with Peer.connect(emulator) as goes:
                pair = goes.pair("q/$management")
                for _ in range(10):
                    goes.ask(pair, "peek-message", peek_body())
                goes.flush()
        assert len(peeked(peer, "q")) == 5
        eventually(lambda: emulator.connections == 1)


# Newcomers


def test_a_newcomer_that_says_nothing_or_does_not_finish_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(server_connection, "SASL_PATIENCE_S", 0.05)
    monkeypatch.setattr(controls, "_PATIENCE_S", 0.05)
    with Emulator.start(CONFIG) as emulator:
        for said in (b"", b"AMQP", SASL_HEADER + b"\0\0", b"{"):
            with plain(emulator.port) as sock:
                sock.sendall(said)
                while sock.recv(4096):
                    pass
        # One that got in is left alone.
        with Peer.connect(emulator) as peer, plain(emulator.port) as sock:
            assert sock.recv(1) == b""
            assert peeked(peer, "q") == []


def test_it_listens_to_this_machine_only_unless_it_is_told() -> None:
    with Emulator.start(CONFIG) as emulator, pytest.raises(ConnectionRefusedError):
        # Also this machine, but not the address that it listens on; an emulator that listens on all would take it.
        socket.create_connection(("127.0.0.2", emulator.port), DEADLINE_S)
    with Emulator.start(CONFIG, host="0.0.0.0") as emulator, socket.create_connection(("127.0.0.2", emulator.port), DEADLINE_S):
        assert "sb://127.0.0.1:" in emulator.connection_string


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300])
def test_a_host_that_is_not_known_is_one_clear_error(host: str) -> None:
    with pytest.raises(ListenError, match="is not known"):
        Emulator.start(CONFIG, host=host)


def test_a_port_that_is_taken_is_one_clear_error_and_leaves_nothing_open() -> None:
    threads = threading.active_count()
    with Emulator.start(CONFIG) as emulator:
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{emulator.port}"):
            Emulator.start(CONFIG, port=emulator.port)
        with pytest.raises(ListenError, match="cannot listen"):
            Emulator.start(CONFIG, websocket_port=emulator.port)
    assert threading.active_count() == threads


def test_a_connection_that_is_dropped_by_the_server_is_over_for_its_client(emulator: Emulator) -> None:
    with Peer.connect(emulator) as peer:
        emulator.stop()
        with pytest.raises(EndedError):
            peer.until(lambda: False)
