"""Links and connections that are lost, refused, or never come about: what is safe goes on, what is not says what is known."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from spark_sb_mgmt.amqp.types import Array, Int, Map
from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.channel import Window
from spark_sb_mgmt.connection.credentials import SharedAccessKey, Token
from spark_sb_mgmt.connection.endpoint import Endpoint
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.streams import ByteStream
from spark_sb_mgmt.connection.timing import Deadline, Timing
from spark_sb_mgmt.errors import (
    AuthenticationError,
    ClosedError,
    ConnectionFailedError,
    DeadlineExceededError,
    EntityNotFoundError,
    OutcomeUnknownError,
    RequestTooLargeError,
    SbMgmtError,
    ServiceBusError,
    TransactionError,
)
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.schedule import cancel_scheduled_message
from tests.client.scripted_peer import QUICK, Asked, ScriptedPeer, wait_for_bytes
from tests.client.test_misbehaving_service import page

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
SCHEDULED = ScheduledMessage(b"body", LATER, "m1")
NEVER_SOON, LONGEST_WAITS = RetryPolicy(base_delay_s=3600.0, max_delay_s=3600.0), Timing(random=lambda: 1.0)

LOSSES: dict[str, Callable[[Asked], None]] = {
    "socket-closed": Asked.drop,
    "connection-forced": lambda asked: asked.close_connection("amqp:connection:forced"),
    "link-detached": lambda asked: asked.detach("amqp:link:detach-forced"),
    "link-detached-by-unknown-condition": lambda asked: asked.detach("com.example:whim"),
    "session-ended": lambda asked: asked.end_session("amqp:internal-error"),
}


def answer(asked: Asked) -> None:
    if asked.operation == "peek-message":
        asked.reply(200, page(asked.body["from-sequence-number"]))
    elif asked.operation == "schedule-message":
        asked.reply(200, Map([("sequence-numbers", Array("long", [7] * len(asked.body["messages"])))]))
    else:
        asked.reply(200)


def first(what: Callable[[Asked], None], count: int = 1) -> Callable[[Asked], None]:
    """Do something to the first requests and answer the others."""
    return lambda asked: what(asked) if asked.position < count else answer(asked)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_safe_request_is_resumed_on_new_links(loss: Callable[[Asked], None]) -> None:
    with ScriptedPeer(first(loss)) as peer, peer.client() as client, client.entity("orders") as orders:
        assert orders.peek_message(5)[0].sequence_number == 5
        assert len(peer.requests) == 2


# Reasons by which an answer would say that nothing was done. The end of a link says so of what is sent later, not of what was.
REFUSALS: dict[str, Callable[[Asked], None]] = {
    condition: lambda asked, condition=condition: asked.detach(condition)  # type: ignore[misc]
    for condition in ("com.microsoft:server-busy", "amqp:unauthorized-access", "amqp:not-found", "com.microsoft:entity-disabled")
}


@pytest.mark.parametrize("loss", [*LOSSES.values(), *REFUSALS.values()], ids=[*LOSSES, *REFUSALS])
def test_a_change_is_not_repeated_and_its_outcome_is_unknown(loss: Callable[[Asked], None]) -> None:
    with ScriptedPeer(first(loss)) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(OutcomeUnknownError) as caught:
            orders.cancel_scheduled_message([1, 2])
        assert caught.value.sent == "cancel-scheduled-message of 2 messages"
        assert len(peer.requests) == 1
        # The next is on its own.
        orders.cancel_scheduled_message([3])


@pytest.mark.parametrize(
    "refuse",
    [
        lambda asked: asked.reply(503, None, "com.microsoft:server-busy", description="Please wait 0.01 seconds and try again."),
        Asked.release,
        lambda asked: asked.reject("com.microsoft:server-busy"),
    ],
    ids=["busy", "released", "rejected-as-busy"],
)
def test_a_change_that_certainly_had_no_effect_is_repeated(refuse: Callable[[Asked], None]) -> None:
    with ScriptedPeer(first(refuse, 2)) as peer, peer.client() as client, client.entity("orders") as orders:
        assert orders.schedule_message([SCHEDULED]) == [7]
        assert len(peer.requests) == 3


def test_a_request_is_found_by_its_tracking_id_with_all_its_attempts() -> None:
    with ScriptedPeer(lambda asked: asked.reply(503, None, "com.microsoft:server-busy")) as peer, peer.client() as client:
        with pytest.raises(ServiceBusError) as caught, client.entity("orders") as orders:
            orders.peek_message()
        sent = [asked.properties["com.microsoft:tracking-id"] for asked in peer.requests]
        assert len(sent) == 3
        assert set(sent) == {caught.value.tracking_id}
    with ScriptedPeer(Asked.drop) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(OutcomeUnknownError) as unknown:
            orders.schedule_message([SCHEDULED])
        assert unknown.value.tracking_id == peer.requests[0].properties["com.microsoft:tracking-id"] != caught.value.tracking_id


def test_a_change_that_was_rejected_for_good_is_its_error() -> None:
    with ScriptedPeer(lambda asked: asked.reject("amqp:not-found")) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(EntityNotFoundError) as caught:
            orders.schedule_message([SCHEDULED])
        assert not caught.value.may_have_taken_effect
        assert len(peer.requests) == 1


def test_many_in_flight_when_the_connection_is_lost_are_all_resumed() -> None:
    def script(asked: Asked) -> None:
        if asked.position == 20:
            asked.drop()
        elif asked.position > 20:
            answer(asked)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = dict(orders.pipeline([peek_message(number) for number in range(50)], depth=32))
        assert {position: found[0].sequence_number for position, found in outcomes.items()} == {n: n for n in range(50)}
        assert peer.accepted == 2


def test_a_connection_that_is_lost_while_nobody_uses_it_is_opened_again_and_no_change_is_in_doubt() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        orders.schedule_message([SCHEDULED])
        peer.drop_all()
        wait_for_bytes(client)
        assert orders.schedule_message([SCHEDULED]) == [7]
        with orders.transaction() as txn:
            peer_before = peer.accepted
            txn.schedule_message([SCHEDULED])
        peer.drop_all()
        wait_for_bytes(client)
        with orders.transaction() as txn:
            txn.schedule_message([SCHEDULED])
        assert (peer_before, peer.accepted) == (2, 3)


def test_a_suspended_pipeline_survives_the_loss_of_its_connection() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = orders.pipeline([peek_message(number) for number in range(20)], depth=4)
        seen = [next(outcomes)[0]]
        peer.drop_all()
        seen += [position for position, found in outcomes if not isinstance(found, SbMgmtError)]
        assert sorted(seen) == list(range(20))


def test_time_in_which_nobody_listened_does_not_count_against_an_answer() -> None:
    passed = [0.0]
    held: list[Asked] = []

    def script(asked: Asked) -> None:
        held.append(asked) if asked.position == 1 else answer(asked)

    timing = Timing(clock=lambda: time.monotonic() + passed[0])
    with ScriptedPeer(script) as peer, peer.client(timing=timing) as client, client.entity("orders") as orders:
        outcomes = orders.pipeline([peek_message(0), peek_message(1)], depth=2)
        next(outcomes)
        peer.wait_for_requests(2)
        peer.do(lambda: answer(held[0]))
        wait_for_bytes(client)
        passed[0] += 3600
        assert [found[0].sequence_number for _, found in outcomes if not isinstance(found, SbMgmtError)] == [1]
        assert len(peer.requests) == 2


def test_a_failing_request_does_not_lose_the_others() -> None:
    def script(asked: Asked) -> None:
        number = asked.body["from-sequence-number"]
        asked.reply(400, None, "com.microsoft:argument-error") if number % 3 == 0 else answer(asked)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = dict(orders.pipeline([peek_message(number) for number in range(9)], depth=4))
    assert sorted(position for position, outcome in outcomes.items() if isinstance(outcome, SbMgmtError)) == [0, 3, 6]


def test_a_failing_maker_of_requests_does_not_lose_the_outcomes_of_those_it_made() -> None:
    def requests() -> Any:
        yield peek_message(0)
        yield peek_message(1)
        raise KeyError("the next row")

    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = orders.pipeline(requests(), depth=8)
        assert sorted((next(outcomes)[0], next(outcomes)[0])) == [0, 1]
        with pytest.raises(KeyError):
            next(outcomes)


def test_no_more_than_the_depth_is_in_flight() -> None:
    waiting: list[Asked] = []
    most = [0]

    def script(asked: Asked) -> None:
        waiting.append(asked)
        most[0] = max(most[0], len(waiting))
        if len(waiting) == 5 or asked.position >= 95:
            while waiting:
                # Newest first: answers are matched by their id, not by their order.
                answer(waiting.pop())

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = dict(orders.pipeline([peek_message(number) for number in range(100)], depth=5))
    assert {position: found[0].sequence_number for position, found in outcomes.items()} == {n: n for n in range(100)}
    assert most[0] == 5


def test_a_pipeline_that_is_left_early_disturbs_nobody() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        outcomes = orders.pipeline([peek_message(number) for number in range(100)], depth=8)
        next(outcomes)
        outcomes.close()
        assert orders.peek_message(55)[0].sequence_number == 55


def ticking(passed: list[float]) -> Callable[[Asked], None]:
    """Each request takes nearly all the time that it has."""

    def script(asked: Asked) -> None:
        passed[0] += 0.25
        answer(asked)

    return script


def test_a_change_that_waits_for_its_turn_has_all_its_time_once_it_is_sent() -> None:
    """As where another thread drives the connection, for another entity."""
    passed = [0.0]
    timing = Timing(clock=lambda: passed[0])
    with ScriptedPeer(ticking(passed)) as peer, peer.client(timing=timing, max_retries=0) as client:
        orders, other = client.entity("orders"), client.entity("other")
        window: Window[None] = Window(orders._channel, 1)
        window.submit(cancel_scheduled_message([1]), "mine")
        for _ in range(3):
            other.peek_message()
        assert window.next() == ("mine", None)


def test_many_requests_may_wait_long_for_credit_as_long_as_some_comes() -> None:
    passed = [0.0]
    timing = Timing(clock=lambda: passed[0])
    with ScriptedPeer(ticking(passed), credit_of={"$cbs": 1, "orders/$management": 1}) as peer:
        with peer.client(timing=timing, max_retries=0) as client, client.entity("orders") as orders:
            outcomes = orders.pipeline([peek_message(number) for number in range(20)], depth=20)
            assert sorted(outcome[0].sequence_number for _, outcome in outcomes if not isinstance(outcome, SbMgmtError)) == list(range(20))
        assert passed[0] == 20 * 0.25


# --- deadlines ----------------------------------------------------------------------------------------------------------


def deadline_of(peer: ScriptedPeer, **settings: Any) -> str:
    with peer, peer.client(retry=RetryPolicy(max_retries=0), **settings) as client, client.entity("orders") as orders:
        with pytest.raises(DeadlineExceededError) as caught:
            orders.cancel_scheduled_message([1])
        assert not caught.value.may_have_taken_effect
        return caught.value.deadline


def test_every_wait_has_its_deadline() -> None:
    assert deadline_of(ScriptedPeer(answer, opens=False), open_timeout_s=0.1) == "open"
    assert deadline_of(ScriptedPeer(answer, ignore_attach=("$cbs",)), attach_timeout_s=0.1) == "attach"
    assert deadline_of(ScriptedPeer(answer, cbs=lambda asked: None), put_token_timeout_s=0.1) == "put-token"
    assert deadline_of(ScriptedPeer(answer, ignore_attach=("orders/$management",)), attach_timeout_s=0.1) == "attach"


def test_a_peer_that_opens_no_links_is_left_after_the_second_time() -> None:
    with ScriptedPeer(answer, ignore_attach=("orders/$management",)) as peer:
        retry = RetryPolicy(max_retries=2, base_delay_s=0.001)
        with peer.client(retry=retry, attach_timeout_s=0.05) as client, client.entity("orders") as orders:
            with pytest.raises(DeadlineExceededError) as caught:
                orders.peek_message()
            assert caught.value.deadline == "attach"
            assert peer.accepted == 2
            # It lives again; what is asked of it is answered on the second connection.
            peer.ignore_attach = ()
            assert orders.peek_message(5)[0].sequence_number == 5
            assert peer.accepted == 2


def test_a_request_for_which_there_is_no_credit_is_not_sent_and_known_not_to_be() -> None:
    def cbs_credit(asked: Asked) -> None:
        raise AssertionError("not without credit")

    peer = ScriptedPeer(answer, cbs=cbs_credit, credit=0)
    assert deadline_of(peer, put_token_timeout_s=0.1) == "put-token"


def test_a_server_that_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
        with ManagementClient.from_connection_string(text, open_timeout_s=0.1, max_retries=0) as client:
            with pytest.raises(DeadlineExceededError) as caught:
                client.entity("orders").peek_message()
            assert caught.value.deadline == "open"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=very-secret;UseDevelopmentEmulator=true"
    with ManagementClient.from_connection_string(text, **QUICK) as client:
        with pytest.raises(ConnectionFailedError) as caught:
            client.entity("orders").schedule_message([SCHEDULED])
        assert f"127.0.0.1:{port}" in str(caught.value)
        assert "very-secret" not in str(caught.value) + repr(client) + repr(client.entity("orders"))


def test_links_without_credit_are_given_up_and_then_their_connection() -> None:
    credit = {"$cbs": 100}
    with ScriptedPeer(answer, credit_of=credit) as peer, peer.client(max_retries=0) as client, client.entity("orders") as orders:
        for _ in range(2):
            with pytest.raises(DeadlineExceededError) as caught:
                orders.cancel_scheduled_message([1])
            assert (caught.value.deadline, caught.value.may_have_taken_effect) == ("request", False)
        assert (peer.requests, peer.attached.count("orders/$management"), peer.accepted) == ([], 4, 1)
        credit.clear()
        orders.cancel_scheduled_message([1])
        assert (len(peer.requests), peer.accepted) == (1, 2)


# --- refusals while opening ---------------------------------------------------------------------------------------------


def test_an_entity_that_is_not_there() -> None:
    refused = {"orders/$management": "amqp:not-found"}
    with ScriptedPeer(answer, refuse_attach=refused) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(EntityNotFoundError) as caught:
            orders.schedule_message([SCHEDULED])
        assert (caught.value.entity, caught.value.may_have_taken_effect) == ("orders", False)
        assert pickle.loads(pickle.dumps(caught.value)).entity == "orders"


def test_a_token_that_is_refused() -> None:
    def cbs(asked: Asked) -> None:
        asked.reply(None, None, properties={"status-code": Int(401), "status-description": "InvalidSignature"})

    with ScriptedPeer(answer, cbs=cbs) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(AuthenticationError) as caught:
            orders.peek_message()
        assert "top-secret-key" not in str(caught.value)
        assert "put-token: " in str(caught.value)
        assert (caught.value.operation, caught.value.entity) == ("peek-message", "orders")


def test_sasl_without_a_mechanism_that_we_know() -> None:
    with ScriptedPeer(answer, mechanisms=("EXTERNAL", "PLAIN")) as peer, peer.client() as client:
        with pytest.raises(ConnectionFailedError, match="EXTERNAL, PLAIN") as caught:
            client.entity("orders").peek_message()
        # The key does not go out without encryption, and asking again changes nothing.
        assert not caught.value.retryable
        assert peer.accepted == 1


def test_sasl_under_the_name_that_dotnet_asks_for() -> None:
    with ScriptedPeer(answer, mechanisms=("MSSBCBS",)) as peer, peer.client() as client:
        assert len(client.entity("orders").peek_message()) == 1


# --- sizes --------------------------------------------------------------------------------------------------------------


def test_a_request_that_the_link_does_not_take_is_not_sent() -> None:
    with ScriptedPeer(answer, max_message_size=4096) as peer, peer.client() as client, client.entity("orders") as orders:
        assert orders.max_message_size == 4096
        with pytest.raises(RequestTooLargeError) as caught:
            orders.schedule_message([SCHEDULED, ScheduledMessage(bytes(5000), LATER, "m2"), SCHEDULED])
        assert (caught.value.row, caught.value.limit) == (1, 4096)
        assert 5000 < caught.value.size < 6000
        with pytest.raises(RequestTooLargeError) as caught:
            orders.schedule_message([ScheduledMessage(bytes(500), LATER, f"m{n}") for n in range(10)])
        assert (caught.value.row, caught.value.limit) == (None, 4096)
        with orders.transaction() as txn:
            with pytest.raises(RequestTooLargeError) as caught:
                txn.schedule_message([SCHEDULED, ScheduledMessage(bytes(5000), LATER, "m2")])
            assert caught.value.row == 1
        with pytest.raises(RequestTooLargeError) as caught:
            orders.cancel_scheduled_message(range(1000))
        assert (caught.value.row, caught.value.operation) == (None, "cancel-scheduled-message")
        assert not peer.requests


def test_a_peer_that_sets_no_limit() -> None:
    with ScriptedPeer(answer, max_message_size=0) as peer, peer.client() as client, client.entity("orders") as orders:
        assert orders.max_message_size is None
        assert orders.schedule_message([ScheduledMessage(bytes(3_000_000), LATER, "m")]) == [7]


# --- transactions -------------------------------------------------------------------------------------------------------


def test_requests_of_a_transaction_carry_its_id() -> None:
    states = []

    def script(asked: Asked) -> None:
        states.append(asked.delivery_state)
        answer(asked)

    with ScriptedPeer(script) as peer, peer.client() as client, client.entity("orders") as orders:
        with orders.transaction() as txn:
            txn.schedule_message([SCHEDULED])
        orders.schedule_message([SCHEDULED])
        assert (states[0][0], bytes(states[0][1][0])) == (0x34, b"t1")
        assert states[1][0] != 0x34
        assert peer.discharged == [(b"t1", False)]


def test_a_transaction_is_rolled_back_on_an_error() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        txn = orders.transaction()

        def use() -> None:
            with txn:
                txn.schedule_message([SCHEDULED])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            use()
        with pytest.raises(ClosedError):
            txn.schedule_message([SCHEDULED])
        assert peer.discharged == [(b"t1", True)]


def test_a_transaction_whose_connection_is_lost_is_over() -> None:
    with ScriptedPeer(first(Asked.drop)) as peer, peer.client() as client, client.entity("orders") as orders:
        with pytest.raises(TransactionError), orders.transaction() as txn:
            txn.schedule_message([SCHEDULED])
        assert peer.discharged == []

        def use() -> None:
            with orders.transaction():
                peer.drop_all()
                wait_for_bytes(client)

        with pytest.raises(TransactionError):
            use()
        assert peer.discharged == []


def test_a_transaction_whose_commit_is_not_answered() -> None:
    def coordinate(request: Any, delivery: Any, peer: Any) -> None:
        if request.body.value.descriptor == 0x31:
            delivery.local.data = [b"t1"]
            delivery.update(0x33)
            delivery.settle()
        else:
            peer.drop()

    with ScriptedPeer(answer, coordinate=coordinate) as peer, peer.client() as client:
        orders = client.entity("orders")
        with pytest.raises(OutcomeUnknownError), orders.transaction() as txn:
            txn.schedule_message([SCHEDULED])


def test_a_transaction_that_is_refused() -> None:
    def coordinate(request: Any, delivery: Any, peer: Any) -> None:
        from proton import Condition, Delivery

        delivery.local.condition = Condition("amqp:not-implemented", "no transactions here")
        delivery.update(Delivery.REJECTED)
        delivery.settle()

    with ScriptedPeer(answer, coordinate=coordinate) as peer, peer.client() as client:
        orders = client.entity("orders")
        with pytest.raises(ServiceBusError, match="no transactions here"), orders.transaction():
            raise AssertionError("not entered")


# --- closing, threads, processes ----------------------------------------------------------------------------------------


def test_closing_does_not_wait_for_a_peer_that_does_not_answer() -> None:
    with ScriptedPeer(answer, closes=False) as peer:
        client = peer.client(close_timeout_s=0.05)
        orders = client.entity("orders")
        orders.peek_message()
        client.close()
        client.close()
        for use in (orders.peek_message, lambda: client.entity("other"), lambda: next(orders.peek_range())):
            with pytest.raises(ClosedError):
                use()


def test_an_entity_that_was_closed_leaves_the_others_alone() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client:
        orders, other = client.entity("orders"), client.entity("other")
        orders.peek_message()
        other.peek_message()
        orders.close()
        orders.close()
        with pytest.raises(ClosedError):
            orders.peek_message()
        assert other.peek_message(3)[0].sequence_number == 3
        assert peer.accepted == 1


def test_a_connection_does_not_grow_with_the_entities_that_were_opened_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Spark keeps its connection for all its tasks, each of which opens an entity."""
    monkeypatch.setattr("spark_sb_mgmt.connection.engine._MOST_SESSIONS", 10)
    with ScriptedPeer(answer) as peer, peer.client() as client:
        for number in range(30):
            with client.entity("other") as other:
                assert other.peek_message(number)[0].sequence_number == number
        # One session of each connection is that of $cbs.
        assert peer.accepted == 4
        assert len(peer.requests) == 30


