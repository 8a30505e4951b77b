"""update-disposition: what became of the messages, as the official SDK sees them, and what is said of rows that could not be settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from pyspark.sql import DataFrame, SparkSession

from spark_sb_mgmt.amqp.columns import TYPED_MAP
from spark_sb_mgmt.client import EntityClient, ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.spark.reading.deferred import Patience
from spark_sb_mgmt.spark.writing.settle_writer import SettleTask
from spark_sb_mgmt.spark.writing.task_run import TaskRun
from spark_sb_mgmt.spark.writing.write_operation import TaskAttempt
from tests.cluster.shipping import finished_driver, last_line
from tests.spark.conftest import Deferring, NewEntity, Write
from tests.spark.task_harness import rows_of, running, written

Read = Callable[..., DataFrame]
SETTLE = "update-disposition"
BY_NUMBER = "sequence_number long"
BRIEF = {"server_timeout_ms": 200, "request_margin_s": 0.2}


@pytest.fixture
def client(emulator: Emulator) -> Iterator[ManagementClient]:
    with ManagementClient.from_connection_string(emulator.connection_string) as opened:
        yield opened


@pytest.fixture
def locking(client: ManagementClient, deferring: Deferring) -> Callable[..., tuple[str, list[int], list[str]]]:
    """A queue with so many deferred messages, all of them locked: its name, their numbers and tokens."""

    def make(count: int) -> tuple[str, list[int], list[str]]:
        queue, numbers = deferring(count)
        with client.entity(queue) as entity:
            return queue, numbers, [message.lock_token or "" for message in entity.receive_by_sequence_number(numbers)]

    return make


def settle(emulator: Emulator, queue: str, rows: pa.RecordBatch, **given: Any) -> list[dict[str, Any]]:
    options = {"dispositionStatus": "completed"} if "disposition_status" not in rows.schema.names else {}
    return written(emulator, queue, rows, SETTLE, **{**options, **given})


def by_number(numbers: list[int], **columns: list[Any]) -> pa.RecordBatch:
    return rows_of(SETTLE, sequence_number=numbers, **columns)


def by_token(tokens: list[str], **columns: list[Any]) -> pa.RecordBatch:
    return rows_of(SETTLE, lock_token=tokens, **columns)


def statuses(receipts: list[dict[str, Any]], key: str = "sequence_number") -> dict[Any, str]:
    return {row[key]: row["status"] for row in receipts}


def standing(emulator: Emulator, queue: str) -> list[int]:
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity(queue) as entity:
        return sorted(message.sequence_number for page in entity.peek_range() for message in page)


def can_be_taken(entity: EntityClient, numbers: list[int]) -> bool:
    return len(entity.receive_by_sequence_number(numbers)) == len(numbers)


# --- by Spark -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "partitioned"])
def test_by_number_each_row_is_settled_as_it_says(
    spark: SparkSession, write: Write, deferring: Deferring, sdk: ServiceBusClient, emulator: Emulator, kind: str
) -> None:
    queue, numbers = deferring(40, others=3, kind=kind)
    done, dead, kept = numbers[:20], numbers[20:30], numbers[30:]
    rows = [(n, "completed", None, None) for n in done]
    rows += [(n, "suspended", "bad order" if n % 2 else "late", f"number {n % 3}") for n in dead]
    rows += [(n, "deferred", None, None) for n in kept[:5]]
    columns = "sequence_number long, disposition_status string, deadletter_reason string, deadletter_description string"
    write(spark.createDataFrame(rows, columns).repartition(3), operation=SETTLE, queue=queue, maxBatchMessages=7)
    assert emulator.counts(queue) == {"active": 3, "deferred": 10, "scheduled": 0, "locked": 0}
    with sdk.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        found = receiver.peek_messages(50)
    expected = sorted(("bad order" if n % 2 else "late", f"number {n % 3}") for n in dead)
    assert sorted((message.dead_letter_reason, message.dead_letter_error_description) for message in found) == expected


def test_by_token_what_a_read_has_locked(
    spark: SparkSession, read: Read, write: Write, deferring: Deferring, emulator: Emulator, tmp_path: Any
) -> None:
    queue, _ = deferring(25)
    options = {"operation": "receive-by-sequence-number", "queue": queue, "sequenceNumbers": "1-20"}
    locked = [(row.lock_token,) for row in read(**options).select("lock_token").collect()]
    df = spark.createDataFrame(locked, "lock_token string").repartition(3)
    write(df, operation=SETTLE, queue=queue, dispositionStatus="completed", maxBatchMessages=6, receiptsPath=tmp_path)
    assert standing(emulator, queue) == list(range(21, 26))
    receipts = spark.read.parquet(str(tmp_path)).collect()
    assert sorted((row.lock_token, row.status) for row in receipts) == sorted((token, "ok") for (token,) in locked)


def test_messages_that_the_sdk_has_locked(spark: SparkSession, write: Write, sdk: ServiceBusClient, new_entity: NewEntity) -> None:
    """Any connection settles by a lock token."""
    queue = new_entity("queue")
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"{at}") for at in range(4)])
    with sdk.get_queue_receiver(queue) as receiver:
        tokens: list[str] = []
        while len(tokens) < 4:
            tokens += [str(message.lock_token) for message in receiver.receive_messages(4, max_wait_time=5)]
        rows = [(tokens[0], "completed"), (tokens[1], "abandoned"), (tokens[2], "deferred"), (tokens[3], "suspended")]
        write(spark.createDataFrame(rows, "lock_token string, disposition_status string"), operation=SETTLE, queue=queue)
    with sdk.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        states = sorted((str(message), message.delivery_count, message.state.name) for message in receiver.peek_messages(9))
        assert states == [("1", 1, "ACTIVE"), ("2", 0, "DEFERRED")]


def test_properties_to_modify_as_strings_or_with_their_types(
    spark: SparkSession, write: Write, deferring: Deferring, sdk: ServiceBusClient
) -> None:
    queue, _ = deferring(3)
    rows = [(1, "deferred", {"why": "later"}), (2, "deferred", None)]
    columns = "sequence_number long, disposition_status string, properties_to_modify map<string,string>"
    write(spark.createDataFrame(rows, columns), operation=SETTLE, queue=queue)
    typed = [(3, {"times": ("int", "7"), "at": ("timestamp", "2026-01-02T03:04:05.000Z"), "nothing": ("null", None)})]
    columns = "sequence_number long, properties_to_modify map<string,struct<type:string,value:string>>"
    write(spark.createDataFrame(typed, columns), operation=SETTLE, queue=queue, dispositionStatus="deferred")
    with sdk.get_queue_receiver(queue) as receiver:
        first, second, third = receiver.peek_messages(3)
    assert first.application_properties == {b"why": b"later"}
    assert not second.application_properties
    assert third.application_properties == {b"times": 7, b"at": 1767323045000, b"nothing": None}


def test_rows_that_fail_are_named_and_the_others_are_done(
    spark: SparkSession, write: Write, deferring: Deferring, emulator: Emulator
) -> None:
    queue, numbers = deferring(10, others=1)
    df = spark.createDataFrame([(n,) for n in [*numbers, 11, 99]], BY_NUMBER).repartition(2)
    with pytest.raises(Exception, match=r"2 rows failed: row with sequence_number=(11|99): .* 10 others were done and stay so"):
        write(df, operation=SETTLE, queue=queue, dispositionStatus="completed")
    assert standing(emulator, queue) == [11]


def test_rows_of_many_sessions(spark: SparkSession, write: Write, sdk: ServiceBusClient, new_entity: NewEntity, emulator: Emulator) -> None:
    queue = new_entity("sessions")
    rows = []
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"{at}", session_id=f"s{at % 3}") for at in range(12)])
    for session in ("s0", "s1", "s2"):
        with sdk.get_queue_receiver(queue, session_id=session) as receiver:
            left = 4
            while left:
                for message in receiver.receive_messages(left, max_wait_time=5):
                    receiver.defer_message(message)
                    rows.append((message.sequence_number, session, "completed" if left > 1 else "suspended"))
                    left -= 1
    df = spark.createDataFrame(rows, "sequence_number long, session_id string, disposition_status string")
    write(df.repartition(2), operation=SETTLE, queue=queue)
    assert emulator.counts(queue)["deferred"] == 0
    assert emulator.counts(f"{queue}/$DeadLetterQueue")["active"] == 3


# --- rows that cannot be settled ----------------------------------------------------------------------------------------


def test_missing_locked_and_active_ones_are_told_apart_and_the_others_settled(
    client: ManagementClient, deferring: Deferring, emulator: Emulator
) -> None:
    queue, numbers = deferring(30, others=2)
    with client.entity(queue) as entity:
        entity.receive_by_sequence_number([5, 6])
        receipts = settle(emulator, queue, by_number([*numbers, 31, 77]), maxBatchMessages="8")
    found = {row["sequence_number"]: row for row in receipts}
    assert {number for number, row in found.items() if row["status"] != "ok"} == {5, 6, 31, 77}
    assert "locked by another receiver" in found[5]["status_description"]
    assert "is not deferred" in found[31]["status_description"]
    assert "there is no message of this number" in found[77]["status_description"]
    assert (found[77]["status_code"], found[77]["error_condition"]) == (404, "com.microsoft:message-not-found")
    assert standing(emulator, queue) == [5, 6, 31, 32]


@pytest.mark.parametrize("lost", [1, 3, 20])
def test_locks_that_are_lost_are_found_and_the_others_settled(
    locking: Any, client: ManagementClient, emulator: Emulator, lost: int
) -> None:
    queue, numbers, tokens = locking(20)
    with client.entity(queue) as entity:
        entity.update_disposition("deferred", tokens[:lost])
    receipts = settle(emulator, queue, by_token(tokens))
    assert statuses(receipts, "lock_token") == {**dict.fromkeys(tokens[:lost], "failed"), **dict.fromkeys(tokens[lost:], "ok")}
    assert {row["error_condition"] for row in receipts} - {None} == {"com.microsoft:message-lock-lost"}
    assert standing(emulator, queue) == numbers[:lost]


def test_what_the_service_refuses_for_all_is_asked_for_once_and_leaves_no_lock(
    deferring: Deferring, client: ManagementClient, emulator: Emulator
) -> None:
    """A dead letter cannot be dead-lettered again."""
    queue, numbers = deferring(6)
    settle(emulator, queue, by_number(numbers, disposition_status=["suspended"] * 6))
    with client.entity(f"{queue}/$DeadLetterQueue") as dead:
        assert dead.path.endswith("$DeadLetterQueue")
    other, numbers = deferring(6)
    key = emulator.faults.add(Fault("fail", SETTLE, other, status=400, condition="com.microsoft:argument-error"))
    receipts = settle(emulator, other, by_number(numbers))
    assert set(statuses(receipts).values()) == {"failed"}
    assert emulator.faults.hits(key) == 1
    with client.entity(other) as entity:
        assert can_be_taken(entity, numbers)


def test_a_session_where_there_are_none_is_the_fault_of_its_row(deferring: Deferring, emulator: Emulator) -> None:
    queue, numbers = deferring(3)
    receipts = settle(emulator, queue, by_number(numbers, session_id=[None, "s", None]))
    assert [row["status"] for row in sorted(receipts, key=lambda row: row["sequence_number"])] == ["ok", "failed", "ok"]
    assert standing(emulator, queue) == [2]
    [said] = [row["status_description"] for row in receipts if row["status"] == "failed"]
    assert said == f"{queue!r} has no sessions: leave column session_id out, or make it null"
    assert statuses(settle(emulator, queue, by_number([2], session_id=["s"]))) == {2: "failed"}


def test_a_message_that_is_named_twice_is_a_mistake(deferring: Deferring, emulator: Emulator) -> None:
    queue, _ = deferring(3)
    receipts = settle(emulator, queue, by_number([1, 2, 1]))
    assert [row["status"] for row in receipts] == ["failed", "ok", "ok"]
    assert "sequence_number 1 stands in an earlier row too: a message is settled once" in receipts[0]["status_description"]


# --- answers that do not come -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["completed", "suspended"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop-connection", SETTLE, when="before"),
        Fault("drop-connection", SETTLE, when="after", skip=1),
        Fault("drop-link", SETTLE, when="after"),
        Fault("lose-reply", SETTLE),
        Fault("corrupt", SETTLE),
        Fault("throttle", SETTLE, count=3, seconds=0.01),
        Fault("drop-connection", "receive-by-sequence-number", when="before"),
    ],
    ids=lambda fault: f"{fault.action}-{fault.when}-{fault.operation}" if isinstance(fault, Fault) else str(fault),
)
def test_by_number_a_lost_answer_is_looked_into(deferring: Deferring, emulator: Emulator, fault: Fault, status: str) -> None:
    queue, numbers = deferring(24)
    key = emulator.faults.add(Fault(**{**fault.to_json(), "entity": queue}))
    options: dict[str, Any] = {"maxBatchMessages": "6", "dispositionStatus": status}
    receipts = settle(emulator, queue, by_number(numbers[:20]), client=BRIEF if fault.action == "lose-reply" else None, **options)
    assert emulator.faults.hits(key) == (fault.count or 0)
    assert statuses(receipts) == dict.fromkeys(numbers[:20], "ok")
    assert standing(emulator, queue) == numbers[20:]
    assert emulator.counts(f"{queue}/$DeadLetterQueue")["active"] == (20 if status == "suspended" else 0)


def test_by_token_an_answer_that_was_lost_before_is_sent_again_and_one_lost_after_is_unknown(locking: Any, emulator: Emulator) -> None:
    """Whose lock can be renewed was not settled; whose cannot, nobody knows without its number."""
    queue, _, tokens = locking(9)
    emulator.faults.add(Fault("drop-connection", SETTLE, queue, when="before"))
    assert statuses(settle(emulator, queue, by_token(tokens[:4])), "lock_token") == dict.fromkeys(tokens[:4], "ok")
    emulator.faults.add(Fault("drop-connection", SETTLE, queue, when="after"))
    with running(emulator, queue, by_token(tokens).schema, operation=SETTLE, dispositionStatus="completed") as task:
        receipts = task.run([by_token(tokens[4:8])])
        assert statuses(receipts, "lock_token") == dict.fromkeys(tokens[4:8], "unknown")
        assert "its lock does not hold" in receipts[0]["status_description"]
        assert task.failures == 4
    assert len(standing(emulator, queue)) == 1


def test_abandoned_by_number_is_not_done_twice(deferring: Deferring, emulator: Emulator, client: ManagementClient) -> None:
    queue, numbers = deferring(6)
    emulator.faults.add(Fault("drop-connection", SETTLE, queue, when="after"))
    receipts = settle(emulator, queue, by_number(numbers), dispositionStatus="abandoned", maxBatchMessages="3")
    assert sorted(statuses(receipts).values()) == ["ok"] * 3 + ["unknown"] * 3
    with client.entity(queue) as entity:
        assert {message.delivery_count for message in entity.peek_message()} == {1}


@pytest.mark.parametrize("action", ["drop-connection", "throttle", "lose-reply"])
def test_transactions(deferring: Deferring, emulator: Emulator, action: Any) -> None:
    """A message that cannot be locked is in no transaction's way, because locks are taken before."""
    queue, numbers = deferring(12)
    emulator.faults.add(Fault(action, SETTLE, queue, seconds=0.01))
    receipts = settle(
        emulator,
        queue,
        by_number([*numbers[:10], 50]),
        transactional="true",
        maxBatchMessages="4",
        client=BRIEF if "reply" in action else None,
    )
    assert statuses(receipts) == {**dict.fromkeys(numbers[:10], "ok"), 50: "failed"}
    assert standing(emulator, queue) == numbers[10:]


