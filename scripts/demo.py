"""`make demo`: a day in a small shop. Its queues are filled by the official SDK, as an application would; then Spark does what nobody could
do before: looks at all of it in parallel, schedules and cancels by the thousand, and recovers what was deferred.

Every number at the end is checked against what the shop knows of itself; a wrong one makes the command fail.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f

import spark_sb_mgmt
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import shop, traffic
from spark_sb_mgmt.sample.shop import Day

DAY = Day(handled=800, waiting=10_000, late=40, scheduled=250)
# Deferred orders wait for their money; today it came for those below this.
PAID_BELOW = 100
BAR = 40


def main() -> int:
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder, Emulator.start(shop.CONFIG) as emulator:
        with step("Filling the shop's queues on the embedded emulator, through azure-servicebus"):
            traffic.fill(emulator.connection_string, DAY, lambda what: print(f"    {what}", flush=True))
        with step("Starting Spark"):
            spark = start_spark()
        try:
            run(ServiceBus(spark, emulator.connection_string), Path(folder), checks)
        finally:
            spark.stop()
        checks.add("the emulator's own count of the queue", states_of(emulator), expected_states())
    return checks.report()


def run(bus: ServiceBus, folder: Path, checks: Checks) -> None:
    with step("Peeking the queue and its dead-letter queue in parallel"):
        found = bus.peek(entityPath=f"{shop.ORDERS},{shop.DEAD_LETTERS}").cache()
        rows = found.count()
    print(f"    {rows:,} messages in {found.rdd.getNumPartitions()} Spark tasks; nothing was locked, nothing has changed\n")
    stuck = found.where("state = 'deferred' OR dead_letter_reason IS NOT NULL").orderBy("message_id")
    columns = ["entity", "sequence_number", "state", "message_id", "dead_letter_reason", "dead_letter_error_description"]
    stuck.select(columns).show(6, truncate=44)

    queue = found.where(f.col("entity") == shop.ORDERS)
    states = counts(queue, "state")
    reasons = counts(found.where(f.col("entity") == shop.DEAD_LETTERS), "dead_letter_reason")
    chart("Messages by state", states)
    chart("Dead letters by reason", reasons)
    checks.add("messages by state", states, DAY.states)
    checks.add("dead letters by reason", reasons, DAY.reasons)
    checks.add("what the waiting orders are worth", round(worth(queue.where("state = 'active'")), 2), waiting_worth())

    with step("Scheduling a reminder for every waiting order, from a DataFrame"):
        reminders = queue.where("state = 'active'").select(
            "message_id",
            f.lit("order.reminder").alias("subject"),
            f.col("body"),
            f.col("application_properties")["country"].alias("country"),
            (f.current_timestamp() + f.expr("INTERVAL 1 DAY")).alias("scheduled_enqueue_time"),
        )
        receipts = str(folder / "scheduled")
        reminders = reminders.withColumn("order", f.col("message_id")).withColumn("message_id", f.concat(f.lit("reminder-"), "message_id"))
        bus.write(reminders, "schedule-message", propertyColumns="country", rowKey="order", receiptsPath=receipts).save()
    scheduled = bus.spark.read.parquet(receipts).cache()
    print(f"    {scheduled.count():,} receipts, one for each row, with the number by which it can be cancelled\n")
    scheduled.orderBy("sequence_number").select("row_key", "message_id", "sequence_number", "status").show(3, truncate=False)
    checks.add("receipts of the reminders", counts(scheduled, "status"), {"ok": DAY.waiting})

    with step("Cancelling those of the customers in the US, by their receipts"):
        countries = queue.select(f.col("message_id").alias("row_key"), f.col("application_properties")["country"].alias("country"))
        cancelled = scheduled.join(countries, "row_key").where("country = 'US'").select("sequence_number")
        bus.write(cancelled, "cancel-scheduled-message", receiptsPath=str(folder / "cancelled")).save()
    cancelled_receipts = bus.spark.read.parquet(str(folder / "cancelled"))
    print(f"    {cancelled_receipts.count():,} cancelled\n")
    checks.add("receipts of the cancelled", counts(cancelled_receipts, "status"), {"ok": len(american())})

    with step(f"Recovering the deferred orders whose money has come (those below {PAID_BELOW}), by their sequence numbers"):
        total = f.get_json_object(f.col("body").cast("string"), "$.total").cast("double")
        paid = bus.peek(queue=shop.ORDERS, states="deferred").where(total < PAID_BELOW).select("sequence_number")
        bus.write(paid, "update-disposition", dispositionStatus="completed", receiptsPath=str(folder / "recovered")).save()
    recovered = bus.spark.read.parquet(str(folder / "recovered"))
    print(f"    {recovered.count():,} locked and completed in one step each; the others stay deferred\n")
    checks.add("receipts of the recovered", counts(recovered, "status"), {"ok": len(paid_orders())})

    with step("Looking again"):
        again = bus.peek(queue=shop.ORDERS)
        checks.add("messages by state, in the end", counts(again, "state"), expected_states())


class ServiceBus:
    """`spark.read` and `df.write` on one namespace."""

    def __init__(self, spark: SparkSession, connection_string: str) -> None:
        self.spark = spark
        self.connection_string = connection_string

    def peek(self, **options: str) -> DataFrame:
        return self.spark.read.format("sbmgmt").option("connectionString", self.connection_string).options(**options).load()

    def write(self, rows: DataFrame, operation: str, **options: str) -> DataFrameWriter:
        writer = rows.write.format("sbmgmt").mode("append").option("connectionString", self.connection_string)
        return writer.option("queue", shop.ORDERS).option("operation", operation).options(**options)


def start_spark() -> SparkSession:
    # Else Spark wonders aloud which address of this machine to take.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("sbmgmt-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark_sb_mgmt.register(spark)
    return spark


# --- what must come out -------------------------------------------------------------------------------------------------


def american() -> list[int]:
    return [order.number for order in DAY.orders() if DAY.fate(order)[0] == shop.WAITING and order.country == "US"]


def paid_orders() -> list[int]:
    return [order.number for order in DAY.orders() if DAY.fate(order)[0] == shop.DEFERRED and order.total < PAID_BELOW]


def waiting_worth() -> float:
    return round(sum(order.total for order in DAY.orders() if DAY.fate(order)[0] == shop.WAITING), 2)


def expected_states() -> dict[str, int]:
    states = DAY.states
    states["scheduled"] += DAY.waiting - len(american())
    states["deferred"] -= len(paid_orders())
    return states


# --- what comes out -----------------------------------------------------------------------------------------------------


def counts(rows: DataFrame, column: str) -> dict[str, int]:
    return {row[0]: row[1] for row in rows.groupBy(column).count().collect()}


def worth(orders: DataFrame) -> float:
    total: Column = f.get_json_object(f.col("body").cast("string"), "$.total").cast("double")
    row = orders.select(f.sum(total)).first()
    return float(row[0]) if row is not None else 0.0


def states_of(emulator: Emulator) -> dict[str, int]:
    found = emulator.counts(shop.ORDERS)
    return {state: found[state] for state in ("active", "deferred", "scheduled")}


class Checks:
    """What was found beside what must have been. One that differs is remembered, and the command fails."""

    def __init__(self) -> None:
        self._all: list[tuple[str, Any, Any]] = []

    def add(self, what: str, found: Any, expected: Any) -> None:
        self._all.append((what, found, expected))

    def report(self) -> int:
        print("Checked against what the shop knows of itself")
        for what, found, expected in self._all:
            print(f"  {'ok   ' if found == expected else 'WRONG'} {what:42} {shown(found)}")
            if found != expected:
                print(f"        must be {shown(expected)}")
        wrong = sum(found != expected for _, found, expected in self._all)
        print(f"\n{len(self._all) - wrong} of {len(self._all)} numbers are right.", flush=True)
        return 1 if wrong else 0


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count:,} {name}" for name, count in sorted(value.items()))
    return f"{value:,}"


def chart(title: str, bars: dict[str, int]) -> None:
    print(title)
    longest = max(bars.values(), default=1)
    for name, count in sorted(bars.items(), key=lambda bar: -bar[1]):
        print(f"  {name:22} {'█' * max(1, round(BAR * count / longest)):{BAR}} {count:>7,}")
    print()


@contextmanager
def step(what: str) -> Iterator[None]:
    print(f"▸ {what} ...", flush=True)
    started = time.perf_counter()
    yield
    print(f"  {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