def test_a_connection_that_held_many_entities_is_not_taken_from_those_that_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_sb_mgmt.connection.engine._MOST_SESSIONS", 10)
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        suspended = orders.pipeline([peek_message(number) for number in range(10)], depth=4)
        next(suspended)
        for _ in range(20):
            with client.entity("other") as other:
                other.peek_message()
        assert len(list(suspended)) == 9
        assert (peer.accepted, len(peer.requests)) == (1, 30)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda orders: orders.peek_message(), ClosedError),
        (lambda orders: orders.schedule_message([SCHEDULED]), OutcomeUnknownError),
    ],
    ids=["safe", "change"],
)
def test_closing_from_another_thread_ends_a_request_in_flight(use: Callable[[EntityClient], Any], error: type[Exception]) -> None:
    caught: list[BaseException] = []
    with ScriptedPeer(lambda asked: None) as peer, peer.client(server_timeout_ms=60_000) as client, client.entity("orders") as orders:

        def run() -> None:
            try:
                use(orders)
            except BaseException as problem:
                caught.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        peer.wait_for_requests(1)
        client.close()
        thread.join(10)
        assert not thread.is_alive()
    assert [type(problem) for problem in caught] == [error]


def test_closing_an_entity_while_another_thread_waits_waits_for_nobody_and_takes_nothing_from_it() -> None:
    held: list[Asked] = []
    found: list[int] = []
    with ScriptedPeer(held.append) as peer, peer.client(server_timeout_ms=60_000) as client:
        orders, other = client.entity("orders"), client.entity("other")
        thread = threading.Thread(target=lambda: found.append(orders.peek_message(5)[0].sequence_number))
        thread.start()
        peer.wait_for_requests(1)
        # Of the one that is waited for, and of one on the same connection.
        orders.close()
        other.close()
        assert thread.is_alive()
        peer.do(lambda: answer(held[0]))
        thread.join(10)
        assert found == [5]
        with pytest.raises(ClosedError):
            orders.peek_message()