# --- tasks that are tried again -----------------------------------------------------------------------------------------


def test_a_failing_attempt_gives_its_locks_back(deferring: Deferring, emulator: Emulator, client: ManagementClient) -> None:
    queue, numbers = deferring(12)
    rows = by_number(numbers)
    emulator.faults.add(Fault("fail", SETTLE, queue, count=None, status=401, condition="amqp:unauthorized-access"))
    with running(emulator, queue, rows.schema, operation=SETTLE, dispositionStatus="completed", maxBatchMessages="3") as task:
        with pytest.raises(Exception, match="fault was scripted"):
            task.run([rows])
        emulator.faults.clear()
        task.task.undo()
    with client.entity(queue) as entity:
        assert can_be_taken(entity, numbers)


def test_a_repeated_attempt_does_not_fail_for_what_the_first_settled_by_number(deferring: Deferring, emulator: Emulator) -> None:
    queue, numbers = deferring(8)
    settle(emulator, queue, by_number(numbers[:5]))
    rows = by_number(numbers)
    with running(emulator, queue, rows.schema, attempt=1, operation=SETTLE, dispositionStatus="completed") as task:
        assert statuses(task.run([rows])) == {**dict.fromkeys(numbers[:5], "unknown"), **dict.fromkeys(numbers[5:], "ok")}
        assert task.failures == 0


