"""A service that breaks the protocol: always one clear error, soon, and never a loop or a hang."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from spark_sb_mgmt.amqp.message import AmqpValue, Data, Message, encode_message
from spark_sb_mgmt.amqp.types import Array, Described, Int, Long, Map, Symbol, Timestamp, ULong
from spark_sb_mgmt.client import EntityClient, ScheduledMessage
from spark_sb_mgmt.connection import request_links
from spark_sb_mgmt.errors import (
    DeadlineExceededError,
    DecodeError,
    OutcomeUnknownError,
    RemoteProtocolError,
    SbMgmtError,
)
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.peek import peek_message
from tests.client.scripted_peer import Asked, ScriptedPeer

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
SCHEDULED = ScheduledMessage(b"body", LATER, "m1")
TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")


def message(sequence_number: int, body: bytes = b"x") -> bytes:
    annotations = Map([(Symbol("x-opt-sequence-number"), Long(sequence_number))])
    return encode_message(Message(message_annotations=annotations, body=Data((body,))))


def page(*sequence_numbers: int) -> Map:
    return Map([("messages", tuple(Map([("message", message(number))]) for number in sequence_numbers))])


def fails(script: Callable[[Asked], None], use: Callable[[EntityClient], Any], **settings: Any) -> SbMgmtError:
    """The error that a use of the client ends in."""
    with ScriptedPeer(script) as peer, peer.client(**settings) as client, client.entity("orders") as orders:
        with pytest.raises(SbMgmtError) as caught:
            use(orders)
        assert caught.value.entity == "orders"
        assert caught.value.operation is not None
        return caught.value


def peek(orders: EntityClient) -> Any:
    return orders.peek_message(5, 10)


@pytest.mark.parametrize(
    "correlation_id",
    ["another", uuid4(), Long(7), b"bytes", "sbmgmt-0:1"],
    ids=["text", "uuid", "long", "binary", "of-another-link"],
)
def test_an_answer_to_a_request_that_never_was_ends_the_call(correlation_id: Any) -> None:
    error = fails(lambda asked: asked.reply(200, page(5), correlation_id=correlation_id), peek)
    assert type(error) is RemoteProtocolError
    assert "correlation-id" in str(error)


def test_a_wrong_correlation_id_fails_all_that_were_in_flight_and_the_next_request_has_new_links() -> None:
    def script(asked: Asked) -> None:
        if len(peer.requests) == 3:
            asked.reply(204, correlation_id="another")
        elif len(peer.requests) > 3:
            asked.reply(204)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = [outcome for _, outcome in orders.pipeline(_peeks(3), depth=3)]
        assert [type(outcome) for outcome in outcomes] == [RemoteProtocolError] * 3
        assert len(orders.peek_message()) == 0
        assert peer.attached.count("orders/$management") == 4
        assert peer.accepted == 1


def _peeks(count: int) -> list[Any]:
    return [peek_message(number) for number in range(count)]


@pytest.mark.parametrize("status", [299, 302, 999, 100, 0, -1, "200", None], ids=str)
def test_a_status_that_no_answer_has(status: Any) -> None:
    error = fails(lambda asked: asked.reply(status, page(5)), peek)
    assert type(error) is RemoteProtocolError


@pytest.mark.parametrize(
    ("use", "body"),
    [
        (lambda orders: orders.schedule_message([SCHEDULED]), None),
        (lambda orders: orders.schedule_message([SCHEDULED]), Map([("sequence-numbers", Array("long", [1, 2]))])),
        (lambda orders: orders.schedule_message([SCHEDULED]), Map([("sequence-numbers", Array("int", [1]))])),
        (lambda orders: orders.schedule_message([SCHEDULED]), Map([("sequence-numbers", Long(1))])),
        (lambda orders: orders.renew_lock([TOKEN]), Map([("expirations", Array("timestamp", []))])),
        (lambda orders: orders.renew_lock([TOKEN]), Map()),
        (lambda orders: orders.renew_session_lock("s"), Map([("expiration", Timestamp(2**62))])),
        (lambda orders: orders.get_session_state("s"), Map()),
        (lambda orders: orders.get_session_state("s"), Map([("session-state", "text")])),
        (lambda orders: orders.get_message_sessions(), Map([("skip", Int(0))])),
        (lambda orders: orders.enumerate_rules(), Map([("rules", (Map(),))])),
        (lambda orders: orders.batch_delete_messages(5), Map([("message-count", Int(6))])),
        (lambda orders: orders.receive_by_sequence_number([5]), page(5)),
        (peek, Map([("messages", ())])),
        (peek, Map()),
        (peek, Map([("messages", "text")])),
        (peek, "text"),
        (peek, page(*range(5, 16))),
        (peek, page(4)),
    ],
)
def test_a_body_that_is_not_what_the_operation_answers_with(use: Callable[[EntityClient], Any], body: Any) -> None:
    error = fails(lambda asked: asked.reply(200, body), use)
    assert isinstance(error, RemoteProtocolError)


@pytest.mark.parametrize("status", [202, 204])
def test_a_success_that_leaves_open_whether_it_was_done(status: int) -> None:
    error = fails(lambda asked: asked.reply(status), lambda orders: orders.cancel_scheduled_message([1]))
    assert isinstance(error, RemoteProtocolError)
    assert error.may_have_taken_effect


def test_an_answer_that_is_cut_off_fails_its_own_request_only() -> None:
    def script(asked: Asked) -> None:
        raw = asked.encode(200, page(asked.body["from-sequence-number"]))
        asked.send(raw[:-20] if asked.body["from-sequence-number"] == 1 else raw)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = dict(orders.pipeline(_peeks(3), depth=3))
    assert isinstance(outcomes[1], DecodeError)
    assert [len(outcomes[position]) for position in (0, 2)] == [1, 1]


def test_an_answer_that_is_no_message_at_all() -> None:
    error = fails(lambda asked: asked.send(b"\x00\x53\x70\xc1"), peek)
    assert isinstance(error, RemoteProtocolError)


def test_a_message_without_a_sequence_number_in_a_range() -> None:
    wire = encode_message(Message(body=AmqpValue("x")))
    body = Map([("messages", (Map([("message", wire)]),))])
    error = fails(lambda asked: asked.reply(200, body), lambda orders: list(orders.peek_range()))
    assert isinstance(error, RemoteProtocolError)


def test_a_range_whose_service_does_not_advance() -> None:
    error = fails(lambda asked: asked.reply(200, page(3)), lambda orders: list(orders.peek_range(0, 100, page_size=1, depth=1)))
    assert isinstance(error, RemoteProtocolError)
    assert "does not advance" in str(error)


@pytest.mark.parametrize(("numbers", "says"), [((3, 9), "does not advance"), ((9, 3), "do not ascend"), ((9, 9), "do not ascend")])
def test_a_page_whose_service_does_not_advance(numbers: tuple[int, ...], says: str) -> None:
    error = fails(lambda asked: asked.reply(200, page(*numbers)), lambda orders: orders.peek_message(5))
    assert isinstance(error, RemoteProtocolError)
    assert says in str(error)


def test_a_search_whose_service_does_not_advance() -> None:
    error = fails(lambda asked: asked.reply(200, page(0)), lambda orders: orders.highest_sequence_number())
    assert isinstance(error, RemoteProtocolError)
    assert "does not advance" in str(error)


def test_sessions_whose_service_ignores_skip() -> None:
    body = Map([("skip", Int(0)), ("sessions-ids", Array("string", ["a", "b"]))])
    error = fails(lambda asked: asked.reply(200, body), lambda orders: orders.get_message_sessions())
    assert "does not advance" in str(error)


def test_a_session_that_comes_in_front_meanwhile_is_no_misbehaviour() -> None:
    """The last page then has only what the first one had."""
    ids = [f"s{number:03}" for number in range(100)]

    def script(asked: Asked) -> None:
        skip, top = asked.body["skip"], asked.body["top"]
        found = ids[skip : skip + top]
        if not skip:
            ids.insert(0, "new")
        asked.reply(200, Map([("skip", Int(skip + len(found))), ("sessions-ids", Array("string", found))])) if found else asked.reply(204)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        assert orders.get_message_sessions() == ids[1:]
        assert [asked.body["skip"] for asked in peer.requests] == [0, 100, 101]


def test_rules_whose_service_ignores_skip() -> None:
    rule = Described(ULong(names.RULE_DESCRIPTION_CODE), (Described(ULong(names.TRUE_FILTER_CODE), ()), None, "one"))
    body = Map([("rules", (Map([("rule-description", rule)]),))])
    error = fails(lambda asked: asked.reply(200, body), lambda orders: orders.enumerate_rules())
    assert "does not advance" in str(error)


def test_a_request_that_is_never_answered_is_repeated_where_it_is_safe_and_then_given_up() -> None:
    with ScriptedPeer(lambda asked: None) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(DeadlineExceededError) as caught:
            orders.peek_message()
        assert caught.value.deadline == "request"
        assert len(peer.requests) == 3
        # Twice on one pair of links, then on another.
        assert (peer.attached.count("orders/$management"), peer.accepted) == (4, 1)


def test_a_change_that_is_never_answered_is_sent_once_and_its_outcome_is_unknown() -> None:
    with ScriptedPeer(lambda asked: None) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(OutcomeUnknownError) as caught:
            orders.schedule_message([SCHEDULED])
        assert caught.value.sent == "schedule-message of 1 messages"
        assert len(peer.requests) == 1


def test_an_answer_after_the_deadline_is_dropped_and_disturbs_nobody() -> None:
    late: list[Asked] = []

    def script(asked: Asked) -> None:
        if not late:
            late.append(asked)
            return
        # First the answer that nobody waits for any more, then the one that is waited for.
        if len(late) == 1:
            late[0].reply(200, page(1))
        asked.reply(200, page(asked.body["from-sequence-number"]))

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        assert [found.sequence_number for found in orders.peek_message(7)] == [7]
        assert [found.sequence_number for found in orders.peek_message(8)] == [8]
        assert len(peer.requests) == 3


def test_a_second_answer_to_one_request_is_dropped() -> None:
    def script(asked: Asked) -> None:
        asked.reply(200, page(asked.body["from-sequence-number"]))
        asked.reply(200, page(99))

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        assert [orders.peek_message(number)[0].sequence_number for number in (3, 4)] == [3, 4]


def test_an_answer_that_was_taken_back_is_none_and_leaves_nothing_in_the_next() -> None:
    def script(asked: Asked) -> None:
        raw = asked.encode(200, page(asked.body["from-sequence-number"]))
        asked.abort(raw[:-10]) if asked.position == 0 else asked.send(raw)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        assert [found.sequence_number for found in orders.peek_message(7)] == [7]
        assert [found.sequence_number for found in orders.peek_message(8)] == [8]
        assert len(peer.requests) == 3


def test_an_answer_without_end_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_links, "_LARGEST_ANSWER", 100_000)
    body = Map([("messages", (Map([("message", message(5, bytes(200_000)))]),))])
    error = fails(lambda asked: asked.reply(200, body), peek)
    assert isinstance(error, RemoteProtocolError)
    assert "more than 100000 bytes" in str(error)


def test_answers_of_any_size_behind_one_another() -> None:
    sizes = [1, 6_000_000, 10, 100_000, 1]

    def script(asked: Asked) -> None:
        wire = message(asked.body["from-sequence-number"], bytes(sizes[asked.position]))
        asked.reply(200, Map([("messages", (Map([("message", wire)]),))]))

    with ScriptedPeer(script) as peer, peer.client(server_timeout_ms=10_000) as client, client.entity("orders") as orders:
        outcomes = dict(orders.pipeline(_peeks(len(sizes)), depth=3))
        assert [len(outcomes[position][0].body) for position in range(len(sizes))] == sizes


def test_bytes_that_are_not_amqp_end_the_connection_with_an_error() -> None:
    error = fails(lambda asked: asked.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"), peek)
    assert isinstance(error, RemoteProtocolError)
    assert "AMQP" in str(error)
