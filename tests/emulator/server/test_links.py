"""Links: attached as they were asked for, or refused; kept in credit; their messages of any size; and what stays when they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Data, Described, Endpoint, Link, Message, int32, symbol, uint, ulong

from spark_sb_mgmt.emulator import Emulator, Fault
from tests.emulator.server.peer import (
    UUID,
    Outcome,
    Peer,
    RefusedError,
    array,
    message,
    peek_body,
    peeked,
)

SESSION = symbol("com.microsoft:session-filter")
LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")


@pytest.fixture
def peer(emulator: Emulator) -> Any:
    with Peer.connect(emulator) as connected:
        yield connected


# Attaching


@pytest.mark.parametrize(
    "address", ["q", "/q", "Q", "amqps://localhost:5671/q", "amqp://127.0.0.1/q", "sb://anything/Q/"], ids=lambda address: address
)
def test_an_entity_is_found_by_every_form_of_its_address(peer: Peer, address: str) -> None:
    assert peer.send(peer.sender(address), message(b"a")) == Outcome("accepted")
    assert [received.body for received in peer.receive(peer.receiver(address, 1))] == [b"a"]


@pytest.mark.parametrize(
    "address",
    [
        "site1/q",
        "q/$DeadLetterQueue",
        "q/$deadletterqueue",
        "q/$Transfer/$DeadLetterQueue",
        "events/Subscriptions/audit",
        "events/subscriptions/AUDIT/$DeadLetterQueue",
    ],
)
def test_names_with_slashes_sub_queues_and_subscriptions_are_attached_with_the_address_echoed_to_the_byte(peer: Peer, address: str) -> None:
    receiver = peer.receiver(address, target="my own")
    assert (receiver.remote_source.address, receiver.remote_target.address) == (address, "my own")
    node = peer.receiver(f"{address}/$management", target="answers")
    assert (node.remote_source.address, node.remote_target.address) == (f"{address}/$management", "answers")


def test_source_target_and_settle_modes_are_echoed(peer: Peer) -> None:
    sender = peer.sender("amqps://host/q", name="a name")
    assert (sender.remote_target.address, sender.remote_source.address) == ("amqps://host/q", "here")
    receiver = peer.receiver("q", delete=True)
    assert (receiver.remote_snd_settle_mode, receiver.remote_rcv_settle_mode) == (Link.SND_SETTLED, Link.RCV_FIRST)
    receiver = peer.receiver("q")
    assert (receiver.remote_snd_settle_mode, receiver.remote_rcv_settle_mode) == (Link.SND_UNSETTLED, Link.RCV_SECOND)


def test_a_link_says_how_large_a_message_may_be(peer: Peer) -> None:
    sender = peer.sender("small")
    assert sender.remote_max_message_size == 1024
    assert sender.remote_properties[symbol("com.microsoft:max-message-batch-size")] == 1024
    assert peer.sender("q").remote_max_message_size == 256 * 1024


@pytest.mark.parametrize(
    ("role", "address", "condition"),
    [
        ("sender", "nothing", "amqp:not-found"),
        ("receiver", "nothing", "amqp:not-found"),
        ("receiver", "nothing/$management", "amqp:not-found"),
        ("sender", "nothing/$management", "amqp:not-found"),
        ("receiver", "events", "amqp:not-allowed"),
        ("sender", "events/Subscriptions/audit", "amqp:not-allowed"),
        ("sender", "q/$DeadLetterQueue", "amqp:not-allowed"),
        ("receiver", "sessions", "amqp:not-allowed"),
        ("receiver", None, "amqp:invalid-field"),
        ("sender", None, "amqp:invalid-field"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_the_reason_and_the_session_goes_on(
    peer: Peer, role: str, address: str | None, condition: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        getattr(peer, role)(address)
    assert refused.value.condition == condition
    assert peer.send(peer.sender("q"), message(b"a")) == Outcome("accepted")


def test_a_dynamic_address_is_refused(peer: Peer) -> None:
    link = peer.session.receiver("dynamic")
    link.source.dynamic = True
    with pytest.raises(RefusedError, match="invalid-field"):
        peer.attach(link)


# Requests and answers


def test_answers_come_back_within_their_session_though_all_name_the_same_reply_to(emulator: Emulator) -> None:
    with Peer.connect(emulator) as peer, Peer.connect(emulator) as stranger:
        pairs = [
            peer.pair("q/$management", reply_to="q/$management"),
            peer.pair("q/$management", session=peer.begin(), reply_to="q/$management"),
            stranger.pair("q/$management", reply_to="q/$management"),
        ]
        peers = [peer, peer, stranger]
        for number, (asker, pair) in enumerate(zip(peers, pairs, strict=True)):
            asker.ask(pair, "peek-message", peek_body(), id=f"request {number}", reply_to="q/$management")
        for number, (asker, pair) in enumerate(zip(peers, pairs, strict=True)):
            assert [reply.message.correlation_id for reply in asker.answers(pair)] == [f"request {number}"]


@pytest.mark.parametrize("reply_to", [None, "an address that no link has"])
def test_without_a_reply_to_that_fits_the_answer_comes_on_the_link_from_the_node(peer: Peer, reply_to: str | None) -> None:
    pair = peer.pair("q/$management", reply_to=None)
    peer.ask(pair, "peek-message", peek_body(), id="mine", reply_to=reply_to)
    assert [reply.message.correlation_id for reply in peer.answers(pair)] == ["mine"]


def test_of_several_links_from_a_node_the_one_that_is_named_gets_the_answer(peer: Peer) -> None:
    first = peer.pair("q/$management", reply_to="first")
    second = peer.pair("q/$management", reply_to="second")
    peer.ask(second, "peek-message", peek_body(), id="one", reply_to="first")
    peer.ask(first, "peek-message", peek_body(), id="two", reply_to="second")
    assert [reply.message.correlation_id for reply in peer.answers(first)] == ["one"]
    assert [reply.message.correlation_id for reply in peer.answers(second)] == ["two"]


def test_a_request_that_comes_before_the_link_for_its_answer_is_answered_when_that_is_there(peer: Peer) -> None:
    sender = peer.sender("q/$management")
    peer.ask((sender, None), "peek-message", peek_body(), id="early")
    receiver = peer.receiver("q/$management", 1, target="replies", delete=True)
    assert [received.message.correlation_id for received in peer.receive(receiver)] == ["early"]


def test_credit_is_given_back_so_that_requests_go_on_beyond_the_first_thousand(peer: Peer) -> None:
    pair = peer.pair("q/$management")
    answered = 0
    for _ in range(25):
        for _ in range(100):
            peer.ask(pair, "peek-message", peek_body())
        answered += len(peer.answers(pair, 100))
        assert pair[0].credit > 0
    assert answered == 2500


def test_credit_of_a_sender_is_given_back_though_all_it_sends_is_throttled(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("throttle", operation="send", count=None))
    sender = peer.sender("q")
    for _ in range(15):
        deliveries = [peer.post(sender, message(b"a")) for _ in range(100)]
        assert {peer.outcome(delivery) for delivery in deliveries} == {Outcome("rejected", "com.microsoft:server-busy")}
    assert sender.credit > 0


def test_a_request_that_is_no_message_is_rejected_and_the_next_one_answered(peer: Peer) -> None:
    pair = peer.pair("q/$management")
    assert peer.send(pair[0], b"\xff\xff no message") == Outcome("rejected", "amqp:decode-error")
    peer.ask(pair, "peek-message", peek_body())
    assert [reply.status for reply in peer.answers(pair)] == [204]


def test_a_client_that_takes_no_answers_is_told_to_when_too_many_requests_wait(peer: Peer) -> None:
    receiver = peer.receiver("q/$management", 0, target="replies", delete=True)
    pair = peer.sender("q/$management"), receiver
    large = {**peek_body(), "padding": "p" * 900_000}
    deliveries = [peer.ask(pair, "peek-message", large) for _ in range(20)]
    assert peer.outcome(deliveries[-1]) == Outcome("rejected", "amqp:resource-limit-exceeded")
    receiver.flow(20)
    taken = len(peer.receive(receiver, 1))
    accepted = 20 - sum(1 for delivery in deliveries if peer.outcome(delivery).state == "rejected")
    if accepted > taken:
        peer.receive(receiver, accepted - taken)
    assert 1 < accepted < 20


# Receiving


def test_a_receiver_gets_no_more_than_its_credit_and_the_rest_when_it_gives_more(peer: Peer) -> None:
    peer.send(peer.sender("q"), *(message(b"%d" % number) for number in range(5)))
    receiver = peer.receiver("q", 2)
    assert [received.body for received in peer.receive(receiver, 2)] == [b"0", b"1"]
    # An answer to a request sent after the deliveries: had there been a third, it would have come before.
    assert len(peeked(peer, "q")) == 5
    assert receiver.queued == 0
    receiver.flow(10)
    assert [received.body for received in peer.receive(receiver, 3)] == [b"2", b"3", b"4"]


def test_drain_takes_back_what_credit_finds_no_message(peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"a"))
    receiver = peer.receiver("q")
    receiver.drain(10)
    peer.until(lambda: not receiver.draining())
    assert [received.body for received in peer.receive(receiver)] == [b"a"]
    assert receiver.credit == 0


def test_a_reply_link_can_be_drained_too(peer: Peer) -> None:
    receiver = peer.receiver("q/$management", delete=True)
    receiver.drain(7)
    peer.until(lambda: not receiver.draining())
    assert receiver.credit == 0


def test_receive_and_delete_removes_what_it_delivers(peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"a"), message(b"b"))
    (received,) = peer.receive(peer.receiver("q", 1, delete=True))
    assert received.body == b"a"
    assert received.delivery.settled
    assert peeked(peer, "q") == [b"b"]


def test_two_receivers_share_a_queue_and_no_message_comes_to_both(emulator: Emulator) -> None:
    with Peer.connect(emulator) as one, Peer.connect(emulator) as two:
        first, second = one.receiver("q", 10), two.receiver("q", 10)
        one.send(one.sender("q"), *(message(b"%02d" % number) for number in range(20)))
        bodies = [received.body for received in (*one.receive(first, 10), *two.receive(second, 10))]
        assert sorted(bodies) == [b"%02d" % number for number in range(20)]


# Sizes


@pytest.mark.parametrize("max_frame_size", [512, 65536, None])
def test_a_large_message_goes_over_many_frames_both_ways(emulator: Emulator, max_frame_size: int | None) -> None:
    with Peer.connect(emulator, max_frame_size=max_frame_size) as peer:
        body = bytes(range(256)) * 12_000
        assert peer.send(peer.sender("large"), message(body)) == Outcome("accepted")
        (received,) = peer.receive(peer.receiver("large", 1))
        assert received.body == body
        assert peer.settle(received) == Outcome("accepted")


def test_a_message_over_the_limit_ends_its_link_and_nothing_else(peer: Peer) -> None:
    sender, other = peer.sender("small"), peer.sender("q")
    peer.post(sender, message(b"x" * 2000))
    assert peer.detached(sender) == "amqp:link:message-size-exceeded"
    assert peer.send(other, message(b"a")) == Outcome("accepted")
    assert peeked(peer, "small") == []


def test_a_message_that_never_ends_is_cut_off_at_the_limit(peer: Peer) -> None:
    sender = peer.sender("small")
    sender.delivery("endless")
    for _ in range(100):
        sender.send(b"x" * 1000)
        peer.flush()
    assert peer.detached(sender) == "amqp:link:message-size-exceeded"


def test_an_aborted_delivery_leaves_nothing_behind(peer: Peer) -> None:
    sender = peer.sender("q")
    delivery = sender.delivery("aborted")
    sender.send(message(b"never")[:-2])
    peer.flush()
    delivery.abort()
    assert peer.send(sender, message(b"a")) == Outcome("accepted")
    assert peeked(peer, "q") == [b"a"]


def test_what_is_no_message_is_rejected(peer: Peer) -> None:
    sender = peer.sender("q")
    assert peer.send(sender, b"no message") == Outcome("rejected", "amqp:decode-error")
    assert peer.send(sender, message(b"a")) == Outcome("accepted")


def test_the_sender_of_a_settled_message_learns_of_its_refusal_by_the_end_of_the_link(peer: Peer) -> None:
    sender = peer.sender("q")
    peer.post(sender, b"no message").settle()
    assert peer.detached(sender) == "amqp:decode-error"


# Going


def _close_link(peer: Peer, receiver: Any) -> None:
    peer.detach(receiver)


def _end_session(peer: Peer, receiver: Any) -> None:
    receiver.session.close()
    peer.until(lambda: receiver.session.state & Endpoint.REMOTE_CLOSED)


@pytest.mark.parametrize("go", [_close_link, _end_session, Peer.close, Peer.drop])
def test_messages_of_a_receiver_that_goes_are_free_at_once(stopped_clock: Emulator, go: Callable[..., None]) -> None:
    with Peer.connect(stopped_clock) as goes, Peer.connect(stopped_clock) as peer:
        peer.send(peer.sender("q"), message(b"a"))
        receiver = goes.receiver("q", 10, session=goes.begin())
        goes.receive(receiver)
        if go in (Peer.close, Peer.drop):
            go(goes)
            while stopped_clock.connections > 1:
                pass
        else:
            go(goes, receiver)
        # The clock stands still, so no lock has expired.
        (received,) = peer.receive(peer.receiver("q", 10))
        assert (received.body, received.message.delivery_count) == (b"a", 0)


def test_a_receiver_that_was_sent_away_keeps_its_locks_and_can_settle_by_request(emulator: Emulator, peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"a"))
    receiver = peer.receiver("q", 1)
    (received,) = peer.receive(receiver)
    emulator.faults.add(Fault("detach-idle", entity="q", seconds=0, count=None))
    assert peer.detached(receiver) == "amqp:link:detach-forced"
    emulator.faults.clear()
    again = peer.receiver("q", 1)
    assert len(peeked(peer, "q")) == 1
    assert again.queued == 0, "the lock went with the link"
    body = {"disposition-status": "completed", "lock-tokens": array(UUID, received.lock_token)}
    assert peer.request("q", "update-disposition", body).status == 200
    assert peeked(peer, "q") == []


def test_a_lock_that_expires_brings_the_message_to_the_next_receiver_and_its_first_is_told(stopped_clock: Emulator) -> None:
    with Peer.connect(stopped_clock) as peer:
        peer.send(peer.sender("q"), message(b"a"))
        (received,) = peer.receive(peer.receiver("q", 1))
        second = peer.receiver("q", 1)
        stopped_clock.advance(60)
        (again,) = peer.receive(second)
        assert again.message.delivery_count == 1
        assert peer.settle(received) == Outcome("rejected", "com.microsoft:message-lock-lost")
        assert peer.settle(again) == Outcome("accepted")


# Sessions


def session_filter(session_id: str | int | None, *, described: bool = False) -> dict[Any, Any]:
    value: Any = Described(ulong(0x137000000C), session_id) if described else session_id
    return {SESSION: value}


def send_to_session(peer: Peer, session_id: str, *bodies: bytes) -> None:
    sender = peer.sender("sessions")
    assert peer.send(sender, *(message(body, group_id=session_id) for body in bodies)) == Outcome("accepted")


def assigned(receiver: Any) -> Any:
    data: Data = receiver.remote_source.filter
    data.rewind()
    data.next()
    return data.get_object()[SESSION]


@pytest.mark.parametrize("described", [False, True])
def test_a_session_is_accepted_by_name_and_the_attach_says_until_when(stopped_clock: Emulator, described: bool) -> None:
    with Peer.connect(stopped_clock) as peer:
        send_to_session(peer, "s1", b"a")
        receiver = peer.receiver("sessions", 1, filters=session_filter("s1", described=described))
        assert assigned(receiver) == "s1"
        # .NET's ticks of the clock's start and a minute.
        assert receiver.remote_properties[LOCKED_UNTIL] == 621_355_968_000_000_000 + (1_700_000_000_000 + 60_000) * 10_000
        assert [received.body for received in peer.receive(receiver)] == [b"a"]


def test_the_next_session_is_whichever_has_messages_and_is_told_in_the_attach(peer: Peer) -> None:
    send_to_session(peer, "s1", b"a")
    assert assigned(peer.receiver("sessions", filters=session_filter(None))) == "s1"


def test_a_session_id_that_is_no_string_is_refused(peer: Peer) -> None:
    with pytest.raises(RefusedError, match="invalid-field"):
        peer.receiver("sessions", filters=session_filter(1))


def test_a_receiver_waits_for_a_session_and_is_attached_when_one_comes(peer: Peer) -> None:
    waiting = peer.receiver("sessions", 1, filters=session_filter(None), wait=False)
    send_to_session(peer, "late", b"a")
    assert [received.body for received in peer.receive(waiting)] == [b"a"]
    assert assigned(waiting) == "late"


def test_a_wait_for_a_session_ends_with_a_timeout_after_the_time_that_was_asked_for(stopped_clock: Emulator) -> None:
    with Peer.connect(stopped_clock) as peer:
        properties = {symbol("com.microsoft:timeout"): uint(5000)}
        waiting = peer.receiver("sessions", filters=session_filter(None), properties=properties, wait=False)
        assert peeked(peer, "q") == [], "the attach is there: what came after it was answered"
        stopped_clock.advance(4.9)
        assert peeked(peer, "q") == []
        assert not waiting.state & Link.REMOTE_ACTIVE
        stopped_clock.advance(0.1)
        assert peer.detached(waiting) == "com.microsoft:timeout"


def test_a_client_may_give_up_its_wait_for_a_session(peer: Peer) -> None:
    waiting = peer.receiver("sessions", filters=session_filter(None), wait=False)
    assert peeked(peer, "q") == []
    peer.detach(waiting)
    send_to_session(peer, "s1", b"a")
    assert assigned(peer.receiver("sessions", filters=session_filter("s1"))) == "s1"


def test_a_session_that_another_holds_is_refused_and_free_when_its_holder_goes(emulator: Emulator, peer: Peer) -> None:
    send_to_session(peer, "s1", b"a")
    with Peer.connect(emulator) as holder:
        held = holder.receiver("sessions", 1, filters=session_filter("s1"))
        holder.receive(held)
        with pytest.raises(RefusedError, match="session-cannot-be-locked"):
            peer.receiver("sessions", filters=session_filter("s1"))
        waiting = peer.receiver("sessions", 1, filters=session_filter(None), wait=False)
    assert [received.body for received in peer.receive(waiting)] == [b"a"]
    assert assigned(waiting) == "s1"


def test_a_session_whose_lock_expires_is_detached_with_the_reason(stopped_clock: Emulator) -> None:
    with Peer.connect(stopped_clock) as peer:
        send_to_session(peer, "s1", b"a")
        receiver = peer.receiver("sessions", filters=session_filter("s1"))
        stopped_clock.advance(60)
        assert peer.detached(receiver) == "com.microsoft:session-lock-lost"


def test_a_queue_without_sessions_refuses_a_session_filter(peer: Peer) -> None:
    with pytest.raises(RefusedError, match="not-allowed"):
        peer.receiver("q", filters=session_filter("s1"))


def test_the_state_of_a_session_is_set_over_its_own_connection(peer: Peer) -> None:
    send_to_session(peer, "s1", b"a")
    receiver = peer.receiver("sessions", filters=session_filter("s1"), name="the link")
    body = {"session-id": "s1", "session-state": b"here"}
    properties = {"associated-link-name": receiver.name}
    assert peer.request("sessions", "set-session-state", body, properties=properties).status == 200
    answer = peer.request("sessions", "get-session-state", {"session-id": "s1"}, properties=properties)
    assert answer.body == {"session-state": b"here"}


# Send by way of another entity


def test_a_message_sent_by_way_of_an_entity_arrives_at_its_destination(peer: Peer) -> None:
    sender = peer.session.sender("via")
    sender.target.address = "q"
    sender.properties = {symbol("com.microsoft:transfer-destination-address"): "other"}
    peer.attach(sender)
    peer.until(lambda: sender.credit > 0)
    assert peer.send(sender, message(b"a")) == Outcome("accepted")
    assert (peeked(peer, "q"), peeked(peer, "other")) == ([], [b"a"])


def test_a_topic_gives_each_subscription_its_copy(peer: Peer) -> None:
    assert peer.send(peer.sender("events"), message(b"a")) == Outcome("accepted")
    assert [received.body for received in peer.receive(peer.receiver("events/Subscriptions/audit", 1))] == [b"a"]


def test_page_by_page_everything_is_peeked(peer: Peer) -> None:
    sender = peer.sender("q")
    for _ in range(30):
        peer.send(sender, *(message(b"x" * 10_000) for _ in range(10)))
    pair, start, sizes = peer.pair("q/$management"), 0, []
    while True:
        peer.ask(pair, "peek-message", {"from-sequence-number": start, "message-count": int32(250)})
        (reply,) = peer.answers(pair)
        if reply.status == 204:
            break
        sizes.append(len(reply.messages))
        start = reply.numbers[-1] + 1
    assert sum(sizes) == 300
    assert max(sizes) < 110, "an answer has at most a megabyte"


def test_a_message_of_proton_is_the_same_after_it_was_sent_peeked_and_received(peer: Peer) -> None:
    given = Message(body={"a": [1, "two", None]}, id="m1", subject="s", correlation_id="c", properties={"p": int32(4)})
    given.durable = True
    peer.send(peer.sender("q"), bytes(given.encode()))
    (shown,) = peer.request("q", "peek-message", peek_body()).messages
    (received,) = peer.receive(peer.receiver("q", 1))
    for found in (shown, received.message):
        assert (found.body, found.id, found.subject, found.correlation_id, found.properties, found.durable) == (
            *(given.body, given.id, given.subject, given.correlation_id),
            *(given.properties, True),
        )