def test_a_repeated_attempt_cannot_tell_by_token_and_says_so(locking: Any, emulator: Emulator) -> None:
    """The lock may have ended, with the message in its place."""
    queue, _, tokens = locking(6)
    settle(emulator, queue, by_token(tokens[:2]))
    rows = by_token(tokens)
    with running(emulator, queue, rows.schema, attempt=1, operation=SETTLE, dispositionStatus="completed") as task:
        receipts = task.run([rows])
        assert statuses(receipts, "lock_token") == {**dict.fromkeys(tokens[:2], "unknown"), **dict.fromkeys(tokens[2:], "ok")}
        assert task.failures == 2


def test_locks_of_a_killed_attempt_are_waited_for(deferring: Deferring, emulator: Emulator, client: ManagementClient) -> None:
    queue, numbers = deferring(9)
    now = 0.0
    with client.entity(queue) as entity:
        held = [message.lock_token or "" for message in entity.receive_by_sequence_number(numbers[:4])]

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds
            if now >= 3:
                entity.update_disposition("deferred", held)

        patience = Patience(seconds=60, interval_s=1, clock=lambda: now, sleep=sleep)
        task = SettleTask(entity, TaskAttempt(number=1), 500, "completed", patience)
        run = TaskRun(task, entity)
        run.run([by_number(numbers)])
        assert (run.rows, run.failures.count, now) == (9, 0, 3)
    assert standing(emulator, queue) == []