def test_closing_ends_the_wait_before_the_next_attempt() -> None:
    caught: list[BaseException] = []
    waits = RetryPolicy(max_retries=3, base_delay_s=600.0, max_delay_s=600.0)
    waiting = threading.Event()

    def sleep(seconds: float, ended: threading.Event) -> None:
        waiting.set()
        ended.wait(seconds)

    def run() -> None:
        try:
            client.entity("orders").peek_message()
        except BaseException as problem:
            caught.append(problem)

    timing = Timing(sleep=sleep, random=lambda: 1.0)
    with ScriptedPeer(Asked.drop) as peer, peer.client(retry=waits, timing=timing) as client:
        thread = threading.Thread(target=run)
        thread.start()
        assert waiting.wait(10)
        client.close()
        thread.join(10)
        assert not thread.is_alive()
    assert [type(problem) for problem in caught] == [ClosedError]


def test_closing_while_another_thread_connects_leaves_nothing_open() -> None:
    """The thread finds the client closed when its connection has come about, and ends it."""
    caught: list[BaseException] = []
    connecting, closed = threading.Event(), threading.Event()

    class Slow(Endpoint):
        def open(self, deadline: Deadline) -> ByteStream:
            connecting.set()
            assert closed.wait(10)
            streams.append(super().open(deadline))
            return streams[0]

    def run() -> None:
        try:
            client.entity("orders").peek_message()
        except BaseException as problem:
            caught.append(problem)

    streams: list[ByteStream] = []
    with ScriptedPeer(answer) as peer, peer.client(close_timeout_s=0.05) as client:
        endpoint = client._connection.endpoint
        client._connection.endpoint = Slow(endpoint.host, endpoint.port, endpoint.settings, endpoint.use_development_emulator)
        thread = threading.Thread(target=run)
        thread.start()
        assert connecting.wait(10)
        client.close()
        closed.set()
        thread.join(10)
        assert not thread.is_alive()
        (stream,) = streams
        assert stream._socket.fileno() == -1  # type: ignore[attr-defined]
    assert [type(problem) for problem in caught] == [ClosedError]


