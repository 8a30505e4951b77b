"""The envelope: whose answer it is, what it says, and requests that are hardly one."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest
from proton import Message, int32, uint, ulong

from spark_sb_mgmt.emulator.entities import ServiceBusFault
from spark_sb_mgmt.emulator.management import encode_fault, encode_response, read_request, required_right
from spark_sb_mgmt.operations import names
from tests.emulator.management.service import Service, decoded, request


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.mark.parametrize(
    "message_id", ["text", UUID("00112233-4455-6677-8899-aabbccddeeff"), ulong(7), b"\x00\x01"], ids=["string", "uuid", "ulong", "binary"]
)
def test_an_answer_carries_the_message_id_with_the_type_that_it_had(service: Service, message_id: Any) -> None:
    raw = bytes(Message(id=message_id, properties={"operation": "com.microsoft:nonsense"}, body={}).encode())
    # Both messages are held: proton shows a binary id as a view of the message's own memory.
    answer, expected = service.answer(raw).message, Message(correlation_id=message_id)
    assert answer.correlation_id == expected.correlation_id
    assert type(answer.correlation_id) is type(expected.correlation_id)


def test_a_request_is_read_whole() -> None:
    raw = request(
        "peek-message",
        {"message-count": int32(1)},
        **{
            "com.microsoft:server-timeout": uint(1500),
            "associated-link-name": "receiver-7",
            "com.microsoft:tracking-id": "track-1",
            "type": "entity-mgmt",
        },
    )
    read = read_request(raw)
    assert (read.message_id, read.reply_to, read.operation) == ("request-1", "here", "com.microsoft:peek-message")
    assert (read.server_timeout_ms, read.associated_link_name, read.tracking_id, read.problem) == (1500, "receiver-7", "track-1", None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 60_000),
        ({"com.microsoft:server-timeout": uint(5)}, 5),
        ({"com.microsoft:server-timeout": 5}, 5),
        ({"server-timeout": uint(6)}, 6),
        ({"com.microsoft:server-timeout": uint(0)}, 0),
    ],
    ids=["none", "uint", "long", "without prefix", "zero"],
)
def test_the_server_timeout_is_read_as_each_client_sends_it(given: dict[str, Any], expected: int) -> None:
    assert read_request(request("peek-message", {}, **given)).server_timeout_ms == expected


def test_the_tracking_id_comes_back(service: Service) -> None:
    raw = request("nonsense", {}, **{"com.microsoft:tracking-id": "track-1"})
    assert service.answer(raw).message.properties["com.microsoft:tracking-id"] == "track-1"
    assert "com.microsoft:tracking-id" not in service.ask("nonsense", {}).message.properties


def test_an_operation_that_there_is_not_is_not_implemented(service: Service) -> None:
    reply = service.ask("no-such-thing", {})
    assert reply.said == (501, "amqp:not-implemented")
    assert "no-such-thing" in reply.description
    assert "peek-message" in reply.description


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "operation"),
        ({"operation": int32(3)}, "operation"),
        ({"operation": names.PEEK_MESSAGE, "com.microsoft:server-timeout": "soon"}, "server-timeout"),
        ({"operation": names.PEEK_MESSAGE, "com.microsoft:server-timeout": -1}, "server-timeout"),
        ({"operation": names.PEEK_MESSAGE, "associated-link-name": 5}, "associated-link-name"),
        ({"operation": names.PEEK_MESSAGE, "com.microsoft:tracking-id": 5}, "tracking-id"),
    ],
)
def test_an_envelope_with_a_fault_is_answered_with_what_it_is(service: Service, properties: dict[str, Any], named: str) -> None:
    body = {"from-sequence-number": 0, "message-count": int32(1)}
    reply = service.answer(bytes(Message(id="1", properties=properties, body=body).encode()))
    assert reply.said == (400, "com.microsoft:argument-error")
    assert named in reply.description
    assert reply.message.correlation_id == "1"


def test_a_request_without_application_properties_or_message_id_is_answered(service: Service) -> None:
    reply = service.answer(bytes(Message(body={}).encode()))
    assert reply.said == (400, "com.microsoft:argument-error")
    assert reply.message.correlation_id is None


@pytest.mark.parametrize("body", [None, "text", [1], int32(3)], ids=["null", "string", "list", "int"])
def test_a_body_that_is_no_map_is_refused(service: Service, body: Any) -> None:
    reply = service.ask("peek-message", body)
    assert reply.said == (400, "com.microsoft:argument-error")
    assert "body of peek-message must be an AMQP map" in reply.description.replace("The", "the")


def test_a_body_of_data_is_refused(service: Service) -> None:
    message = Message(id="1", properties={"operation": names.PEEK_MESSAGE}, body=b"\xc1\x01\x00", inferred=True)
    assert service.answer(bytes(message.encode())).said == (400, "com.microsoft:argument-error")


@pytest.mark.parametrize("raw", [b"\x01", b"\x00\x53\x77", b"\x00\x53\x74\x43", b"\x00\x53\x73\xc0\x02\x01\xc1"])
def test_bytes_that_are_no_message_are_a_fault_for_the_link(raw: bytes) -> None:
    with pytest.raises(ServiceBusFault) as caught:
        read_request(raw)
    assert (caught.value.status, caught.value.condition) == (400, "amqp:decode-error")


def test_a_message_id_that_no_answer_may_carry_is_a_fault_for_the_link() -> None:
    with pytest.raises(ServiceBusFault, match="message-id"):
        # properties with a message-id that is an int.
        read_request(b"\x00\x53\x73\xc0\x03\x01\x54\x05")


def test_what_proton_hands_out_is_taken_as_it_is() -> None:
    raw = Message(id=UUID(int=5), properties={"operation": "x"}, body={}).encode()
    assert isinstance(raw, bytearray)
    assert read_request(raw).message_id == read_request(memoryview(raw)).message_id == UUID(int=5)


# Section 1.4 of the wire facts, whole: those of the entities, of the links, of the network and of scripted faults alike.
@pytest.mark.parametrize(
    ("status", "condition"),
    [
        (400, "amqp:not-allowed"),
        (400, "com.microsoft:argument-error"),
        (400, "com.microsoft:argument-out-of-range"),
        (400, "com.microsoft:entity-disabled"),
        (401, "amqp:unauthorized-access"),
        (401, "com.microsoft:auth-failed"),
        (401, "com.microsoft:publisher-revoked"),
        (403, "amqp:resource-limit-exceeded"),
        (403, "amqp:link:message-size-exceeded"),
        (404, "amqp:not-found"),
        (404, "com.microsoft:message-not-found"),
        (408, "com.microsoft:timeout"),
        (409, "com.microsoft:entity-already-exists"),
        (410, "com.microsoft:message-lock-lost"),
        (410, "com.microsoft:session-lock-lost"),
        (410, "com.microsoft:session-cannot-be-locked"),
        (410, "com.microsoft:store-lock-lost"),
        (410, "com.microsoft:partition-not-owned"),
        (410, "amqp:link:stolen"),
        (500, "com.microsoft:no-matching-subscription"),
        (500, "amqp:internal-error"),
        (501, "amqp:not-implemented"),
        (503, "com.microsoft:server-busy"),
    ],
)
def test_a_fault_is_an_answer_with_status_condition_and_description(status: int, condition: str) -> None:
    message = decoded(encode_fault(UUID(int=1), ServiceBusFault(status, condition, "Why."), "track"))
    assert message.correlation_id == UUID(int=1)
    assert message.properties == {
        "statusCode": status,
        "statusDescription": "Why.",
        "errorCondition": condition,
        "com.microsoft:tracking-id": "track",
    }
    assert message.body == {}


def test_an_answer_without_condition_has_none() -> None:
    message = decoded(encode_response("1", 200, "OK"))
    assert message.properties == {"statusCode": 200, "statusDescription": "OK"}


def test_a_defect_of_ours_is_a_500_that_tells_nothing_of_what_is_within(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise KeyError("inner secret")

    monkeypatch.setattr(service.broker.q, "peek", broken)
    with caplog.at_level(logging.ERROR):
        reply = service.peek()
    assert reply.said == (500, "amqp:internal-error")
    assert "inner secret" not in reply.description
    assert "inner secret" in caplog.text


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        (names.PEEK_MESSAGE, "Listen"),
        (names.UPDATE_DISPOSITION, "Listen"),
        (names.ADD_RULE, "Listen"),
        (names.SCHEDULE_MESSAGE, "Send"),
        (names.CANCEL_SCHEDULED_MESSAGE, "Send"),
        ("com.microsoft:no-such-thing", "Listen"),
    ],
)
def test_which_right_an_operation_needs(operation: str, right: str) -> None:
    assert required_right(operation) == right