def test_right_rows_and_wrong_ones(emulator: Emulator, deferring: Deferring) -> None:
    queue, numbers = deferring(2)
    typed = pa.array([[("n", {"type": "int", "value": "seven"})], [("n", {"type": "int", "value": "7"})]], TYPED_MAP)
    rows = pa.RecordBatch.from_pydict(
        {"sequence_number": pa.array(numbers), "disposition_status": pa.array(["deferred"] * 2), "properties_to_modify": typed}
    )
    receipts = {row["sequence_number"]: row for row in settle(emulator, queue, rows)}
    assert receipts[numbers[1]]["status"] == "ok"
    assert "properties_to_modify cannot be sent: 'n': " in receipts[numbers[0]]["status_description"]


# --- a killed worker ----------------------------------------------------------------------------------------------------

KILLING = """
import json, os, signal, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import spark_sb_mgmt
from spark_sb_mgmt.emulator.control import EmulatorControl

given = json.loads(sys.argv[1])
spark = SparkSession.builder.master("local[1,4]").config("spark.ui.enabled", "false").getOrCreate()
spark_sb_mgmt.register(spark)
control = EmulatorControl.connect(given["connection_string"])
killed = []

def is_our_worker(pid):
    above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    workers = all(b"pyspark.daemon\\0pyspark.worker" in Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, above))
    return workers and given["mark"].encode() in Path(f"/proc/{pid}/environ").read_bytes()

def kill():
    stop = threading.Event()
    for _ in range(1200):
        if control.requests.get("update-disposition", 0) >= given["asked"]:
            break
        stop.wait(0.05)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if is_our_worker(int(path.name)):
                os.kill(int(path.name), signal.SIGKILL)
                killed.append(path.name)
        except OSError:
            continue

thread = threading.Thread(target=kill)
thread.start()
df = spark.createDataFrame([(number,) for number in given["numbers"]], "sequence_number long").coalesce(1)
df.write.format("sbmgmt").mode("append").options(**given["options"]).save()
thread.join()
print(json.dumps({"killed": len(killed)}))
"""


