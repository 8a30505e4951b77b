"""SIGKILL in the midst of traffic of the official SDK: after a restart on the same directory all that was acknowledged is there.

What was under way may or may not have happened; what nobody asked for has not.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from proton import int32

from tests.emulator.management.service import annotation
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import DEADLINE_S, Peer, message
from tests.emulator.server.program import Program

# So many acknowledged steps of each kind of traffic, and it is killed.
STEPS = 25


class Traffic:
    """What was asked for and what was acknowledged, of each kind; ended by the kill."""

    def __init__(self, connection_string: str, program: Program) -> None:
        self.text = connection_string
        self.program = program
        self.killed = threading.Event()
        self.problems: list[BaseException] = []
        self.sent: list[bytes] = []
        # By body: what its receiver asked for, and whether that was acknowledged.
        self.settled: dict[bytes, tuple[str, bool]] = {}
        self.scheduled: dict[int, bytes] = {}
        self.states: list[bytes] = []
        self.tried_state = b""
        self.rules: list[str] = []
        self.enough = {kind: threading.Event() for kind in ("send", "settle", "schedule", "state", "rules")}

    def run(self, kind: str, work: Callable[[], None]) -> threading.Thread:
        def go() -> None:
            try:
                work()
            except Exception as error:
                if not self.killed.is_set():
                    self.problems.append(error)
                    self.enough[kind].set()

        thread = threading.Thread(target=go, name=kind, daemon=True)
        thread.start()
        return thread

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.text, retry_total=0)

    def send(self) -> None:
        with self._client() as client, client.get_queue_sender("q") as sender:
            for start in range(0, 1_000_000, 5):
                bodies = [b"message %d" % number for number in range(start, start + 5)]
                sender.send_messages([ServiceBusMessage(body) for body in bodies])
                self.sent += bodies
                if len(self.sent) >= 5 * STEPS:
                    self.enough["send"].set()

    def settle(self) -> None:
        with self._client() as client, client.get_queue_receiver("q", prefetch_count=10) as receiver:
            ways = [receiver.complete_message, receiver.defer_message, receiver.dead_letter_message]
            done = 0
            while not self.killed.is_set():
                for received in receiver.receive_messages(10, max_wait_time=1):
                    way = ways[done % 3]
                    body = b"".join(received.body)
                    self.settled[body] = (way.__name__, False)
                    way(received)
                    self.settled[body] = (way.__name__, True)
                    done += 1
                    if done >= STEPS:
                        self.enough["settle"].set()

    def schedule(self) -> None:
        later = datetime.now(timezone.utc) + timedelta(days=1)
        with self._client() as client, client.get_queue_sender("other") as sender:
            for number in range(1_000_000):
                bodies = [b"scheduled %d %d" % (number, part) for part in range(3)]
                self.scheduled.update(
                    zip(sender.schedule_messages([ServiceBusMessage(body) for body in bodies], later), bodies, strict=True)
                )
                if len(self.scheduled) >= 3 * STEPS:
                    self.enough["schedule"].set()

    def state(self) -> None:
        with self._client() as client:
            with client.get_queue_sender("sessions") as sender:
                sender.send_messages(ServiceBusMessage(b"a", session_id="s1"))
            with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
                for number in range(1_000_000):
                    self.tried_state = b"state %d" % number
                    receiver.session.set_state(self.tried_state)
                    self.states.append(self.tried_state)
                    if len(self.states) >= STEPS:
                        self.enough["state"].set()

    def add_rules(self) -> None:
        with self.program.peer() as peer:
            for number in range(1_000_000):
                rule = {"rule-name": f"rule-{number}", "rule-description": {"sql-filter": {"expression": f"n = {number}"}}}
                assert peer.request("events/Subscriptions/audit", "add-rule", rule).status == 200
                self.rules.append(f"rule-{number}")
                if len(self.rules) >= STEPS:
                    self.enough["rules"].set()


def standing(peer: Peer, entity: str) -> dict[int, Any]:
    """All messages of an entity by their numbers."""
    found: dict[int, Any] = {}
    while True:
        body = {"from-sequence-number": max(found, default=-1) + 1, "message-count": int32(250)}
        reply = peer.request(entity, "peek-message", body)
        if reply.status == 204:
            return found
        found.update(zip(reply.numbers, reply.messages, strict=True))


def state_of(message: Any) -> str:
    return {0: "active", 1: "deferred", 2: "scheduled"}[annotation(message, "x-opt-message-state")]


# The SDK leaves sockets that broke to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.timeout(90)
def test_after_a_kill_all_that_was_acknowledged_is_there(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path / "data"))
    with Program(CONFIG, tmp_path, *arguments) as program:
        program.ready()
        traffic = Traffic(program.connection_string, program)
        kinds = {
            "send": traffic.send,
            "settle": traffic.settle,
            "schedule": traffic.schedule,
            "state": traffic.state,
            "rules": traffic.add_rules,
        }
        threads = [traffic.run(kind, work) for kind, work in kinds.items()]
        for kind, enough in traffic.enough.items():
            assert enough.wait(2 * DEADLINE_S), f"there was not enough {kind}"
        traffic.killed.set()
        program.kill()
        for thread in threads:
            thread.join(2 * DEADLINE_S)
            assert not thread.is_alive(), f"{thread.name} did not notice the kill"
    assert not traffic.problems
    gc.collect()

    with Program(CONFIG, tmp_path, *arguments) as again, again.ready().peer() as peer:
        check_messages(peer, traffic)
        highest = check_schedules(peer, traffic)
        state = peer.request("sessions", "get-session-state", {"session-id": "s1"}).body["session-state"]
        assert state in (traffic.states[-1], traffic.tried_state)
        rules = peer.request("events/Subscriptions/audit", "enumerate-rules", {"skip": int32(0), "top": int32(10_000)})
        names = [entry["rule-description"].value[2] for entry in rules.body["rules"]]
        assert names[: len(traffic.rules) + 1] == ["$Default", *traffic.rules]
        assert len(names) <= len(traffic.rules) + 2
        # Numbers go on, and none is given twice.
        peer.send(peer.sender("other"), message(b"after"))
        assert max(standing(peer, "other")) > highest


def check_messages(peer: Peer, traffic: Traffic) -> None:
    queue, dead = standing(peer, "q"), standing(peer, "q/$DeadLetterQueue")
    bodies = [bytes(each.body) for each in (*queue.values(), *dead.values())]
    assert len(bodies) == len(set(bodies)), "a message stands twice"
    where = {bytes(each.body): state_of(each) for each in queue.values()} | {bytes(each.body): "dead" for each in dead.values()}
    after = {"complete_message": None, "defer_message": "deferred", "dead_letter_message": "dead"}
    for body in traffic.sent:
        way, acknowledged = traffic.settled.get(body, (None, False))
        if acknowledged:
            assert where.get(body) == after[way or ""], body
        elif way is not None:
            assert where.get(body) in (after[way], "active"), body
        else:
            assert where.get(body) == "active", body
    # The last batch may have been taken and not acknowledged.
    assert len(set(bodies) - set(traffic.sent) - set(traffic.settled)) <= 5
    assert {how for how, acknowledged in traffic.settled.values() if acknowledged} == set(after)


def check_schedules(peer: Peer, traffic: Traffic) -> int:
    found = standing(peer, "other")
    assert {number: bytes(found[number].body) for number in traffic.scheduled} == traffic.scheduled
    assert {state_of(each) for each in found.values()} == {"scheduled"}
    assert len(found) <= len(traffic.scheduled) + 3
    return max(found)