def test_threads_take_turns() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client:
        seen: list[int] = []

        def run(base: int) -> None:
            with client.entity("orders") as orders:
                for number in range(base, base + 20):
                    seen.append(orders.peek_message(number)[0].sequence_number)

        threads = [threading.Thread(target=run, args=(base,)) for base in (0, 100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(seen) == sorted(base + number for base in (0, 100, 200, 300) for number in range(20))
        assert peer.accepted == 1


def test_a_forked_process_has_a_connection_of_its_own_and_leaves_the_parents_alone() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        orders.peek_message()
        suspended = orders.pipeline([peek_message(number) for number in range(10)], depth=4)
        next(suspended)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                rest = [outcome for _, outcome in suspended]
                fine = orders.peek_message(42)[0].sequence_number == 42 and len(rest) == 9
                client.close()
                status = 0 if fine and not any(isinstance(outcome, SbMgmtError) for outcome in rest) else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert peer.accepted == 2
        # The parent's connection was not touched: what it had in flight is answered on it.
        assert sorted(position for position, _ in suspended) == list(range(1, 10))
        assert orders.peek_message(43)[0].sequence_number == 43
        assert peer.accepted == 2


def test_a_forked_process_does_not_send_what_the_parent_is_still_to_send() -> None:
    def busy(asked: Asked) -> None:
        asked.reply(503, None, "com.microsoft:server-busy")

    with ScriptedPeer(first(busy)) as peer, peer.client(retry=NEVER_SOON, timing=LONGEST_WAITS) as client:
        orders = client.entity("orders")

        def run() -> None:
            with pytest.raises(ClosedError):
                orders.schedule_message([SCHEDULED])

        thread = threading.Thread(target=run)
        thread.start()
        deadline = time.monotonic() + 10
        while not orders._channel._waiting:
            assert time.monotonic() < deadline
        child = os.fork()
        if child == 0:
            try:
                for call in orders._channel._waiting:
                    call.due = 0.0
                orders.peek_message()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [asked.operation for asked in peer.requests] == ["schedule-message", "peek-message"]
        client.close()
        thread.join(10)
        assert not thread.is_alive()


def test_an_interrupt_leaves_a_client_that_can_be_used() -> None:
    def interrupted(seconds: float, ended: threading.Event) -> None:
        raise KeyboardInterrupt

    # The connection is lost: the client waits before it tries again, and is interrupted in that wait.
    with ScriptedPeer(first(Asked.drop)) as peer, peer.client(timing=Timing(sleep=interrupted)) as client:
        orders = client.entity("orders")
        with pytest.raises(KeyboardInterrupt):
            orders.peek_message()
        assert orders.peek_message(9)[0].sequence_number == 9


class InterruptedOnce:
    """A credential that Ctrl-C comes in the middle of, the first time."""

    def __init__(self) -> None:
        self.asked = 0

    def token(self, audience: str, now: float) -> Token:
        self.asked += 1
        if self.asked == 1:
            raise KeyboardInterrupt
        return SharedAccessKey("root", "key").token(audience, now)


def test_a_request_that_was_interrupted_is_not_sent_later() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, client.entity("orders") as orders:
        client._connection._credential = InterruptedOnce()
        with pytest.raises(KeyboardInterrupt):
            orders.schedule_message([SCHEDULED])
        orders.peek_message()
        assert [asked.operation for asked in peer.requests] == ["peek-message"]


def test_a_client_does_not_pickle() -> None:
    with ScriptedPeer(answer) as peer, peer.client() as client, pytest.raises(TypeError, match="open it where it is used"):
        pickle.dumps(client)


# --- heartbeats ---------------------------------------------------------------------------------------------------------


def test_heartbeats_are_sent_while_an_answer_is_waited_for() -> None:
    held: list[Asked] = []
    # The peer gives up on who is silent for 0.2 s; the answer comes after several times that.
    with ScriptedPeer(held.append, idle_timeout=0.2) as peer, peer.client(server_timeout_ms=5000) as client:
        late = threading.Timer(0.8, lambda: peer.do(lambda: answer(held[0])))
        late.start()
        try:
            assert client.entity("orders").peek_message(1)[0].sequence_number == 1
        finally:
            late.cancel()
            late.join()
        assert (len(held), peer.accepted) == (1, 1)


def test_a_peer_that_went_silent_is_found_out() -> None:
    # It sends no heartbeats, because nothing wakes it; a peer that is alive would within half of what we announce.
    settings: dict[str, Any] = {"idle_timeout_s": 0.1, "server_timeout_ms": 60_000, "max_retries": 0}
    with ScriptedPeer(lambda asked: None) as peer, peer.client(**settings) as client:
        orders = client.entity("orders")
        with pytest.raises(SbMgmtError, match="nothing came from"):
            orders.peek_message()
