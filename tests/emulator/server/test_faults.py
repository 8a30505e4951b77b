"""Scripted faults: each does to a request what it says, to the requests it names and no others, from this process and from another."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_sb_mgmt.emulator import Emulator, EmulatorControl, Fault, ManualClock
from spark_sb_mgmt.emulator.control import MAX_LINE, ControlError
from spark_sb_mgmt.emulator.fault_script import FaultError
from spark_sb_mgmt.errors import SbMgmtError
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import DEADLINE_S, EndedError, Outcome, Peer, eventually, message, peek_body, peeked

ROOT = Path(__file__).parents[3]
BUSY = (503, "com.microsoft:server-busy")


@pytest.fixture
def peer(emulator: Emulator) -> Iterator[Peer]:
    with Peer.connect(emulator) as connected:
        yield connected


def peek(peer: Peer, entity: str = "q") -> tuple[int, str | None]:
    said: tuple[int, str | None] = peer.request(entity, "peek-message", peek_body()).said
    return said


EMPTY = (204, "com.microsoft:message-not-found")


# What each does


def test_throttle_answers_busy_with_a_wait_in_the_text_as_often_as_it_is_told(emulator: Emulator, peer: Peer) -> None:
    key = emulator.faults.add(Fault("throttle", count=2, seconds=3))
    first = peer.request("q", "peek-message", peek_body())
    assert first.said == BUSY
    assert "wait 3 seconds" in first.description
    assert peek(peer) == BUSY
    assert peek(peer) == EMPTY
    assert emulator.faults.hits(key) == 2


def test_fail_answers_with_the_status_and_condition_that_it_has_and_nothing_is_done(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("fail", operation="send", condition="com.microsoft:entity-disabled"))
    sender = peer.sender("q")
    assert peer.send(sender, message(b"a")) == Outcome("rejected", "com.microsoft:entity-disabled")
    emulator.faults.add(Fault("fail", status=410, condition="com.microsoft:session-lock-lost"))
    assert peek(peer) == (410, "com.microsoft:session-lock-lost")
    assert peeked(peer, "q") == []


@pytest.mark.parametrize(("when", "stands"), [("before", []), ("after", [b"a"])])
def test_drop_link_detaches_by_force_before_or_after_the_effect(emulator: Emulator, peer: Peer, when: Any, stands: list[bytes]) -> None:
    emulator.faults.add(Fault("drop-link", operation="send", when=when))
    sender = peer.sender("q")
    peer.post(sender, message(b"a"))
    assert peer.detached(sender) == "amqp:link:detach-forced"
    assert peeked(peer, "q") == stands


@pytest.mark.parametrize(("when", "stands"), [("before", []), ("after", [b"a"])])
def test_drop_connection_closes_the_socket_without_a_word_before_or_after_the_effect(
    emulator: Emulator, peer: Peer, when: Any, stands: list[bytes]
) -> None:
    emulator.faults.add(Fault("drop-connection", operation="send", when=when))
    with Peer.connect(emulator) as victim:
        delivery = victim.post(victim.sender("q"), message(b"a"))
        with pytest.raises(EndedError):
            victim.outcome(delivery)
        assert victim.condition in (None, "amqp:connection:framing-error"), "a word was said"
    assert peeked(peer, "q") == stands


def test_drop_link_of_a_request_ends_the_link_that_it_came_on(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("drop-link", operation="peek-message"))
    pair = peer.pair("q/$management")
    peer.ask(pair, "peek-message", peek_body())
    assert peer.detached(pair[0]) == "amqp:link:detach-forced"
    again = peer.sender("q/$management"), pair[1]
    peer.ask(again, "peek-message", peek_body())
    assert [reply.status for reply in peer.answers(again)] == [204]


def test_delay_before_puts_the_effect_off_and_other_requests_are_served_meanwhile(emulator: Emulator, peer: Peer) -> None:
    sender = peer.sender("q")
    assert peeked(peer, "q") == []
    emulator.faults.add(Fault("delay", operation="send", seconds=0.5))
    asked = time.monotonic()
    delivery = peer.post(sender, message(b"a"))
    assert peeked(peer, "q") == []
    assert peer.outcome(delivery) == Outcome("accepted")
    assert time.monotonic() - asked >= 0.5
    assert peeked(peer, "q") == [b"a"]


def test_delay_after_has_the_effect_at_once_and_answers_late(emulator: Emulator, peer: Peer) -> None:
    sender = peer.sender("q")
    assert peeked(peer, "q") == []
    emulator.faults.add(Fault("delay", operation="send", seconds=0.5, when="after"))
    asked = time.monotonic()
    delivery = peer.post(sender, message(b"a"))
    assert peeked(peer, "q") == [b"a"]
    assert not delivery.remote_state
    assert peer.outcome(delivery) == Outcome("accepted")
    assert time.monotonic() - asked >= 0.5


def test_an_answer_that_is_late_for_a_client_that_went_is_dropped(emulator: Emulator, peer: Peer) -> None:
    key = emulator.faults.add(Fault("delay", operation="peek-message", seconds=0.01, when="after"))
    with Peer.connect(emulator) as goes:
        goes.ask(goes.pair("q/$management"), "peek-message", peek_body())
        goes.flush()
        eventually(lambda: emulator.faults.hits(key) == 1)
    assert peek(peer) == EMPTY


def test_lose_reply_has_the_effect_and_says_nothing(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("lose-reply", operation="send"))
    emulator.faults.add(Fault("lose-reply", operation="peek-message", skip=1))
    delivery = peer.post(peer.sender("q"), message(b"a"))
    assert peeked(peer, "q") == [b"a"]
    assert not delivery.remote_state
    pair = peer.pair("q/$management", reply_to="others")
    peer.ask(pair, "peek-message", peek_body(), id="lost", reply_to="others")
    peer.ask(pair, "peek-message", peek_body(), id="answered", reply_to="others")
    assert [reply.message.correlation_id for reply in peer.answers(pair)] == ["answered"]


def test_cap_page_cuts_pages_short(emulator: Emulator, peer: Peer) -> None:
    peer.send(peer.sender("q"), *(message(b"%d" % number) for number in range(5)))
    emulator.faults.add(Fault("cap-page", count=None, limit=2))
    assert peeked(peer, "q") == [b"0", b"1"]


def test_reorder_gathers_answers_and_sends_them_the_other_way_round(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("reorder", count=3, limit=3, seconds=60))
    pair = peer.pair("q/$management")
    for name in ("one", "two", "three", "four"):
        peer.ask(pair, "peek-message", peek_body(), id=name)
    assert [reply.message.correlation_id for reply in peer.answers(pair, 4)] == ["three", "two", "one", "four"]


def test_reorder_does_not_hold_answers_for_longer_than_it_says(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("reorder", count=3, limit=3, seconds=0.05))
    pair = peer.pair("q/$management")
    for name in ("one", "two"):
        peer.ask(pair, "peek-message", peek_body(), id=name)
    assert [reply.message.correlation_id for reply in peer.answers(pair, 2)] == ["two", "one"]


def test_corrupt_cuts_one_answer_off_in_the_middle(emulator: Emulator, peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"x" * 1000))
    emulator.faults.add(Fault("corrupt"))
    pair = peer.pair("q/$management")
    peer.ask(pair, "peek-message", peek_body())
    receiver = pair[1]
    peer.until(lambda: receiver.current is not None and not receiver.current.partial)
    corrupt = receiver.current.pending
    receiver.recv(corrupt)
    receiver.advance()
    peer.ask(pair, "peek-message", peek_body())
    peer.until(lambda: receiver.current is not None and not receiver.current.partial)
    assert corrupt == receiver.current.pending // 2
    assert len(peer.answers(pair)[0].messages) == 1


def test_refuse_connections_closes_the_next_ones_as_they_come_and_leaves_those_that_are(emulator: Emulator, peer: Peer) -> None:
    key = emulator.faults.add(Fault("refuse-connections", count=2))
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S) as refused:
            assert refused.recv(1) == b""
    assert emulator.faults.hits(key) == 2
    with Peer.connect(emulator) as welcome:
        assert peek(welcome) == EMPTY
    assert peek(peer) == EMPTY


def test_detach_idle_detaches_a_link_on_which_nothing_happened_and_only_as_many_as_it_is_told(emulator: Emulator, peer: Peer) -> None:
    first, second = peer.receiver("q"), peer.receiver("q")
    peer.receiver("other")
    key = emulator.faults.add(Fault("detach-idle", entity="amqps://host/Q", seconds=0.05, skip=1))
    eventually(lambda: emulator.faults.hits(key) == 1)
    peer.until(lambda: any(link.remote_condition is not None for link in (first, second)))
    conditions = [link.remote_condition.name for link in (first, second) if link.remote_condition is not None]
    assert conditions == ["amqp:link:detach-forced"]


def test_several_faults_strike_one_request_together(emulator: Emulator, peer: Peer) -> None:
    peer.send(peer.sender("q"), message(b"a"), message(b"b"))
    keys = [emulator.faults.add(Fault("cap-page", limit=1)), emulator.faults.add(Fault("delay", seconds=0.01))]
    assert peeked(peer, "q") == [b"a"]
    assert [emulator.faults.hits(key) for key in keys] == [1, 1]
    assert peeked(peer, "q") == [b"a", b"b"]


# To whom


def test_a_fault_strikes_only_its_operation_and_entity(emulator: Emulator, peer: Peer) -> None:
    key = emulator.faults.add(Fault("throttle", operation="com.microsoft:peek-message", entity="amqps://host/Q", count=None))
    assert peek(peer, "other") == EMPTY
    assert peer.request("q", "get-message-sessions", {}).said != BUSY
    assert peer.send(peer.sender("q"), message(b"a")) == Outcome("accepted")
    assert emulator.faults.hits(key) == 0
    assert peek(peer) == BUSY
    assert emulator.faults.hits(key) == 1


def test_a_fault_of_a_subscription_strikes_there_and_not_at_its_topic(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("throttle", entity="events/subscriptions/audit", count=None))
    assert peek(peer, "events") == EMPTY
    assert peek(peer, "events/Subscriptions/audit") == BUSY


def test_settlements_can_be_struck(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("fail", operation="settle", condition="com.microsoft:message-lock-lost"))
    peer.send(peer.sender("q"), message(b"a"))
    (received,) = peer.receive(peer.receiver("q", 1))
    assert peer.settle(received) == Outcome("rejected", "com.microsoft:message-lock-lost")
    assert peeked(peer, "q") == [b"a"]


def test_a_client_that_settles_again_before_the_answer_gets_one(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("delay", operation="settle", seconds=0.05, count=None))
    peer.send(peer.sender("q"), message(b"a"), message(b"b"))
    receiver = peer.receiver("q", 2)
    first, second = peer.receive(receiver, 2)
    first.delivery.update(first.delivery.ACCEPTED)
    peer.flush()
    first.delivery.update(first.delivery.ACCEPTED)
    assert peer.outcome(first.delivery) == Outcome("accepted")
    assert peer.settle(second) == Outcome("accepted")
    assert peeked(peer, "q") == []


def test_put_token_can_be_struck(emulator: Emulator) -> None:
    emulator.faults.add(Fault("throttle", operation="put-token"))
    with Peer.connect(emulator, plain=None) as peer:
        assert peer.put_token("any", "sb://host/q")[::2] == (503, "com.microsoft:server-busy")


def test_skip_lets_requests_pass_first(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("throttle", skip=2, count=1))
    assert [peek(peer) for _ in range(4)] == [EMPTY, EMPTY, BUSY, EMPTY]


def test_a_fault_without_count_strikes_until_it_is_removed(emulator: Emulator, peer: Peer) -> None:
    key = emulator.faults.add(Fault("throttle", count=None))
    other = emulator.faults.add(Fault("cap-page", count=None))
    assert [peek(peer) for _ in range(5)] == [BUSY] * 5
    emulator.faults.remove(key)
    assert peek(peer) == EMPTY
    assert emulator.faults.hits(key) == 5
    emulator.faults.clear()
    hits = emulator.faults.hits(other)
    assert peek(peer) == EMPTY
    assert emulator.faults.hits(other) == hits


def test_requests_are_counted_by_operation_struck_or_not(emulator: Emulator, peer: Peer) -> None:
    emulator.faults.add(Fault("throttle", count=2))
    for _ in range(3):
        peek(peer)
    peer.request("q", "no-such-operation", {})
    assert emulator.requests["peek-message"] == 3
    assert emulator.requests["no-such-operation"] == 1


def test_names_that_clients_invent_do_not_fill_the_counters(emulator: Emulator, peer: Peer) -> None:
    pair = peer.pair("q/$management")
    for start in range(0, 1200, 100):
        for number in range(start, start + 100):
            peer.ask(pair, f"invented-{number}", {})
        peer.answers(pair, 100)
    assert len(emulator.requests) <= 1000


# What cannot be scripted


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "explode"},
        {"action": ["throttle"]},
        {"action": "throttle", "when": "never"},
        {"action": "throttle", "count": 0},
        {"action": "throttle", "count": "many"},
        {"action": "throttle", "count": True},
        {"action": "throttle", "skip": -1},
        {"action": "cap-page", "limit": 0},
        {"action": "cap-page", "limit": 1.5},
        {"action": "delay", "seconds": -1},
        {"action": "delay", "seconds": float("nan")},
        {"action": "delay", "seconds": float("inf")},
        {"action": "delay", "seconds": "soon"},
        {"action": "throttle", "operation": 5},
        {"action": "throttle", "entity": 5},
        {"action": "fail", "status": "500"},
        {"action": "fail", "status": 5},
        {"action": "fail", "condition": None},
        {"action": "fail", "condition": "ü"},
    ],
    ids=str,
)
def test_a_fault_that_makes_no_sense_is_one_clear_error_here_and_over_the_wire(emulator: Emulator, fields: dict[str, Any]) -> None:
    with pytest.raises(FaultError):
        Fault.from_json(fields)
    answer = command(emulator, json.dumps({"command": "add-fault", "arguments": {"fault": fields}, **LOGIN}))
    assert "of a fault" in answer["error"] or "a fault cannot" in answer["error"]


def test_a_fault_with_a_field_that_there_is_not_is_told_which_there_are(emulator: Emulator) -> None:
    with pytest.raises(FaultError, match=r"no after, oftener; it has action, condition, count"):
        Fault.from_json({"action": "throttle", "oftener": 1, "after": 2})


def test_a_key_that_was_never_given_is_an_error(emulator: Emulator) -> None:
    with pytest.raises(ControlError, match="never a fault with the key 99"):
        emulator.faults.hits(99)


# From another process

LOGIN = {"key_name": "RootManageSharedAccessKey", "key": "SAS_KEY_VALUE"}


def command(emulator: Emulator, line: str | bytes) -> Any:
    """What the emulator answers to a line."""
    raw = line.encode() if isinstance(line, str) else line
    with socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S) as sock, sock.makefile("rb") as answers:
        sock.sendall(raw + b"\n")
        answer = answers.readline()
    assert answer.endswith(b"\n"), "no answer"
    return json.loads(answer)


def test_another_process_scripts_faults_and_sees_their_hits(emulator: Emulator, peer: Peer) -> None:
    program = """if True:
        import sys
        from spark_sb_mgmt.emulator import EmulatorControl, Fault
        control = EmulatorControl.connect(sys.argv[1])
        print(control.faults.add(Fault("throttle", operation="peek-message", entity="q", count=2, seconds=0.5)), flush=True)
        sys.stdin.readline()
        print(control.faults.hits(1), control.requests["peek-message"], control.counts("other")["active"], control.connections)
        control.faults.clear()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program, emulator.connection_string], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert peek(peer) == BUSY
        peer.send(peer.sender("other"), message(b"a"))
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "1 1 1 1\n"
        assert process.wait(DEADLINE_S) == 0
    assert peek(peer) == EMPTY


