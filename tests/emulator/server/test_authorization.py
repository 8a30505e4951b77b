"""Who gets in and what they may do: SASL, tokens over `$cbs`, rights of policies, and what happens when a token expires."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from proton import SASL, Message, int32, symbol, timestamp

from spark_sb_mgmt.emulator import Emulator, ManualClock
from spark_sb_mgmt.emulator.management.dispatch import OPERATIONS
from spark_sb_mgmt.operations import names
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import (
    DEADLINE_S,
    KEY,
    LONG,
    POLICY,
    UUID,
    EndedError,
    Outcome,
    Peer,
    RefusedError,
    array,
    message,
    peek_body,
    peeked,
    signature,
)
from tests.emulator.server.raw import AMQP_HEADER, SASL_HEADER, open_frame, sasl_init

UNAUTHORIZED = "amqp:unauthorized-access"
NOW_S = 1_700_000_000
HOST = "sb://sbemulatorns.servicebus.windows.net"
POLICIES = {"listener": ("listener", "listener-key"), "sender": ("sender", "sender-key"), "manager": (POLICY, KEY)}


@pytest.fixture
def guest(stopped_clock: Emulator) -> Iterator[Peer]:
    """A client that has shown no token yet."""
    with Peer.connect(stopped_clock, plain=None) as connected:
        yield connected


# SASL


def test_plain_with_a_key_has_the_rights_of_its_policy_without_any_token(stopped_clock: Emulator) -> None:
    with Peer.connect(stopped_clock, plain=POLICIES["sender"]) as peer:
        assert peer.sasl.outcome == SASL.OK
        assert peer.send(peer.sender("q"), message(b"a")) == Outcome("accepted")
        with pytest.raises(RefusedError, match="'Listen' claim"):
            peer.receiver("q")


@pytest.mark.parametrize("plain", [(POLICY, "wrong"), ("nobody", KEY), (POLICY, ""), ("sender", KEY)])
def test_plain_with_a_wrong_key_is_refused_and_closed(stopped_clock: Emulator, plain: tuple[str, str]) -> None:
    with Peer.connect(stopped_clock, plain=plain, open_at_once=False) as peer:
        peer.connection.open()
        with pytest.raises(EndedError):
            peer.until(lambda: False)
        assert peer.sasl.outcome == SASL.AUTH


def say(emulator: Emulator, *parts: bytes) -> bytes:
    """All that the server has to say to these bytes, until it closes or has said the AMQP header."""
    said = b""
    with socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S) as sock:
        for part in parts:
            sock.sendall(part)
        while AMQP_HEADER not in said and (data := sock.recv(4096)):
            said += data
    return said


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS"])
def test_a_client_without_a_key_gets_in_under_either_name(stopped_clock: Emulator, mechanism: str) -> None:
    assert AMQP_HEADER in say(stopped_clock, SASL_HEADER, sasl_init(mechanism, b"anybody"), AMQP_HEADER + open_frame())


def test_the_bytes_of_sasl_may_come_one_by_one(stopped_clock: Emulator) -> None:
    stream = SASL_HEADER + sasl_init("MSSBCBS") + AMQP_HEADER
    assert AMQP_HEADER in say(stopped_clock, *(bytes((byte,)) for byte in stream))


@pytest.mark.parametrize(
    "parts",
    [
        (SASL_HEADER, sasl_init("EXTERNAL")),
        (SASL_HEADER, sasl_init("PLAIN", b"no separators")),
        (SASL_HEADER, sasl_init("PLAIN", f"\0{POLICY}\0wrong".encode())),
        (SASL_HEADER, sasl_init("PLAIN", b"\0\xff\xfe\0\xff")),
        (SASL_HEADER, b"\0\0\0\x0b\x02\x01\0\0\0\x53\x41"),
        (SASL_HEADER, b"\0\0\0\x10\x02\x01\0\0 no AMQP"),
        (SASL_HEADER, b"\xff\xff\xff\xff\x02\x01\0\0"),
        (SASL_HEADER, b"\0\0\0\x10\x02\x00\0\0"),
        (SASL_HEADER, b"\0\0\0\x04\x02\x01\0\0"),
        (SASL_HEADER, b"\0\0\0\x10\xff\x01\0\0"),
        (b"AMQP\x02\x01\x00\x00",),
        (b"GET / HTTP/1.1\r\n\r\n",),
    ],
    ids=repr,
)
def test_nobody_gets_in_whose_bytes_are_not_understood(stopped_clock: Emulator, parts: tuple[bytes, ...]) -> None:
    said = say(stopped_clock, *parts)
    assert said.startswith(SASL_HEADER), "the right header is the answer to a wrong one"
    assert AMQP_HEADER not in said


# Tokens


def test_without_a_token_every_link_but_that_of_cbs_is_refused(guest: Peer) -> None:
    for attach in (
        lambda: guest.sender("q"),
        lambda: guest.receiver("q"),
        lambda: guest.receiver("q/$management"),
        lambda: guest.sender("q/$management"),
        lambda: guest.receiver("sessions", filters={symbol("com.microsoft:session-filter"): None}),
    ):
        with pytest.raises(RefusedError) as refused:
            attach()
        assert refused.value.condition == UNAUTHORIZED
    guest.pair("$cbs")


@pytest.mark.parametrize("audience", [f"{HOST}/q", "amqps://localhost:5671/q", "sb://127.0.0.1:5672/Q/", f"{HOST}/q/$management", "q"])
def test_a_token_for_an_entity_opens_the_entity_and_its_node_and_nothing_else(guest: Peer, audience: str) -> None:
    assert guest.put_token(signature(audience), audience) == (202, "Accepted", None)
    assert guest.send(guest.sender("q"), message(b"a")) == Outcome("accepted")
    assert peeked(guest, "q") == [b"a"]
    guest.receiver("q/$DeadLetterQueue")
    for address in ("other", "site1/q", "events"):
        with pytest.raises(RefusedError, match="claim"):
            guest.sender(address)


def test_a_signature_over_the_namespace_is_good_for_the_entity_that_it_is_put_for(guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/"), f"{HOST}/q")[0] == 202
    guest.sender("q")
    with pytest.raises(RefusedError, match="unauthorized"):
        guest.sender("other")
    assert guest.put_token(signature(HOST), f"{HOST}/other/$management")[0] == 202
    guest.sender("other")


def test_a_token_that_is_put_for_the_namespace_opens_all_of_it(guest: Peer) -> None:
    assert guest.put_token(signature(HOST), HOST)[0] == 202
    guest.sender("q")
    guest.receiver("events/Subscriptions/audit")


def test_a_subscription_is_opened_by_a_token_for_its_topic(guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/events"), f"{HOST}/events/Subscriptions/audit")[0] == 202
    guest.receiver("events/Subscriptions/audit")


def test_the_kind_that_a_client_calls_its_token_means_nothing(guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/q"), f"{HOST}/q", kind="jwt")[0] == 202


def test_a_policy_name_may_be_encoded_twice(stopped_clock: Emulator) -> None:
    config = json.loads(json.dumps(CONFIG))
    config["UserConfig"]["Namespaces"][0]["AuthorizationRules"].append({"KeyName": "a b/c", "PrimaryKey": "key", "Rights": ["Manage"]})
    with Emulator.start(config) as emulator, Peer.connect(emulator, plain=None) as guest:
        for name in ("a%20b%2Fc", "a+b%2Fc", "a%2520b%252Fc"):
            assert guest.put_token(signature(f"{HOST}/q", name=name, key="key"), f"{HOST}/q")[0] == 202


def unsigned(payload: Any) -> str:
    encoded = base64.urlsafe_b64encode(payload if isinstance(payload, bytes) else json.dumps(payload).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{encoded}.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (signature(f"{HOST}/q", key="other-secret"), "invalid signature"),
        (signature(f"{HOST}/q", name="nobody"), "no policy 'nobody'"),
        (signature(f"{HOST}/other"), "is for 'other', not for 'q'"),
        (signature(f"{HOST}/q2"), "is for 'q2', not for 'q'"),
        (signature(f"{HOST}/q", expires_at=NOW_S), "expired"),
        (signature(f"{HOST}/q", expires_at=NOW_S - 1), "expired"),
        (signature(f"{HOST}/q").replace("se=4000000000", "se=4000000001"), "invalid signature"),
        ("SharedAccessSignature sr=a&sig=b", "lacks se, skn"),
        ("SharedAccessSignature ", "lacks sr, sig, se, skn"),
        ("SharedAccessSignature &&&==&", "lacks sr"),
        ("", "neither"),
        ("some text", "neither"),
        (KEY, "neither"),
        (unsigned({"exp": 4_000_000_000}), "--accept-jwt"),
    ],
)
def test_a_token_that_is_not_good_is_refused_with_the_reason_and_no_secret(guest: Peer, token: str, expected: str) -> None:
    status, description, condition = guest.put_token(token, f"{HOST}/q")
    assert (status, condition) == (401, UNAUTHORIZED)
    assert expected in description
    for secret in (KEY, "other-secret", token.partition("sig=")[2].partition("&")[0] or "SAS_KEY"):
        assert secret not in description
    with pytest.raises(RefusedError):
        guest.sender("q")


@pytest.mark.parametrize("seconds", ["soon", "nan", "inf", "1e999", "-1", "0x10"])
def test_an_expiry_that_is_no_number_is_refused_though_it_is_signed(guest: Peer, seconds: Any) -> None:
    token = signature(f"{HOST}/q", expires_at=seconds)
    assert guest.put_token(token, f"{HOST}/q")[0] == 401


def test_a_token_with_bytes_that_are_no_text_is_refused(guest: Peer) -> None:
    pair = guest.pair("$cbs")
    asked = Message(id="1", properties={"operation": "put-token", "type": "jwt", "name": f"{HOST}/q"}, body="SharedAccessSignature XXXX")
    guest.post(pair[0], bytes(asked.encode()).replace(b"XXXX", b"\xff\xfe\xfd\xfc"))
    (answer,) = guest.receive(pair[1])
    assert answer.message.properties["status-code"] == 400


@pytest.mark.parametrize(
    ("properties", "body", "status"),
    [
        ({"operation": "take-token", "name": "q"}, "t", 501),
        ({"name": "q"}, "t", 501),
        ({"operation": "put-token"}, "t", 400),
        ({"operation": "put-token", "name": 5}, "t", 400),
        ({"operation": "put-token", "name": "q"}, None, 400),
        ({"operation": "put-token", "name": "q"}, 5, 400),
        ({"operation": "put-token", "name": "q"}, b"bytes", 400),
        ({}, {"a": "map"}, 501),
    ],
)
def test_a_request_to_cbs_that_is_no_put_token_is_answered(guest: Peer, properties: dict[str, Any], body: Any, status: int) -> None:
    pair = guest.pair("$cbs")
    guest.post(pair[0], bytes(Message(id="an id", properties=properties, body=body).encode()))
    (answer,) = guest.receive(pair[1])
    assert answer.message.correlation_id == "an id"
    code = answer.message.properties["status-code"]
    assert (type(code), int(code)) == (int32, status)


# JSON web tokens


@pytest.fixture
def jwt_guest() -> Iterator[Peer]:
    with Emulator.start(CONFIG, clock=ManualClock(), accept_jwt=True) as emulator, Peer.connect(emulator, plain=None) as connected:
        yield connected


@pytest.mark.parametrize("payload", [{"exp": NOW_S + 60}, {}])
def test_a_json_web_token_is_accepted_where_the_emulator_was_told_to(jwt_guest: Peer, payload: dict[str, Any]) -> None:
    assert jwt_guest.put_token(unsigned(payload), f"{HOST}/q", kind="jwt")[0] == 202
    assert jwt_guest.send(jwt_guest.sender("q"), message(b"a")) == Outcome("accepted")
    with pytest.raises(RefusedError):
        jwt_guest.sender("other")


@pytest.mark.parametrize(
    "payload",
    [
        {"exp": NOW_S},
        {"exp": "soon"},
        {"exp": None},
        {"exp": [1]},
        b'{"exp": 1e999}',
        b'{"exp": NaN}',
        b"no JSON",
        b"[" * 5000,
        b"\xff\xfe",
    ],
    ids=lambda payload: repr(payload)[:20],
)
def test_a_json_web_token_that_has_expired_or_cannot_be_read_is_refused_even_then(jwt_guest: Peer, payload: Any) -> None:
    assert jwt_guest.put_token(unsigned(payload), f"{HOST}/q")[0] == 401


# Expiry


def test_links_are_detached_when_the_token_that_let_them_in_expires(stopped_clock: Emulator, guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/q", expires_at=NOW_S + 100), f"{HOST}/q")[0] == 202
    assert guest.put_token(signature(f"{HOST}/other", expires_at=NOW_S + 200), f"{HOST}/other")[0] == 202
    sender, receiver = guest.sender("q"), guest.receiver("q")
    node = guest.pair("q/$management")
    later = guest.sender("other")
    stopped_clock.advance(99.9)
    assert guest.send(sender, message(b"a")) == Outcome("accepted")
    stopped_clock.advance(0.1)
    for link in (sender, receiver, *node):
        assert guest.detached(link) == UNAUTHORIZED
    assert guest.send(later, message(b"a")) == Outcome("accepted")
    with pytest.raises(RefusedError, match="expired"):
        guest.sender("q")
    # Each token in its own time.
    stopped_clock.advance(100)
    assert guest.detached(later) == UNAUTHORIZED


def test_a_token_that_is_renewed_in_time_keeps_the_links(stopped_clock: Emulator, guest: Peer) -> None:
    for lifetime in (100, 250):
        assert guest.put_token(signature(f"{HOST}/q", expires_at=NOW_S + lifetime), f"{HOST}/q")[0] == 202
    sender = guest.sender("q")
    stopped_clock.advance(150)
    assert guest.send(sender, message(b"a")) == Outcome("accepted")
    stopped_clock.advance(100)
    assert guest.detached(sender) == UNAUTHORIZED


def test_a_receiver_that_waits_for_a_session_is_refused_when_its_token_expires(stopped_clock: Emulator, guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/sessions", expires_at=NOW_S + 10), f"{HOST}/sessions")[0] == 202
    waiting = guest.receiver("sessions", filters={symbol("com.microsoft:session-filter"): None}, wait=False)
    assert guest.put_token(signature(f"{HOST}/q"), f"{HOST}/q")[0] == 202, "answered after the attach was taken"
    stopped_clock.advance(10)
    assert guest.detached(waiting) == UNAUTHORIZED


def test_a_message_whose_receiver_lost_its_token_stays_locked_until_its_lock_ends(stopped_clock: Emulator, guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/q", expires_at=NOW_S + 10), f"{HOST}/q")[0] == 202
    assert guest.send(guest.sender("q"), message(b"a")) == Outcome("accepted")
    receiver = guest.receiver("q", 1)
    guest.receive(receiver)
    stopped_clock.advance(10)
    assert guest.detached(receiver) == UNAUTHORIZED
    with Peer.connect(stopped_clock) as manager:
        again = manager.receiver("q", 1)
        assert peeked(manager, "q") == [b"a"]
        assert again.queued == 0
        stopped_clock.advance(50)
        assert [received.body for received in manager.receive(again)] == [b"a"]


# Rights


@pytest.mark.parametrize(
    ("policy", "may_send", "may_receive"), [("listener", False, True), ("sender", True, False), ("manager", True, True)]
)
@pytest.mark.parametrize("by_token", [True, False])
def test_a_policy_sends_and_receives_by_its_rights(
    stopped_clock: Emulator, policy: str, may_send: bool, may_receive: bool, by_token: bool
) -> None:
    name, key = POLICIES[policy]
    with Peer.connect(stopped_clock, plain=None if by_token else (name, key)) as peer:
        if by_token:
            assert peer.put_token(signature(f"{HOST}/q", name=name, key=key), f"{HOST}/q")[0] == 202
        for attach, allowed in ((peer.sender, may_send), (peer.receiver, may_receive)):
            if allowed:
                attach("q")
            else:
                with pytest.raises(RefusedError, match="unauthorized-access"):
                    attach("q")


# For each operation a body that is well formed and changes nothing.
BODIES: dict[str, Any] = {
    names.PEEK_MESSAGE: peek_body(),
    names.RECEIVE_BY_SEQUENCE_NUMBER: {"sequence-numbers": array(LONG, 7)},
    names.UPDATE_DISPOSITION: {"disposition-status": "completed", "lock-tokens": array(UUID)},
    names.RENEW_LOCK: {"lock-tokens": array(UUID)},
    names.BATCH_DELETE_MESSAGES: {"message-count": int32(1), "enqueued-time-utc": timestamp(0)},
    names.SCHEDULE_MESSAGE: {"messages": []},
    names.CANCEL_SCHEDULED_MESSAGE: {"sequence-numbers": array(LONG, 7)},
    names.RENEW_SESSION_LOCK: {"session-id": "s"},
    names.GET_SESSION_STATE: {"session-id": "s"},
    names.SET_SESSION_STATE: {"session-id": "s", "session-state": None},
    names.GET_MESSAGE_SESSIONS: {},
    names.ADD_RULE: {},
    names.REMOVE_RULE: {},
    names.ENUMERATE_RULES: {},
}


@pytest.mark.parametrize("policy", ["listener", "sender", "manager"])
def test_every_management_operation_needs_the_right_that_it_names(stopped_clock: Emulator, policy: str) -> None:
    sends = {names.SCHEDULE_MESSAGE, names.CANCEL_SCHEDULED_MESSAGE}
    assert set(BODIES) == set(OPERATIONS)
    with Peer.connect(stopped_clock, plain=POLICIES[policy]) as peer:
        for operation, body in BODIES.items():
            allowed = policy == "manager" or (policy == "sender") == (operation in sends)
            reply = peer.request("q", names.short_name(operation), body)
            assert (reply.status == 401) is not allowed, operation
            if not allowed:
                assert reply.condition == UNAUTHORIZED
                right = "Send" if operation in sends else "Listen"
                assert f"'{right}' claim" in reply.description


def test_sending_by_way_of_an_entity_needs_the_right_at_both_ends(guest: Peer) -> None:
    assert guest.put_token(signature(f"{HOST}/q"), f"{HOST}/q")[0] == 202
    with pytest.raises(RefusedError, match="unauthorized-access"):
        guest.sender("q", **{"com.microsoft:transfer-destination-address": "other"})


def test_rights_are_a_connections_own(stopped_clock: Emulator, guest: Peer) -> None:
    assert guest.put_token(signature(HOST), HOST)[0] == 202
    with Peer.connect(stopped_clock, plain=None) as stranger, pytest.raises(RefusedError, match="unauthorized-access"):
        stranger.sender("q")
