"""Options: right ones become one typed object, wrong ones one error that names the option, the value and what is allowed."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options import parsing as o
from spark_sb_mgmt.spark.options.table import EVERY_OPERATION, OPTIONS, READ_OPERATIONS, WRITE_OPERATIONS

KEY = "c2VjcmV0LWtleS1vZi10aGUtdGVzdA=="
CONNECTION = f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={KEY}"
TO_QUEUE = {"connectionString": CONNECTION, "queue": "orders"}
TO_SUBSCRIPTION = {"connectionString": CONNECTION, "topic": "t", "subscription": "s"}


def lower(given: dict[str, str]) -> dict[str, str]:
    """As Spark hands them over."""
    return {key.lower(): value for key, value in given.items()}


def read(extra: dict[str, str] | None = None, *, base: dict[str, str] = TO_QUEUE, environment: dict[str, str] | None = None) -> Any:
    return o.read_options(lower({**base, **(extra or {})}), environment or {})


def stream(extra: dict[str, str] | None = None) -> Any:
    return o.stream_read_options(lower({**TO_QUEUE, **(extra or {})}), {})


def write(operation: str, extra: dict[str, str] | None = None, *, base: dict[str, str] = TO_QUEUE) -> Any:
    return o.write_options(lower({**base, "operation": operation, **(extra or {})}), {})


def problem(call: Callable[[], Any]) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return str(caught.value)


# --- what comes out ---------------------------------------------------------------------------------------------------------


def test_a_read_without_more_is_a_peek_with_the_defaults_of_the_contract() -> None:
    options = read()
    assert isinstance(options, o.PeekOptions)
    assert options == o.PeekOptions(
        operation="peek-message",
        connection=o.ConnectionOptions(
            connection_string=CONNECTION,
            fully_qualified_namespace=None,
            credential=None,
            tenant_id=None,
            client_id=None,
            client_secret=None,
            transport="amqp",
            ca_file=None,
            server_timeout_ms=60_000,
            max_retries=5,
            pipeline_depth=8,
        ),
        entities=("orders",),
        from_sequence_number=None,
        until_sequence_number=None,
        states=None,
        enqueued_from=None,
        enqueued_until=None,
        session_id=None,
        num_partitions=None,
        page_size=250,
        max_messages=None,
    )


def test_every_option_of_a_peek(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.touch()
    options = read(
        {
            "fromSequenceNumber": "7",
            "untilSequenceNumber": str(2**63),
            "states": "scheduled, active",
            "enqueuedFrom": "2026-01-31T18:30:00.0001+02:00",
            "enqueuedUntil": "2026-02-01",
            "sessionId": " s 1 ",
            "numPartitions": "4",
            "pageSize": "100",
            "maxMessages": "5",
            "transport": "amqpwebsocket",
            "caFile": str(ca_file),
            "serverTimeoutMs": "1000",
            "maxRetries": "0",
            "pipelineDepth": "32",
        }
    )
    assert (options.from_sequence_number, options.until_sequence_number) == (7, 2**63)
    assert options.states == ("active", "scheduled")
    assert options.enqueued_from == datetime(2026, 1, 31, 16, 30, 0, 100, tzinfo=timezone.utc)
    assert options.enqueued_until_ms == 1_769_904_000_000
    # A message's time is whole milliseconds, so a bound between two of them is the later one.
    assert options.enqueued_from_ms == 1_769_877_000_001
    assert options.session_id == " s 1 "
    assert (options.num_partitions, options.page_size, options.max_messages) == (4, 100, 5)
    connection = options.connection
    assert (connection.transport, connection.ca_file) == ("amqpWebSocket", str(ca_file))
    assert (connection.server_timeout_ms, connection.max_retries, connection.pipeline_depth) == (1000, 0, 32)


def test_receive_by_sequence_number() -> None:
    options = read({"operation": "receive-by-sequence-number", "sequenceNumbers": "100-200, 9,7,8", "onMissing": "report"})
    assert isinstance(options, o.ReceiveOptions)
    assert options.sequence_numbers == ((7, 10), (100, 201))
    assert (options.receive_mode, options.on_missing, options.page_size) == ("peekLock", "report", 250)
    searched = read({"operation": "receive-by-sequence-number", "fromSequenceNumber": "0", "receiveMode": "receiveAndDelete"})
    assert (searched.sequence_numbers, searched.from_sequence_number, searched.receive_mode) == (None, 0, "receiveAndDelete")


def test_sessions_and_rules() -> None:
    sessions = read({"operation": "get-message-sessions", "lastUpdatedSince": "2026-01-01 00:00:00"})
    assert isinstance(sessions, o.SessionsOptions)
    assert sessions.last_updated_since == datetime(2026, 1, 1, tzinfo=timezone.utc)
    rules = read({"operation": "enumerate-rules"}, base=TO_SUBSCRIPTION)
    assert isinstance(rules, o.RulesOptions)
    assert rules.entities == ("t/Subscriptions/s",)


def test_a_stream() -> None:
    options = stream({"maxMessagesPerTrigger": "10", "failOnDataLoss": "FALSE", "startingSequenceNumber": "5"})
    assert isinstance(options, o.StreamOptions)
    assert (options.max_messages_per_trigger, options.fail_on_data_loss, options.starting_sequence_number) == (10, False, 5)
    assert stream({"startingSequenceNumber": "Earliest"}).starting_sequence_number == "earliest"
    assert (stream().starting_sequence_number, stream().fail_on_data_loss) == ("latest", True)


def test_a_write_without_more_schedules() -> None:
    options = o.write_options(lower(TO_QUEUE), {})
    assert isinstance(options, o.ScheduleOptions)
    assert (options.operation, options.entity, options.on_error) == ("schedule-message", "orders", "fail")
    assert (options.transactional, options.max_batch_bytes, options.max_batch_messages) == (False, None, 500)
    assert (options.spread_seconds, options.property_columns, options.scheduled_enqueue_time) == (0.0, (), None)


def test_the_options_of_writes() -> None:
    schedule = write(
        "schedule-message",
        {
            "receiptsPath": "/r",
            "rowKey": "k",
            "onError": "report",
            "transactional": "true",
            "maxBatchBytes": "65536",
            "spreadSeconds": "0.5",
            "propertyColumns": "a, b",
            "scheduledEnqueueTime": "2030-01-01T00:00Z",
        },
    )
    assert (schedule.receipts_path, schedule.row_key, schedule.on_error) == ("/r", "k", "report")
    assert (schedule.transactional, schedule.max_batch_messages, schedule.max_batch_bytes) == (True, 100, 65536)
    assert (schedule.spread_seconds, schedule.property_columns) == (0.5, ("a", "b"))
    assert schedule.scheduled_enqueue_time == datetime(2030, 1, 1, tzinfo=timezone.utc)
    settle = write("update-disposition", {"dispositionStatus": "Suspended", "maxBatchMessages": "10"})
    assert isinstance(settle, o.SettleOptions)
    assert (settle.disposition_status, settle.max_batch_messages) == ("suspended", 10)
    purge = write("batch-delete-messages", {"enqueuedBefore": "2026-01-01"})
    assert isinstance(purge, o.PurgeOptions)
    assert purge.enqueued_before == datetime(2026, 1, 1, tzinfo=timezone.utc)
    cancel = write("cancel-scheduled-message")
    assert type(cancel) is o.BatchedWriteOptions


def test_what_spark_adds_for_a_streaming_sink_is_not_unknown() -> None:
    assert write("schedule-message", {"checkpointLocation": "/c", "queryName": "q"}).entity == "orders"
    assert "checkpointlocation is unknown" in problem(lambda: read({"checkpointLocation": "/c"}))


def test_an_operation_is_read_in_any_case_as_other_words_are() -> None:
    assert read({"operation": " Peek-Message "}).operation == "peek-message"
    assert write("RENEW-LOCK").operation == "renew-lock"


@pytest.mark.parametrize("operation", EVERY_OPERATION)
def test_every_operation_has_an_object_with_its_options_as_fields(operation: str) -> None:
    rules = operation in ("enumerate-rules", "add-rule", "remove-rule")
    base = TO_SUBSCRIPTION if rules else TO_QUEUE
    if operation in READ_OPERATIONS:
        numbers = {"sequenceNumbers": "1"} if operation == "receive-by-sequence-number" else {}
        made = read({"operation": operation, **numbers}, base=base)
    else:
        made = write(operation, base=base)
    assert made.operation == operation
    own = {option.field for option in OPTIONS if option.operations != EVERY_OPERATION and operation in option.operations}
    streams = {option.field for option in OPTIONS if "batch" not in option.modes}
    assert {field.name for field in dataclasses.fields(made)} == own - streams | {"operation", "connection", "entities"}


def test_the_table_has_every_name_once_with_a_meaning() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.meaning and option.operations and option.modes for option in OPTIONS)
    assert {option.name for option in OPTIONS if option.secret} == {"connectionString", "clientSecret", "credential"}
    assert set(READ_OPERATIONS).isdisjoint(WRITE_OPERATIONS)
    assert (len(READ_OPERATIONS), len(WRITE_OPERATIONS)) == (4, 9)


def test_documents_show_defaults_as_a_person_writes_them() -> None:
    shown = {option.name: option.default_text for option in OPTIONS}
    assert (shown["transactional"], shown["pageSize"], shown["queue"], shown["caFile"]) == ("false", "250", "-", "system store")
    assert shown["propertyColumns"] == "-"


# --- the way to the service -------------------------------------------------------------------------------------------------


def test_the_connection_string_of_the_drivers_environment() -> None:
    assert read(base={"queue": "q"}, environment={"SBMGMT_CONNECTION_STRING": CONNECTION}).connection.connection_string == CONNECTION
    given = read(environment={"SBMGMT_CONNECTION_STRING": "not looked at"})
    assert given.connection.connection_string == CONNECTION


def test_entra_id() -> None:
    base = {"queue": "q", "fullyQualifiedNamespace": "ns.servicebus.windows.net"}
    environment = {"SBMGMT_CONNECTION_STRING": CONNECTION}
    options = read({"credential": "managedidentity", "clientId": "c"}, base=base, environment=environment).connection
    assert (options.connection_string, options.credential, options.client_id) == (None, "managedIdentity", "c")
    secret = read({"credential": "clientSecret", "tenantId": "t", "clientId": "c", "clientSecret": "hush"}, base=base).connection
    assert secret.client_secret == "hush"
    assert "hush" not in repr(secret)


NAMESPACE = {"queue": "q", "fullyQualifiedNamespace": "ns.servicebus.windows.net"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"queue": "q"}, "option connectionString is missing, and SBMGMT_CONNECTION_STRING is not set on the driver"),
        ({**NAMESPACE, "connectionString": CONNECTION}, "option fullyQualifiedNamespace is given, and connectionString too"),
        (NAMESPACE, "option credential is missing"),
        ({**TO_QUEUE, "credential": "default"}, "option credential is given without fullyQualifiedNamespace"),
        ({**TO_QUEUE, "tenantId": "t"}, "option tenantId is given without fullyQualifiedNamespace"),
        ({**NAMESPACE, "credential": "default", "clientId": "c"}, "option clientId is not for credential default"),
        ({**NAMESPACE, "credential": "managedIdentity", "clientSecret": "x"}, "option clientSecret is not for credential managedIdentity"),
        (
            {**NAMESPACE, "credential": "clientSecret", "clientId": "c"},
            "option tenantId is missing: credential clientSecret needs tenantId",
        ),
        (
            {**NAMESPACE, "fullyQualifiedNamespace": "sb://ns.servicebus.windows.net/", "credential": "default"},
            "option fullyQualifiedNamespace is no host name",
        ),
        ({"queue": "q", "connectionString": "Endpoint=sb://x/"}, "connectionString lacks SharedAccessKeyName and SharedAccessKey"),
    ],
)
def test_a_way_to_connect_that_is_none(given: dict[str, str], expected: str) -> None:
    assert problem(lambda: read(base=given)).startswith(expected)


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pageSize": "0"}, "option pageSize is '0': it must be an integer from 1 to 2^31 - 1"),
        ({"pageSize": "many"}, "option pageSize is 'many': it must be an integer"),
        ({"pageSize": "1_0"}, "option pageSize is '1_0': it must be an integer"),
        ({"pageSize": ""}, "option pageSize is '': it must be an integer"),
        ({"pipelineDepth": "0"}, "option pipelineDepth is '0': it must be an integer from 1 to 1000"),
        ({"maxRetries": "-1"}, "option maxRetries is '-1': it must be an integer from 0 to 1000"),
        ({"serverTimeoutMs": str(2**32)}, "option serverTimeoutMs is '4294967296': it must be an integer from 1 to 2^32 - 1"),
        ({"fromSequenceNumber": "-1"}, "option fromSequenceNumber is '-1': it must be an integer from 0 to 2^63 - 1"),
        (
            {"untilSequenceNumber": str(2**63 + 1)},
            "option untilSequenceNumber is '9223372036854775809': it must be an integer from 0 to 2^63",
        ),
        ({"fromSequenceNumber": "9", "untilSequenceNumber": "3"}, "option untilSequenceNumber is 3, which is below fromSequenceNumber 9"),
        ({"numPartitions": "0"}, "option numPartitions is '0'"),
        ({"maxMessages": "0"}, "option maxMessages is '0'"),
        ({"states": "active,dead"}, "option states is 'active,dead': it must be one or more of active, deferred, scheduled"),
        ({"states": "active,"}, "option states is 'active,': it must be"),
        ({"transport": "http"}, "option transport is 'http': it must be amqp or amqpWebSocket"),
        (
            {"caFile": "/nowhere.pem"},
            "option caFile is '/nowhere.pem': it must be a file that driver and executors can read (the driver cannot)",
        ),
        ({"caFile": "/"}, "option caFile is '/': it must be a file"),
        ({"subQueue": "dlq"}, "option subQueue is 'dlq': it must be deadLetter or transferDeadLetter"),
        ({"enqueuedFrom": "yesterday"}, "option enqueuedFrom is 'yesterday': it must be a time in ISO 8601"),
        ({"enqueuedFrom": "2026-02-30"}, "option enqueuedFrom is '2026-02-30': it must be a time in ISO 8601"),
        (
            {"enqueuedFrom": "2026-01-02", "enqueuedUntil": "2026-01-01"},
            "option enqueuedUntil is 2026-01-01T00:00:00+00:00, which is before enqueuedFrom 2026-01-02T00:00:00+00:00",
        ),
        ({"sessionId": "x" * 129}, "option sessionId has 129 characters: a session id has 128 at most"),
        ({"operation": "peek"}, "option operation is 'peek', did you mean peek-message? There are peek-message, receive-by-"),
        ({"operation": "com.microsoft:peek-message"}, "option operation is 'com.microsoft:peek-message', did you mean peek-message?"),
        ({"operation": "xyzzy"}, "option operation is 'xyzzy': it must be one of peek-message"),
        ({"operation": "schedule-message"}, "option operation is schedule-message, which writes: use it with df.write"),
        ({"pagesize2": "5"}, "option pagesize2 is unknown, did you mean pageSize? There are connectionString"),
        ({"zzz": "5"}, "option zzz is unknown: There are connectionString"),
        ({"que": "5"}, "option que is unknown, did you mean queue?"),
        ({"path": "orders"}, "option path is what load(...) and save(...) were given"),
        # All that Spark adds for a table of this format.
        ({"owner": "me", "option.queue": "q", "provider": "sbmgmt"}, "option provider is what CREATE TABLE adds"),
        # Spark asks for the schema before it is known to be that of a stream.
        ({"startingSequenceNr": "5"}, "option startingsequencenr is unknown, did you mean startingSequenceNumber? There are connectionS"),
        ({"onMissing": "skip"}, "option onMissing is not for operation peek-message: it is for receive-by-sequence-number"),
        ({"rowKey": "k"}, "option rowKey is not for operation peek-message: it is for schedule-message, cancel-"),
        ({"startingSequenceNumber": "5"}, "option startingSequenceNumber is only for spark.readStream"),
    ],
)
def test_a_wrong_option_of_a_read(given: dict[str, str], expected: str) -> None:
    assert problem(lambda: read(given)).startswith(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "option sequenceNumbers is missing: say which messages"),
        ({"sequenceNumbers": "1", "fromSequenceNumber": "0"}, "option sequenceNumbers is given, and fromSequenceNumber or"),
        ({"sequenceNumbers": "5-3"}, "option sequenceNumbers is '5-3': it must be sequence numbers and ranges"),
        ({"sequenceNumbers": "1,,2"}, "option sequenceNumbers is '1,,2'"),
        ({"sequenceNumbers": "-5"}, "option sequenceNumbers is '-5'"),
        ({"sequenceNumbers": str(2**63)}, "option sequenceNumbers is '9223372036854775808'"),
        ({"sequenceNumbers": "0-10000000"}, "option sequenceNumbers is '0-10000000'"),
        ({"sequenceNumbers": "1", "receiveMode": "peek"}, "option receiveMode is 'peek': it must be peekLock or receiveAndDelete"),
        ({"sequenceNumbers": "1", "onMissing": "ignore"}, "option onMissing is 'ignore': it must be fail, skip or report"),
        ({"sequenceNumbers": "1", "states": "active"}, "option states is not for operation receive-by-sequence-number"),
    ],
)
def test_a_wrong_option_of_a_receive(given: dict[str, str], expected: str) -> None:
    assert problem(lambda: read({"operation": "receive-by-sequence-number", **given})).startswith(expected)


def test_numbers_are_of_one_entity() -> None:
    both = {"connectionString": CONNECTION, "entityPath": "a,b", "operation": "receive-by-sequence-number"}
    assert "names 2 entities: the numbers of sequenceNumbers are those of one" in problem(lambda: read({"sequenceNumbers": "7"}, base=both))
    assert read({"fromSequenceNumber": "0"}, base=both).entities == ("a", "b")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"operation": "enumerate-rules"}, "option operation is enumerate-rules, which is for spark.read: a stream reads peek-message"),
        (
            {"operation": "get-message-sessions", "failOnDataLoss": "true"},
            "option operation is get-message-sessions, which is for spark.read: a stream reads peek-message; for spark.read leave fail",
        ),
        ({"fromSequenceNumber": "1"}, "option fromSequenceNumber is only for spark.read: leave it out here; where a stream starts is"),
        ({"maxMessages": "1"}, "option maxMessages is only for spark.read"),
        ({"startingSequenceNumber": "first"}, "option startingSequenceNumber is 'first': it must be earliest, latest or an integer"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss is 'yes': it must be true or false"),
    ],
)
def test_a_wrong_option_of_a_stream(given: dict[str, str], expected: str) -> None:
    assert problem(lambda: stream(given)).startswith(expected)


@pytest.mark.parametrize(
    ("operation", "given", "expected"),
    [
        ("peek-message", {}, "option operation is peek-message, which reads: use it with spark.read"),
        ("schedule", {}, "option operation is 'schedule', did you mean schedule-message?"),
        ("schedule-message", {"onError": "report"}, "option receiptsPath is missing: onError report"),
        (
            "schedule-message",
            {"transactional": "true", "maxBatchMessages": "101"},
            "option maxBatchMessages is 101, and transactional is true",
        ),
        ("schedule-message", {"maxBatchMessages": "4501"}, "option maxBatchMessages is '4501': it must be an integer from 1 to 4500"),
        ("schedule-message", {"spreadSeconds": "-1"}, "option spreadSeconds is '-1': it must be a number of seconds"),
        ("schedule-message", {"dispositionStatus": "completed"}, "option dispositionStatus is not for operation schedule-message"),
        ("update-disposition", {"dispositionStatus": "done"}, "option dispositionStatus is 'done': it must be completed, abandoned"),
        ("renew-lock", {"transactional": "true"}, "option transactional is not for operation renew-lock: it is for schedule-message, upd"),
        ("batch-delete-messages", {"enqueuedBefore": "now"}, "option enqueuedBefore is 'now': it must be a time"),
    ],
)
def test_a_wrong_option_of_a_write(operation: str, given: dict[str, str], expected: str) -> None:
    assert problem(lambda: write(operation, given)).startswith(expected)


# --- secrets ----------------------------------------------------------------------------------------------------------------


def test_no_repr_has_a_secret_and_a_task_gets_it_all_the_same() -> None:
    options = read()
    for text in (repr(options), str(options), f"{options}", repr(options.connection), repr([options])):
        assert KEY not in text
        assert "SharedAccessKey" not in text
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    "given",
    [
        {"queue": CONNECTION},
        {"queue": KEY},
        {"topic": CONNECTION},
        {"entityPath": CONNECTION},
        {"fullyQualifiedNamespace": CONNECTION},
        {"fullyQualifiedNamespace": "ns", "credential": KEY},
        {"queue": "q", "subQueue": CONNECTION},
        {"queue": "q", "transport": CONNECTION},
        {"queue": "q", "operation": CONNECTION},
        {"queue": "q", "conectionString": CONNECTION},
        {"queue": "q", CONNECTION: "x"},
        {"queue": "q", "connectionString": KEY},
        {"queue": "q", "connectionString": CONNECTION.replace("=root", "")},
        {"queue": "q", "connectionString": CONNECTION + ";SharedAccessKey=" + KEY},
        {"queue": "q", "enqueuedFrom": CONNECTION},
    ],
)
def test_no_error_has_a_secret_wherever_it_was_put(given: dict[str, str]) -> None:
    base = {} if "fullyQualifiedNamespace" in given else {"connectionString": CONNECTION}
    with pytest.raises(InvalidArgumentError) as caught:
        read(base={**base, **given})
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.args}"
    assert KEY.rstrip("=").lower() not in shown.lower()
    # A chained error would be printed with the traceback.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