def test_faults_from_outside_drop_lose_cap_and_refuse(emulator: Emulator, peer: Peer) -> None:
    control = EmulatorControl.connect(emulator.connection_string)
    peer.send(peer.sender("q"), message(b"a"), message(b"b"))
    key = control.faults.add(Fault("cap-page", limit=1))
    assert peeked(peer, "q") == [b"a"]
    assert control.faults.hits(key) == 1
    control.faults.add(Fault("drop-connection", operation="peek-message"))
    with Peer.connect(emulator) as victim, pytest.raises(EndedError):
        peek(victim)
    key = control.faults.add(Fault("lose-reply", operation="peek-message", count=None))
    control.faults.remove(key)
    assert peek(peer) == (200, None)
    # The next connection is that of this command's own answer, so the fault is added by this process.
    emulator.faults.add(Fault("refuse-connections"))
    with pytest.raises(ControlError, match="does not answer"):
        control.faults.clear()
    control.faults.clear()


def test_the_clock_is_moved_from_outside(stopped_clock: Emulator) -> None:
    control = EmulatorControl.connect(stopped_clock.connection_string)
    with Peer.connect(stopped_clock) as peer:
        peer.send(peer.sender("q"), message(b"a"))
        peer.receive(peer.receiver("q", 1))
        second = peer.receiver("q", 1)
        control.advance(60)
        assert [received.message.delivery_count for received in peer.receive(second)] == [1]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e18, "10", None])
