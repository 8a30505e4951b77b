"""SASL without a socket: the client's machine joined to the emulator's, and to servers that say what none should."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Described, Symbol, UByte, ULong, Value
from spark_sb_mgmt.connection.sasl import SASL_HEADER, SaslClient, SaslState
from spark_sb_mgmt.emulator.server.sasl import SaslServer
from spark_sb_mgmt.emulator.server.sasl import SaslState as ServerState
from spark_sb_mgmt.errors import AuthenticationError, ConnectionFailedError, RemoteProtocolError, SbMgmtError

POLICY = ("root", "a-secret-key")
Verify = Callable[[bytes], str | None]


def anybody(response: bytes) -> str | None:
    return "anyone" if response == b"" else None


def root(response: bytes) -> str | None:
    return "root" if response == b"\0root\0a-secret-key" else None


def frame(code: int, *fields: Value) -> bytes:
    body = encode_value(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\0\0" + body


OFFER = frame(0x40, Array("symbol", ["ANONYMOUS"]))


def join(client: SaslClient, server: SaslServer, piece: int = 1 << 16) -> bytes:
    """Let both talk until neither has anything to say, in pieces of so many bytes; what the client said."""
    said = b""
    while True:
        asked = client.take_output()
        said += asked
        server.receive(asked)
        answer = server.take_output()
        for at in range(0, len(answer), piece):
            client.receive(answer[at : at + piece])
        if not asked and not answer:
            return said


def failure(client: SaslClient, *answers: bytes) -> SbMgmtError:
    *before, last = answers
    for answer in before:
        client.receive(answer)
    with pytest.raises(SbMgmtError) as caught:
        client.receive(last)
    assert POLICY[1] not in f"{caught.value} {caught.value!r}"
    return caught.value


@pytest.mark.parametrize(
    ("mechanisms", "policy", "chosen"),
    [
        ({"ANONYMOUS": anybody}, None, "ANONYMOUS"),
        ({"MSSBCBS": anybody}, None, "MSSBCBS"),
        ({"PLAIN": root}, POLICY, "PLAIN"),
        # Who we are is said by $cbs: a key does not go out where it need not.
        ({"PLAIN": root, "EXTERNAL": root, "MSSBCBS": anybody, "ANONYMOUS": anybody}, POLICY, "ANONYMOUS"),
        ({"PLAIN": root, "MSSBCBS": anybody}, POLICY, "MSSBCBS"),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_the_mechanism_that_says_least_is_chosen(
    mechanisms: dict[str, Verify], policy: tuple[str, str] | None, chosen: str, piece: int
) -> None:
    client, server = SaslClient("host", policy), SaslServer(mechanisms)
    said = join(client, server, piece)
    assert (client.mechanism, client.state, server.state) == (chosen, SaslState.DONE, ServerState.DONE)
    assert server.identity is not None
    assert (POLICY[1].encode() in said) == (chosen == "PLAIN")


def test_what_comes_behind_the_outcome_belongs_to_amqp() -> None:
    client = SaslClient("host")
    assert client.receive(SASL_HEADER + OFFER) == b""
    assert client.receive(frame(0x44, UByte(0)) + b"AMQP\0\x01\0\0 and more") == b"AMQP\0\x01\0\0 and more"
    assert client.receive(b"later") == b"later"


def test_one_mechanism_may_stand_alone() -> None:
    client = SaslClient("host")
    client.receive(SASL_HEADER + frame(0x40, Symbol("ANONYMOUS")))
    assert client.mechanism == "ANONYMOUS"


def test_a_key_that_is_refused() -> None:
    client = SaslClient("host", ("root", "another-key"))
    with pytest.raises(AuthenticationError, match="host refused the shared access key") as caught:
        join(client, SaslServer({"PLAIN": root}))
    assert not caught.value.retryable
    assert "another-key" not in str(caught.value)


@pytest.mark.parametrize(("code", "retryable"), [(1, False), (2, True), (3, False), (4, True), (77, False)])
def test_a_refusal_says_whether_it_passes(code: int, retryable: bool) -> None:
    error = failure(SaslClient("host"), SASL_HEADER, OFFER, frame(0x44, UByte(code)))
    assert isinstance(error, ConnectionFailedError)
    assert error.retryable is retryable
    assert f"code {code}" in str(error)


@pytest.mark.parametrize(
    ("offered", "policy", "says"),
    [
        (Array("symbol", ["PLAIN", "EXTERNAL"]), None, "offers only PLAIN, EXTERNAL"),
        (Array("symbol", ["EXTERNAL"]), POLICY, "offers only EXTERNAL"),
        (Array("symbol", []), POLICY, "offers only nothing"),
        (None, POLICY, "offers only nothing"),
    ],
)
def test_no_mechanism_that_is_known(offered: Value, policy: tuple[str, str] | None, says: str) -> None:
    error = failure(SaslClient("host", policy), SASL_HEADER, frame(0x40, offered))
    assert isinstance(error, ConnectionFailedError)
    assert says in str(error)
    assert not error.retryable


@pytest.mark.parametrize("said", [b"HTTP/1.1 400", b"AMQP\0\x01\0\0", b"AMQP\x03\x01\0\x01", b"\0"])
def test_a_server_that_speaks_another_protocol(said: bytes) -> None:
    error = failure(SaslClient("host"), said)
    assert "does not speak AMQP with SASL" in str(error)
    assert not error.retryable


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff\x02\x01\0\0",
        b"\0\0\0\x07\x02\x01\0\0",
        b"\0\0\0\x10\x01\x01\0\0",
        b"\0\0\0\x10\x05\x01\0\0",
        b"\0\0\0\x10\x02\0\0\0",
        b"\0\0\0\x10\x02\x01\0\0garbage!",
        b"\0\0\0\x08\x02\x01\0\0",
        frame(0x44, UByte(0)),
        frame(0x41, Symbol("ANONYMOUS")),
        (13).to_bytes(4, "big") + b"\x02\x01\0\0" + encode_value("text")[:5],
    ],
)
def test_a_frame_that_is_none_is_a_breach_of_the_protocol_and_nothing_was_done(said: bytes) -> None:
    error = failure(SaslClient("host"), SASL_HEADER, said)
    assert type(error) is RemoteProtocolError
    assert not error.may_have_taken_effect
