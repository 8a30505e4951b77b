"""Every fault that the emulator can be told to have: what is safe comes out right, what is not is done once or said to be in doubt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, get_args

import pytest

from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.timing import Timing
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.emulator.fault_script import Action
from spark_sb_mgmt.errors import ConnectionFailedError, OutcomeUnknownError, RemoteProtocolError, SbMgmtError, ServerBusyError
from spark_sb_mgmt.operations.schedule import schedule_message
from tests.client.conftest import SOON
from tests.client.scripted_peer import wait_for_bytes
from tests.emulator.server.peer import eventually

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
# Longer than any answer takes here, shorter than the delays that are to be too long.
DEADLINE = {"server_timeout_ms": 800, "request_margin_s": 0.1}
TOO_LONG = 1.6

SCHEDULE, PEEK = "schedule-message", "peek-message"
DONE = None
# A fault, what comes of a change that it hits, how many messages stand then, and how often it was asked for. A change that is done and
# asked for twice was refused the first time.
CHANGES: dict[str, tuple[Fault, type[SbMgmtError] | None, int, int]] = {
    "throttled": (Fault("throttle", SCHEDULE, seconds=0.01), DONE, 1, 2),
    "failed": (Fault("fail", SCHEDULE, status=503, condition="com.microsoft:server-busy"), DONE, 1, 2),
    "link dropped before": (Fault("drop-link", SCHEDULE), OutcomeUnknownError, 0, 1),
    "link dropped after": (Fault("drop-link", SCHEDULE, when="after"), OutcomeUnknownError, 1, 1),
    "connection dropped before": (Fault("drop-connection", SCHEDULE), OutcomeUnknownError, 0, 1),
    "connection dropped after": (Fault("drop-connection", SCHEDULE, when="after"), OutcomeUnknownError, 1, 1),
    "late": (Fault("delay", SCHEDULE, seconds=0.05), DONE, 1, 1),
    "answered late": (Fault("delay", SCHEDULE, when="after", seconds=0.05), DONE, 1, 1),
    "answered too late": (Fault("delay", SCHEDULE, when="after", seconds=TOO_LONG), OutcomeUnknownError, 1, 1),
    "reply lost": (Fault("lose-reply", SCHEDULE), OutcomeUnknownError, 1, 1),
    "reply corrupt": (Fault("corrupt", SCHEDULE), RemoteProtocolError, 1, 1),
    "reply held back": (Fault("reorder", SCHEDULE, limit=2, seconds=0.05), DONE, 1, 1),
    "connection refused": (Fault("refuse-connections", count=2), DONE, 1, 1),
}
# What a peek comes to all the same, and how often it is asked for then.
PEEKS: dict[str, tuple[Fault, int]] = {
    "throttled": (Fault("throttle", PEEK, seconds=0.01, count=2), 3),
    "link dropped before": (Fault("drop-link", PEEK, count=2), 3),
    "link dropped after": (Fault("drop-link", PEEK, when="after", count=2), 3),
    "connection dropped before": (Fault("drop-connection", PEEK, count=2), 3),
    "connection dropped after": (Fault("drop-connection", PEEK, when="after", count=2), 3),
    "late": (Fault("delay", PEEK, seconds=0.05), 1),
    "answered too late": (Fault("delay", PEEK, when="after", seconds=TOO_LONG), 2),
    "reply lost": (Fault("lose-reply", PEEK), 2),
    "reply held back": (Fault("reorder", PEEK, limit=2, seconds=0.05), 1),
    "connection refused": (Fault("refuse-connections", count=2), 1),
}


@contextmanager
def opened(emulator: Emulator, **settings: Any) -> Iterator[EntityClient]:
    settings = {"retry": SOON, **DEADLINE, **settings}
    with ManagementClient.from_connection_string(emulator.connection_string, **settings) as client, client.entity("orders") as orders:
        yield orders


def message(name: str = "m") -> ScheduledMessage:
    return ScheduledMessage(b"x", LATER, name)


def scheduled(emulator: Emulator) -> int:
    return emulator.counts("orders")["scheduled"]


@pytest.mark.parametrize(("fault", "outcome", "standing", "asked"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_done_once_or_in_doubt(
    fault: Fault, outcome: type[SbMgmtError] | None, standing: int, asked: int, emulator: Emulator
) -> None:
    key = emulator.faults.add(fault)
    with opened(emulator) as orders:
        if outcome is DONE:
            assert orders.schedule_message(message()) == [1]
        else:
            with pytest.raises(outcome) as caught:
                orders.schedule_message(message())
            assert caught.value.may_have_taken_effect
            assert (caught.value.operation, caught.value.entity) == (SCHEDULE, "orders")
        assert (scheduled(emulator), emulator.requests[SCHEDULE]) == (standing, asked)
        assert emulator.faults.hits(key) >= 1
        # Whatever there was, it is over.
        orders.schedule_message(message("next"))
        assert scheduled(emulator) == standing + 1


@pytest.mark.parametrize(("fault", "asked"), PEEKS.values(), ids=PEEKS)
def test_a_peek_comes_out_right(fault: Fault, asked: int, emulator: Emulator) -> None:
    with opened(emulator) as orders:
        numbers = orders.schedule_message([message(f"m{number}") for number in range(5)])
    key = emulator.faults.add(fault)
    with opened(emulator) as orders:
        assert [found.sequence_number for found in orders.peek_message()] == numbers
    assert (emulator.requests[PEEK], emulator.faults.hits(key)) == (asked, fault.count)


def test_an_answer_that_cannot_be_read_is_an_error_also_where_asking_again_would_be_safe(emulator: Emulator) -> None:
    with opened(emulator) as orders:
        orders.schedule_message(message())
        emulator.faults.add(Fault("corrupt", PEEK))
        with pytest.raises(RemoteProtocolError):
            orders.peek_message()
        assert len(orders.peek_message()) == 1


def test_every_fault_is_met() -> None:
    met = {fault.action for fault, *_ in (*CHANGES.values(), *PEEKS.values())}
    # Below: pages that are capped, and links that are idle.
    assert set(get_args(Action)) - met == {"cap-page", "detach-idle"}


def test_the_wait_that_the_service_asks_for_is_waited_for(emulator: Emulator) -> None:
    emulator.faults.add(Fault("throttle", PEEK, seconds=0.1, count=2))
    with opened(emulator, timing=Timing(random=lambda: 0.0)) as orders:
        start = time.monotonic()
        assert len(orders.peek_message()) == 0
        assert time.monotonic() - start >= 0.2
    assert emulator.requests[PEEK] == 3


@pytest.mark.parametrize("use", [EntityClient.peek_message, lambda orders: orders.schedule_message(message())], ids=["safe", "change"])
def test_throttled_for_ever_is_given_up_with_what_the_service_said(use: Callable[[EntityClient], Any], emulator: Emulator) -> None:
    emulator.faults.add(Fault("throttle", seconds=0.01, count=None))
    with opened(emulator) as orders, pytest.raises(ServerBusyError) as caught:
        use(orders)
    assert (caught.value.retry_after, caught.value.retryable, caught.value.may_have_taken_effect) == (0.01, True, False)
    assert scheduled(emulator) == 0


def test_connections_refused_for_ever(emulator: Emulator) -> None:
    emulator.faults.add(Fault("refuse-connections", count=None))
    with opened(emulator) as orders, pytest.raises(ConnectionFailedError) as caught:
        orders.schedule_message(message())
    assert not caught.value.may_have_taken_effect


@pytest.mark.parametrize("use", [EntityClient.peek_message, lambda orders: orders.schedule_message(message())], ids=["safe", "change"])
def test_a_link_that_was_detached_because_it_was_idle(use: Callable[[EntityClient], Any], emulator: Emulator) -> None:
    with ManagementClient.from_connection_string(emulator.connection_string, retry=SOON) as client, client.entity("orders") as orders:
        orders.peek_message()
        key = emulator.faults.add(Fault("detach-idle", entity="orders", count=None, seconds=0.01))
        eventually(lambda: emulator.faults.hits(key) > 0)
        emulator.faults.remove(key)
        wait_for_bytes(client)
        assert len(use(orders)) == (1 if use is not EntityClient.peek_message else 0)
    # Its connection stayed.
    assert emulator.requests["put-token"] == 1


@pytest.mark.parametrize("depth", [1, 8])
def test_a_range_is_read_through_all_of_them(depth: int, emulator: Emulator) -> None:
    with opened(emulator) as orders:
        numbers = orders.schedule_message([message(f"m{number}") for number in range(600)])
    faults = [
        Fault("cap-page", PEEK, count=20, skip=3, limit=4),
        Fault("cap-page", PEEK, count=10, skip=30, limit=1),
        Fault("throttle", PEEK, count=3, skip=5, seconds=0.01),
        Fault("drop-link", PEEK, skip=10),
        Fault("drop-link", PEEK, skip=20, when="after"),
        Fault("drop-connection", PEEK, skip=25),
        Fault("drop-connection", PEEK, skip=35, when="after"),
        Fault("refuse-connections", count=1),
        Fault("lose-reply", PEEK, skip=40),
        Fault("delay", PEEK, count=3, skip=42, seconds=0.02),
        Fault("delay", PEEK, skip=44, when="after", seconds=TOO_LONG),
        Fault("reorder", PEEK, count=12, skip=46, limit=3, seconds=0.02),
        Fault("fail", PEEK, count=2, skip=50, status=500, condition="amqp:internal-error"),
    ]
    keys = [emulator.faults.add(fault) for fault in faults]
    with opened(emulator, retry=RetryPolicy(max_retries=10, base_delay_s=0.001, max_delay_s=0.01)) as orders:
        found = [each.sequence_number for page in orders.peek_range(page_size=10, depth=depth) for each in page]
    assert sorted(found) == numbers
    assert [emulator.faults.hits(key) for key in keys] == [fault.count for fault in faults]


def test_changes_in_flight_together_are_each_done_once_or_in_doubt(emulator: Emulator) -> None:
    for skip, action in ((3, "drop-link"), (9, "drop-connection"), (15, "lose-reply"), (20, "throttle"), (30, "drop-connection")):
        emulator.faults.add(Fault(action, SCHEDULE, skip=skip, seconds=0.01, when="after"))  # type: ignore[arg-type]
    with opened(emulator) as orders:
        requests = [schedule_message([message(f"m{number}")]) for number in range(60)]
        outcomes = dict(orders.pipeline(requests, depth=6))
        standing = {found.message_id for found in orders.peek_message(message_count=250)}
        assert len(standing) == scheduled(emulator) == len(orders.peek_message())
    assert sorted(outcomes) == list(range(60))
    done = {f"m{position}" for position, outcome in outcomes.items() if not isinstance(outcome, SbMgmtError)}
    doubt = {f"m{position}" for position, outcome in outcomes.items() if isinstance(outcome, OutcomeUnknownError)}
    assert done | doubt == {f"m{number}" for number in range(60)}
    assert done <= standing <= done | doubt
    assert 4 <= len(doubt) <= 4 * 6


def test_a_peek_in_flight_ends_with_the_emulator(emulator: Emulator) -> None:
    """Stopped under the client: nobody waits for an answer that cannot come."""
    emulator.faults.add(Fault("lose-reply", PEEK, count=None))
    caught: list[BaseException] = []

    def run() -> None:
        with opened(emulator, server_timeout_ms=60_000) as orders:
            try:
                orders.peek_message()
            except SbMgmtError as problem:
                caught.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: emulator.requests.get(PEEK, 0) > 0)
    emulator.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(problem) for problem in caught] == [ConnectionFailedError]