def test_time_goes_neither_back_nor_for_ever_on(stopped_clock: Emulator, seconds: Any) -> None:
    for control in (stopped_clock, EmulatorControl.connect(stopped_clock.connection_string)):
        with pytest.raises(ControlError, match="`seconds` is a number"):
            control.advance(seconds)


def test_the_clock_of_the_machine_cannot_be_moved(emulator: Emulator) -> None:
    with pytest.raises(ControlError, match="goes by the machine's clock"):
        emulator.advance(1)


@pytest.mark.parametrize(
    ("name", "key"), [("RootManageSharedAccessKey", "wrong"), ("nobody", "SAS_KEY_VALUE"), ("listener", "listener-key"), ("", "")]
)
def test_only_a_policy_that_may_manage_may_command(emulator: Emulator, peer: Peer, name: str, key: str) -> None:
    answer = command(
        emulator, json.dumps({"command": "add-fault", "arguments": {"fault": {"action": "throttle"}}, "key_name": name, "key": key})
    )
    assert "may manage" in answer["error"]
    assert key == "" or key not in answer["error"]
    assert peek(peer) == EMPTY


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{}",
        b'{"command": "counts"}',
        b'{"command": 1, "arguments": {}, "key_name": "a", "key": "b"}',
        b'{"command": "counts", "arguments": [], "key_name": "a", "key": "b"}',
        b'{"command": "counts", "arguments": {}, "key_name": null, "key": "b"}',
        b'{"a":' * 10_000,
        b"{\xff\xfe}",
    ],
)
def test_a_line_that_is_no_command_is_answered_with_what_one_is(emulator: Emulator, peer: Peer, line: bytes) -> None:
    answer = command(emulator, line)
    assert "one line of JSON" in answer["error"] or "are texts" in answer["error"]
    assert peek(peer) == EMPTY


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("no-such", {}, "there are add-fault"),
        ("counts", {"entity": "nothing"}, "could not be found"),
        ("counts", {}, "could not be found"),
        ("fault-hits", {"key": "one"}, "whole number"),
        ("remove-fault", {}, "whole number"),
        ("add-fault", {}, "object with the fields"),
        ("add-fault", {"fault": [1]}, "object with the fields"),
        ("add-fault", {"fault": {}}, "cannot be made"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(emulator: Emulator, name: str, arguments: Any, expected: str) -> None:
    answer = command(emulator, json.dumps({"command": name, "arguments": arguments, **LOGIN}))
    assert expected in answer["error"]


def test_a_line_that_never_ends_is_not_kept(emulator: Emulator, peer: Peer) -> None:
    with socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S) as sock:
        try:
            sock.sendall(b"{" * (MAX_LINE * 40))
            assert sock.recv(1) == b""
        except ConnectionError:
            pass  # Closed while more was being sent.
    assert peek(peer) == EMPTY


