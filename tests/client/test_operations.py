"""Every operation over a real connection to the emulator: what it gives, and the errors that it really has."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from spark_sb_mgmt import errors
from spark_sb_mgmt.client import EntityClient, ManagementClient, ScheduledMessage
from spark_sb_mgmt.connection.planning import Extent
from spark_sb_mgmt.connection.timing import Timing
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.schedule import schedule_message
from tests.client.conftest import SOON, Sdk

LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)


def scheduled(count: int, size: int = 10, **properties: Any) -> list[ScheduledMessage]:
    return [ScheduledMessage(bytes(size), LATER, f"m{number}", **properties) for number in range(count)]


# --- what each gives ----------------------------------------------------------------------------------------------------


def test_peek_message(orders: EntityClient, sdk: Sdk) -> None:
    sdk.send("orders", b"a", b"b", b"c", subject="s", application_properties={"n": 1})
    found = orders.peek_message(from_sequence_number=2, message_count=10)
    assert [(message.sequence_number, message.body, message.subject, message.state) for message in found] == [
        (2, b"b", "s", "active"),
        (3, b"c", "s", "active"),
    ]
    assert found[0].entity == "orders"
    assert len(orders.peek_message(message_count=1)) == 1
    assert orders.peek_message(4) == []


def test_peek_message_of_a_session(client: ManagementClient, sdk: Sdk) -> None:
    sdk.send("sessions", b"a", session_id="one")
    sdk.send("sessions", b"b", session_id="two")
    with client.entity("sessions") as sessions:
        assert [message.body for message in sessions.peek_message(session_id="two")] == [b"b"]
        assert [message.body for message in sessions.peek_message()] == [b"a", b"b"]


def test_schedule_and_cancel_scheduled_message(orders: EntityClient, emulator: Emulator) -> None:
    numbers = orders.schedule_message(scheduled(3, subject="later", partition_key=None))
    found = orders.peek_message()
    assert [message.sequence_number for message in found] == numbers
    assert [(message.state, message.scheduled_enqueue_time, message.subject) for message in found] == [("scheduled", LATER, "later")] * 3
    orders.cancel_scheduled_message(numbers[:2])
    assert [message.sequence_number for message in orders.peek_message()] == numbers[2:]
    assert orders.schedule_message(scheduled(1)[0]) == [4]


def test_receive_by_sequence_number_and_every_disposition(orders: EntityClient, sdk: Sdk, client: ManagementClient) -> None:
    sdk.send("orders", *[b"%d" % number for number in range(4)])
    numbers = sdk.defer("orders", 4)
    locked = orders.receive_by_sequence_number(numbers)
    tokens = {message.body: UUID(message.lock_token or "") for message in locked}
    assert len(tokens) == 4
    assert all(message.locked_until is not None for message in locked)
    (until,) = orders.renew_lock([tokens[b"0"]])
    assert until > datetime.now(timezone.utc)
    orders.update_disposition("completed", [tokens[b"0"]])
    orders.update_disposition("abandoned", [tokens[b"1"]], properties_to_modify={"seen": 7})
    orders.update_disposition(
        "suspended", [tokens[b"2"]], deadletter_reason="why", deadletter_description="because", properties_to_modify={"seen": "twice"}
    )
    orders.update_disposition("deferred", [tokens[b"3"]])
    assert {message.body: message.state for message in orders.peek_message()} == {b"1": "deferred", b"3": "deferred"}
    assert orders.peek_message()[0].application_properties == {"seen": 7}
    with client.entity("orders/$DeadLetterQueue") as dead:
        (message,) = dead.peek_message()
        assert (message.body, message.dead_letter_reason, message.dead_letter_error_description) == (b"2", "why", "because")
        assert message.application_properties["seen"] == "twice"


def test_receive_and_delete_by_sequence_number(orders: EntityClient, sdk: Sdk) -> None:
    sdk.send("orders", b"a")
    (message,) = orders.receive_by_sequence_number(sdk.defer("orders", 1), receiver_settle_mode=0)
    assert (message.body, message.lock_token) == (b"a", None)
    assert len(orders.peek_message()) == 0


def test_batch_delete_messages(orders: EntityClient, sdk: Sdk) -> None:
    sdk.send("orders", *[b"x"] * 5)
    assert orders.batch_delete_messages(3) == 3
    assert orders.batch_delete_messages(100, datetime.now(timezone.utc) + timedelta(hours=1)) == 2
    assert orders.batch_delete_messages() == 0


def test_batch_delete_messages_without_a_time_takes_what_was_enqueued_in_this_very_millisecond(stopped_clock: Emulator) -> None:
    with Sdk(stopped_clock.connection_string) as sdk:
        sdk.send("orders", b"x")
    with ManagementClient.from_connection_string(stopped_clock.connection_string) as client:
        enqueued = client.entity("orders").peek_message()[0].enqueued_time
    assert enqueued is not None
    same = Timing(now=lambda: enqueued.timestamp() + 0.0005)
    with ManagementClient.from_connection_string(stopped_clock.connection_string, timing=same) as client:
        assert client.entity("orders").batch_delete_messages() == 1


def test_session_state_and_lock(client: ManagementClient, sdk: Sdk) -> None:
    sdk.send("sessions", b"a", session_id="one")
    with client.entity("sessions") as sessions:
        assert sessions.get_session_state("one") is None
        sessions.set_session_state("one", b"\x00state")
        assert sessions.get_session_state("one") == b"\x00state"
        sessions.set_session_state("one", None)
        assert sessions.get_session_state("one") is None
        with sdk.holding("sessions", "one") as locked_until:
            assert sessions.renew_session_lock("one") >= locked_until


def test_get_message_sessions_in_both_modes(client: ManagementClient, sdk: Sdk) -> None:
    for number in range(7):
        sdk.send("sessions", b"a", session_id=f"s{number}")
    before = datetime.now(timezone.utc) - timedelta(minutes=1)
    with client.entity("sessions") as sessions:
        sessions.set_session_state("with-state", b"x")
        assert sorted(sessions.get_message_sessions(top=3)) == [*(f"s{number}" for number in range(7)), "with-state"]
        assert sessions.get_message_sessions(before) == ["with-state"]
        assert sessions.get_message_sessions(LATER) == []
        # One page, for who turns them himself.
        assert sessions.get_message_sessions(top=3, skip=7) == sessions.get_message_sessions()[7:]
        assert sessions.get_message_sessions(top=3, skip=8) == []


def test_rules(client: ManagementClient) -> None:
    given = [
        Rule("sql", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
        Rule("correlation", CorrelationFilter(correlation_id="c", label="l", properties={"region": "eu"})),
    ]
    with client.entity("events/Subscriptions/audit") as audit:
        for rule in given:
            audit.add_rule(rule)
        audit.add_rule(Rule("none", FalseFilter()))
        found = {rule.name: rule for rule in audit.enumerate_rules(top=2)}
        assert sorted(found) == ["$Default", "correlation", "none", "sql"]
        assert [(found[rule.name].filter, found[rule.name].action) for rule in given] == [(rule.filter, rule.action) for rule in given]
        assert found["$Default"].filter == TrueFilter()
        assert found["none"].filter in (FalseFilter(), SqlFilter("1=0"))
        for name in found:
            audit.remove_rule(name)
        assert audit.enumerate_rules() == []


def test_messages_are_scheduled_by_the_names_of_their_columns(orders: EntityClient) -> None:
    one = {"body": b"a", "scheduled_enqueue_time": LATER, "subject": "s", "application_properties": {"n": 1}}
    numbers = [*orders.schedule_message(one), *orders.schedule_message([{**one, "message_id": "m"}, *scheduled(1)])]
    with orders.transaction() as txn:
        numbers += txn.schedule_message(dict(one) for _ in range(2))
    numbers += orders.schedule_message(ScheduledMessage(b"a", LATER))
    # As a row has it.
    numbers += orders.schedule_message({**one, "message_id": None, "session_id": None, "application_properties": None})
    found = orders.peek_message()
    assert [message.sequence_number for message in found] == numbers
    assert (found[0].subject, found[0].application_properties, found[0].scheduled_enqueue_time) == ("s", {"n": 1}, LATER)
    assert found[1].message_id == "m"
    assert len({message.message_id for message in found}) == 7


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "messages must be a sequence, not None"),
        ("text", "messages must be a sequence, not 'text'"),
        ([5], "must be a ScheduledMessage, not a int"),
        ({"body": b"a"}, "messages[0] has no scheduled_enqueue_time"),
        ([scheduled(1)[0], {"body": b"a", "label": "l"}], "messages[1] has 'label', and a message has body, scheduled_enqueue_time"),
        ([{"body": b"a", "scheduled_enqueue_time": LATER, "message_id": 5}], "message_id[0] must be a string, not 5"),
    ],
)
def test_what_is_no_message_is_refused_with_its_row(messages: Any, says: str, orders: EntityClient) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=re.escape(says)):
        orders.schedule_message(messages)


def test_rules_by_their_columns(client: ManagementClient) -> None:
    with client.entity("events/Subscriptions/audit") as audit:
        audit.remove_rule(rule_name="$Default")
        audit.add_rule(rule_name="sql", sql_expression="a = 1", action_expression="SET b = 2")
        audit.add_rule("correlation", correlation_filter={"label": "l", "properties": {"region": "eu"}})
        audit.add_rule("same", correlation_filter=CorrelationFilter(label="l"))
        audit.add_rule("all", None, None, None)
        audit.add_rule("none", filter_type="false")
        audit.add_rule(rule_name="also-sql", sql_expression="a = 1", filter_type="sql")
        rules = {rule.rule_name: rule for rule in audit.enumerate_rules()}
        sql, correlation = rules["sql"], rules["correlation"]
        assert (sql.filter_type, sql.sql_expression, sql.correlation_filter) == ("sql", "a = 1", None)
        assert (sql.action_type, sql.action_expression) == ("sql", "SET b = 2")
        assert (correlation.filter_type, correlation.sql_expression) == ("correlation", None)
        assert correlation.correlation_filter == CorrelationFilter(label="l", properties={"region": "eu"})
        assert (correlation.action_type, correlation.action_expression) == (None, None)
        assert rules["same"].filter == CorrelationFilter(label="l")
        assert (rules["all"].sql_expression, rules["none"].sql_expression, rules["also-sql"].filter) == ("1=1", "1=0", SqlFilter("a = 1"))
        pages = [[rule.rule_name for rule in audit.enumerate_rules(top=3, skip=skip)] for skip in (0, 3, 6)]
        assert (pages[0] + pages[1], pages[2]) == (list(rules), [])
        assert list(map(len, pages)) == [3, 3, 0]


def test_rules_as_the_wire_has_them(client: ManagementClient) -> None:
    with client.entity("events/Subscriptions/audit") as audit:
        audit.remove_rule("$Default")
        action = {"sql-rule-action": {"expression": "SET b = 2"}}
        audit.add_rule(rule_name="sql", rule_description={"sql-filter": {"expression": "a = 1"}, **action})
        audit.add_rule(rule_name="correlation", rule_description={"correlation-filter": {"reply-to": "r", "label": None}})
        audit.add_rule(rule_name="spelt", rule_description={"correlation_filter": {"reply_to": "r", "properties": None}})
        audit.add_rule(rule_name="all", rule_description=action)
        assert {rule.name: (rule.filter, rule.action_expression) for rule in audit.enumerate_rules()} == {
            "sql": (SqlFilter("a = 1"), "SET b = 2"),
            "correlation": (CorrelationFilter(reply_to="r"), None),
            "spelt": (CorrelationFilter(reply_to="r"), None),
            "all": (SqlFilter("1=1"), "SET b = 2"),
        }


@pytest.mark.parametrize(
    ("add", "argument"),
    [
        (lambda audit: audit.add_rule(), "rule"),
        (lambda audit: audit.add_rule("r", rule_name="r"), "rule_name"),
        (lambda audit: audit.add_rule("r", "a = 1", {"label": "l"}), "correlation_filter"),
        (lambda audit: audit.add_rule("r", correlation_filter={"subject": "l"}), "correlation_filter"),
        (lambda audit: audit.add_rule("r", correlation_filter="label = 'l'"), "correlation_filter"),
        (lambda audit: audit.add_rule("r", sql_expression=5), "filter"),
        (lambda audit: audit.add_rule(Rule("r", TrueFilter()), "a = 1"), "rule"),
        (lambda audit: audit.add_rule(Rule("r", TrueFilter()), rule_description={}), "rule"),
        (lambda audit: audit.add_rule(rule_description={}), "rule"),
        (lambda audit: audit.add_rule("r", "a = 1", rule_description={}), "rule_description"),
        (lambda audit: audit.add_rule("r", rule_description="a = 1"), "rule_description"),
        (lambda audit: audit.add_rule("r", rule_description={"filter": {"expression": "a = 1"}}), "rule_description"),
        (lambda audit: audit.add_rule("r", rule_description={"sql-filter": "a = 1"}), "rule_description"),
        (lambda audit: audit.add_rule("r", correlation_filter={"reply-to": "a", "reply_to": "b"}), "correlation_filter"),
        (lambda audit: audit.add_rule("r", filter_type="sql"), "filter_type"),
        (lambda audit: audit.add_rule("r", "a = 1", filter_type="false"), "filter_type"),
        (lambda audit: audit.add_rule("r", filter_type="all"), "filter_type"),
    ],
)
def test_a_rule_that_is_none(add: Callable[[EntityClient], None], argument: str, client: ManagementClient) -> None:
    with client.entity("events/Subscriptions/audit") as audit, pytest.raises(errors.InvalidArgumentError) as caught:
        add(audit)
    assert caught.value.argument == argument


def test_topics_hold_their_scheduled_messages_and_nested_names_are_entities(client: ManagementClient) -> None:
    with client.entity("events") as events, client.entity("/site1/orders") as nested:
        assert events.schedule_message(scheduled(1)) == [message.sequence_number for message in events.peek_message()]
        nested.schedule_message(scheduled(2))
        assert len(nested.peek_message()) == 2
        assert nested.path == "site1/orders"


def test_subscriptions_and_every_sub_queue_are_entities(client: ManagementClient, sdk: Sdk) -> None:
    sdk.send_to_topic("events", b"a")
    sdk.send("orders", b"b")
    sdk.receive("orders", 1, lambda receiver, message: receiver.dead_letter_message(message))
    found = {
        path: [message.body for message in client.entity(path).peek_message()]
        for path in (
            "events/Subscriptions/audit",
            # As users write it.
            "events/subscriptions/audit",
            "events/Subscriptions/audit/$DeadLetterQueue",
            "orders",
            "orders/$DeadLetterQueue",
            "orders/$deadletterqueue",
            "orders/$Transfer/$DeadLetterQueue",
        )
    }
    assert [path for path, bodies in found.items() if bodies == [b"a"]] == ["events/Subscriptions/audit", "events/subscriptions/audit"]
    assert [path for path, bodies in found.items() if bodies == [b"b"]] == ["orders/$DeadLetterQueue", "orders/$deadletterqueue"]


def test_the_entity_of_the_connection_string(emulator: Emulator) -> None:
    with ManagementClient.from_connection_string(f"{emulator.connection_string};EntityPath=orders") as client:
        assert client.entity().path == "orders"
    with ManagementClient.from_connection_string(emulator.connection_string) as client, pytest.raises(errors.InvalidArgumentError):
        client.entity()


def test_another_client_has_a_connection_of_its_own(emulator: Emulator) -> None:
    with ManagementClient.from_connection_string(f"{emulator.connection_string}EntityPath=orders") as client, client.another() as other:
        for one in (client, other):
            with one.entity() as orders:
                assert (orders.path, len(orders.peek_message())) == ("orders", 0)
        assert emulator.connections == 2
        client.close()
        with other.entity() as orders:
            assert len(orders.peek_message()) == 0
    assert emulator.connections == 0


def test_transactions_take_effect_together_or_not_at_all(orders: EntityClient, sdk: Sdk) -> None:
    sdk.send("orders", b"a", b"b")
    tokens = [message.lock_token for message in orders.receive_by_sequence_number(sdk.defer("orders", 2))]
    with orders.transaction() as txn:
        numbers = txn.schedule_message(scheduled(2))
        txn.update_disposition("completed", tokens[:1])
        assert len(orders.peek_message()) == 2
    assert [message.sequence_number for message in orders.peek_message()] == [2, *numbers]

    def fail() -> None:
        with orders.transaction() as txn:
            txn.schedule_message(scheduled(2))
            txn.update_disposition("completed", tokens[1:])
            assert len(dict(txn.pipeline([schedule_message(scheduled(1))] * 3))) == 3
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [message.sequence_number for message in orders.peek_message()] == [2, *numbers]
    with pytest.raises(errors.InvalidArgumentError, match="no transaction"), orders.transaction() as txn:
        txn.call(peek_message())


def test_a_transaction_can_be_rolled_back_by_hand(orders: EntityClient) -> None:
    with orders.transaction() as txn:
        txn.schedule_message(scheduled(2))
        txn.rollback()
    assert len(orders.peek_message()) == 0


# --- many at once -------------------------------------------------------------------------------------------------------


def test_ten_thousand_pipelined_requests(orders: EntityClient, emulator: Emulator) -> None:
    (number,) = orders.schedule_message(scheduled(1))
    seen = [False] * 10_000
    for position, outcome in orders.pipeline((peek_message(0, 1) for _ in range(10_000)), depth=64):
        assert not isinstance(outcome, SbMgmtError)
        assert outcome[0].sequence_number == number
        assert not seen[position]
        seen[position] = True
    assert all(seen)
    assert emulator.requests["peek-message"] == 10_000


def test_an_answer_of_many_frames(client: ManagementClient) -> None:
    with client.entity("orders") as orders:
        for _ in range(2):
            orders.schedule_message(scheduled(4, size=200_000))
        sizes = [len(message.body or b"") for page in orders.peek_range(page_size=4, depth=4) for message in page]
        assert sizes == [200_000] * 8


@pytest.mark.parametrize("depth", [1, 3, 16])
@pytest.mark.parametrize("limit", [None, 1, 7])
def test_peek_range_gives_every_message_once(orders: EntityClient, emulator: Emulator, depth: int, limit: int | None) -> None:
    numbers = orders.schedule_message(scheduled(400))
    gone = [number for number in numbers if number % 7 in (0, 3) or 100 <= number < 250]
    orders.cancel_scheduled_message(gone)
    left = sorted(set(numbers) - set(gone))
    if limit is not None:
        emulator.faults.add(Fault("cap-page", operation="peek-message", count=None, limit=limit))
    found = [message.sequence_number for page in orders.peek_range(page_size=20, depth=depth) for message in page]
    assert sorted(found) == left
    some = [message.sequence_number for page in orders.peek_range(50, 300, page_size=20, depth=depth) for message in page]
    assert sorted(some) == [number for number in left if 50 <= number < 300]


def test_peek_range_with_answers_in_another_order(orders: EntityClient, emulator: Emulator) -> None:
    numbers = orders.schedule_message(scheduled(300))
    fault = emulator.faults.add(Fault("reorder", operation="peek-message", count=None, limit=4, seconds=0.02))
    found = [message.sequence_number for page in orders.peek_range(page_size=10, depth=8) for message in page]
    assert sorted(found) == numbers
    assert emulator.faults.hits(fault) >= 30


def test_a_page_knows_what_of_it_to_keep(orders: EntityClient) -> None:
    orders.schedule_message(scheduled(30))
    pages = list(orders.peek_range(1, 31, page_size=10, depth=2))
    assert [(page.is_whole, len(page), page.until_sequence_number - page.from_sequence_number) for page in pages] == [(True, 10, 10)] * 3
    assert pages[0].response == pages[0].messages.response
    assert "10 messages" in repr(pages[0])


# --- where messages are -------------------------------------------------------------------------------------------------


def round_trips(emulator: Emulator, use: Callable[[], Any]) -> tuple[Any, int]:
    before = emulator.requests.get("peek-message", 0)
    found = use()
    return found, -(-(emulator.requests["peek-message"] - before) // 32)


def test_planning_takes_a_handful_of_round_trips(orders: EntityClient, emulator: Emulator) -> None:
    for _ in range(8):
        numbers = orders.schedule_message(scheduled(500))
    # 32 probes are one round trip: they are in flight together.
    assert round_trips(emulator, orders.lowest_sequence_number) == (1, 1)
    highest, trips = round_trips(emulator, orders.highest_sequence_number)
    assert highest == numbers[-1] == 4000
    assert trips <= 6
    extents, trips = round_trips(emulator, orders.extents)
    assert extents == [Extent(1, 4000)]
    assert trips <= 10


def test_planning_of_an_empty_entity(orders: EntityClient) -> None:
    assert (orders.lowest_sequence_number(), orders.highest_sequence_number(), orders.partition_ids(), orders.extents()) == (
        None,
        None,
        [],
        [],
    )
    assert orders.sequence_number_at(LATER) is None
    assert list(orders.peek_range()) == []


def test_planning_of_a_partitioned_entity(client: ManagementClient, sdk: Sdk) -> None:
    for key in range(12):
        sdk.send("partitioned", b"x", partition_key=f"k{key}")
    with client.entity("partitioned") as partitioned:
        found = sorted(message.sequence_number for page in partitioned.peek_range() for message in page)
        assert len(found) == 12
        ids = sorted({number >> 48 for number in found})
        assert len(ids) > 1
        assert partitioned.partition_ids() == ids
        by_id = {partition: [number for number in found if number >> 48 == partition] for partition in ids}
        assert partitioned.extents() == [Extent(min(numbers), max(numbers)) for numbers in by_id.values()]


def test_the_number_at_a_time(stopped_clock: Emulator) -> None:
    with Sdk(stopped_clock.connection_string) as sdk:
        for _ in range(20):
            sdk.send("orders", b"x")
            stopped_clock.advance(60)
    with ManagementClient.from_connection_string(stopped_clock.connection_string) as client, client.entity("orders") as orders:
        times = [message.enqueued_time for message in orders.peek_message()]
        assert times[7] is not None
        assert orders.sequence_number_at(times[7]) == 8
        assert orders.sequence_number_at(times[7] + timedelta(milliseconds=1)) == 9
        assert orders.sequence_number_at(0) == 1
        assert orders.sequence_number_at(LATER) is None


# --- errors -------------------------------------------------------------------------------------------------------------


def test_errors_that_the_service_really_has(client: ManagementClient, orders: EntityClient, sdk: Sdk, emulator: Emulator) -> None:
    cases: list[tuple[type[SbMgmtError], Callable[[], Any]]] = [
        (errors.EntityNotFoundError, lambda: client.entity("nowhere").peek_message()),
        (errors.MessageNotFoundError, lambda: orders.cancel_scheduled_message([99])),
        (errors.MessageNotFoundError, lambda: orders.receive_by_sequence_number([99])),
        (errors.MessageLockLostError, lambda: orders.renew_lock([uuid4()])),
        (errors.MessageLockLostError, lambda: orders.update_disposition("completed", [uuid4()])),
        (errors.EntityNotFoundError, lambda: client.entity("events/Subscriptions/audit").remove_rule("none")),
        (errors.EntityAlreadyExistsError, lambda: client.entity("events/Subscriptions/audit").add_rule(Rule("$Default", TrueFilter()))),
        (errors.ArgumentError, lambda: client.entity("events/Subscriptions/audit").add_rule(Rule("bad", SqlFilter("a = = 1")))),
        (errors.QuotaExceededError, lambda: orders.schedule_message(scheduled(4501))),
        (errors.SessionLockLostError, lambda: client.entity("sessions").renew_session_lock("nobody-holds-it")),
    ]
    for kind, use in cases:
        with pytest.raises(kind) as caught:
            use()
        assert caught.value.condition is not None, kind
        assert not caught.value.retryable


def test_a_lock_that_is_over(stopped_clock: Emulator) -> None:
    with Sdk(stopped_clock.connection_string) as sdk:
        sdk.send("orders", b"x")
        numbers = sdk.defer("orders", 1)
    with ManagementClient.from_connection_string(stopped_clock.connection_string) as client, client.entity("orders") as orders:
        (message,) = orders.receive_by_sequence_number(numbers)
        with pytest.raises(errors.MessageNotFoundError):
            orders.receive_by_sequence_number(numbers)
        stopped_clock.advance(61)
        with pytest.raises(errors.MessageLockLostError):
            orders.update_disposition("completed", [message.lock_token])
        assert len(orders.receive_by_sequence_number(numbers)) == 1


def test_a_right_that_is_missing(emulator: Emulator) -> None:
    text = emulator.connection_string.replace("RootManageSharedAccessKey", "reader").replace("SAS_KEY_VALUE", "reader-key")
    with ManagementClient.from_connection_string(text) as client, client.entity("orders") as orders:
        assert len(orders.peek_message()) == 0
        with pytest.raises(errors.AuthenticationError) as caught:
            orders.schedule_message(scheduled(1))
        assert "Send" in str(caught.value)


def test_a_wrong_key(emulator: Emulator) -> None:
    text = emulator.connection_string.replace("SAS_KEY_VALUE", "guessed-key")
    with ManagementClient.from_connection_string(text, retry=SOON) as client:
        with pytest.raises(errors.AuthenticationError) as caught:
            client.entity("orders").peek_message()
        assert "guessed-key" not in f"{caught.value} {caught.value!r} {client!r}"
        assert caught.value.entity is not None
    assert emulator.requests["put-token"] == 1


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"transport": "carrier-pigeon"}, "transport"),
        ({"server_timeout_ms": 0}, "serverTimeoutMs"),
        ({"pipeline_depth": 0}, "pipelineDepth"),
        ({"max_retries": -1}, "maxRetries"),
        ({"attach_timeout_s": 0}, "attach_timeout_s"),
        ({"retries": 3}, "retries"),
        ({"max_retries": "5"}, "maxRetries"),
        ({"retry": 5}, "retry"),
        ({"ca_file": 5}, "caFile"),
        ({"server_timeout_ms": 1.5}, "serverTimeoutMs"),
    ],
)
def test_settings_are_checked_before_anything_is_opened(settings: dict[str, Any], argument: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        ManagementClient.from_connection_string("Endpoint=sb://x;SharedAccessKeyName=n;SharedAccessKey=k", **settings)
    assert caught.value.argument == argument


def test_a_number_of_retries_leaves_the_rest_of_a_policy_alone(emulator: Emulator) -> None:
    client = ManagementClient.from_connection_string(emulator.connection_string, retry=SOON, max_retries=7)
    assert client._connection.settings.retry == replace(SOON, max_retries=7)


@pytest.mark.parametrize("path", ["", "/", " orders", "orders/$management", "x" * 600, 5, b"orders"])
def test_a_path_that_is_none(client: ManagementClient, path: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        client.entity(path)


@pytest.mark.parametrize("text", [None, 5, b"Endpoint=sb://x;SharedAccessKeyName=n;SharedAccessKey=secret"])
def test_a_connection_string_that_is_no_text(text: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="connectionString is a ") as caught:
        ManagementClient.from_connection_string(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "namespace", ["Endpoint=sb://x;SharedAccessKey=secret", None, "sb://ns.servicebus.windows.net/", "ns:0", "ns:65536"]
)
def test_a_namespace_that_is_none(namespace: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        ManagementClient(namespace, object())  # type: ignore[arg-type]
    assert caught.value.argument == "fullyQualifiedNamespace"
    assert "secret" not in str(caught.value)


CALLS: dict[str, Callable[[EntityClient], Any]] = {
    "peek-message": lambda orders: orders.peek_message(message_count=0),
    "receive-by-sequence-number": lambda orders: orders.receive_by_sequence_number([]),
    "update-disposition": lambda orders: orders.update_disposition("completed", []),
    "renew-lock": lambda orders: orders.renew_lock([]),
    "schedule-message": lambda orders: orders.schedule_message([]),
    "cancel-scheduled-message": lambda orders: orders.cancel_scheduled_message([]),
    "batch-delete-messages": lambda orders: orders.batch_delete_messages(0),
    "renew-session-lock": lambda orders: orders.renew_session_lock(5),  # type: ignore[arg-type]
    "get-session-state": lambda orders: orders.get_session_state(5),  # type: ignore[arg-type]
    "set-session-state": lambda orders: orders.set_session_state("s", 5),  # type: ignore[arg-type]
    "get-message-sessions": lambda orders: orders.get_message_sessions(top=0),
    "add-rule": lambda orders: orders.add_rule(5),  # type: ignore[arg-type]
    "remove-rule": lambda orders: orders.remove_rule(""),
    "enumerate-rules": lambda orders: orders.enumerate_rules(top=0),
}


@pytest.mark.parametrize("operation", CALLS)
def test_an_argument_that_is_refused_says_of_which_operation_and_entity(operation: str, orders: EntityClient, emulator: Emulator) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        CALLS[operation](orders)
    assert (caught.value.operation, caught.value.entity) == (operation, "orders")
    assert emulator.requests == {}


@pytest.mark.parametrize(
    ("use", "operation"),
    [
        (EntityClient.peek_message, "peek-message"),
        (lambda orders: next(orders.peek_range()), "peek-message"),
        (EntityClient.extents, "peek-message"),
        (EntityClient.enumerate_rules, "enumerate-rules"),
        (lambda orders: orders.transaction().__enter__(), "declare"),
        (lambda orders: orders.transaction().schedule_message(scheduled(1)), "schedule-message"),
        (lambda orders: orders.max_message_size, None),
    ],
)
@pytest.mark.parametrize("closed", ["entity", "client"])
def test_what_is_closed_says_so_of_the_operation_and_the_entity(
    closed: str, use: Callable[[EntityClient], Any], operation: str | None, client: ManagementClient
) -> None:
    orders = client.entity("orders")
    orders.peek_message()
    (orders if closed == "entity" else client).close()
    with pytest.raises(errors.ClosedError) as caught:
        use(orders)
    assert (caught.value.operation, caught.value.entity) == (operation, "orders")


def test_an_entity_that_is_not_there_is_named_as_it_was_asked_for(client: ManagementClient) -> None:
    with pytest.raises(errors.EntityNotFoundError) as caught:
        client.entity("nowhere").peek_message()
    assert (caught.value.operation, caught.value.entity, caught.value.status) == ("peek-message", "nowhere", 404)


@pytest.mark.parametrize("thing", ["client", "orders"])
def test_what_is_open_does_not_travel(thing: str, client: ManagementClient, orders: EntityClient) -> None:
    orders.peek_message()
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps({"client": client, "orders": orders}[thing])