def test_a_killed_worker_leaves_every_message_settled_once_and_its_locks_are_waited_for(
    deferring: Deferring, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four messages it had locked, for five seconds, when the request that settles them was held up; others it had settled."""
    queue, numbers = deferring(12, others=1, kind="brief-locks")
    monkeypatch.setenv("SBMGMT_TEST", queue)
    key = emulator.faults.add(Fault("delay", SETTLE, queue, skip=1, seconds=60.0, when="before"))
    options = {
        "connectionString": emulator.connection_string,
        "queue": queue,
        "operation": SETTLE,
        "dispositionStatus": "suspended",
        "maxBatchMessages": "4",
        "receiptsPath": str(tmp_path / "receipts"),
    }
    known = {"connection_string": emulator.connection_string, "numbers": numbers, "options": options, "mark": f"SBMGMT_TEST={queue}"}
    done = finished_driver(KILLING, {**known, "asked": emulator.requests.get(SETTLE, 0) + 2}, tmp_path)
    # The one that makes rows of Python objects, too.
    assert last_line(done)["killed"] in (1, 2)
    assert emulator.faults.hits(key) == 1
    assert emulator.counts(queue) == {"active": 1, "deferred": 0, "scheduled": 0, "locked": 0}
    assert emulator.counts(f"{queue}/$DeadLetterQueue")["active"] == 12
    rows = [row for part in (tmp_path / "receipts").glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    assert sorted(row["sequence_number"] for row in rows) == numbers
    statuses = [row["status"] for row in rows]
    assert set(statuses) == {"ok", "unknown"}
    assert statuses.count("ok") >= 4