def test_a_connection_string_that_lacks_something_is_told_what() -> None:
    with pytest.raises(ControlError, match="lacks SharedAccessKeyName, SharedAccessKey"):
        EmulatorControl.connect("Endpoint=sb://localhost")


def test_an_emulator_that_is_not_there_is_one_error_without_the_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    control = EmulatorControl.connect(f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=secret-key")
    with pytest.raises(ControlError, match="does not answer") as error:
        control.faults.clear()
    assert "secret-key" not in str(error.value) + repr(control._call)


# Starting and stopping


def test_an_emulator_can_be_commanded_and_stopped_from_its_first_moment() -> None:
    for _ in range(20):
        emulator = Emulator.start(CONFIG, clock=ManualClock())
        emulator.advance(1)
        emulator.stop()
        emulator = Emulator.start(CONFIG)
        emulator.stop()
        emulator.stop()


def test_a_command_after_the_end_is_one_error() -> None:
    emulator = Emulator.start(CONFIG)
    emulator.stop()
    with pytest.raises(ControlError, match="has ended"):
        emulator.faults.clear()
    assert isinstance(ControlError(""), SbMgmtError)


def test_clients_are_told_when_it_stops() -> None:
    emulator = Emulator.start(CONFIG)
    with Peer.connect(emulator) as peer:
        emulator.stop()
        peer.until(lambda: peer.connection.state & peer.connection.REMOTE_CLOSED)
