"""`make demo`: what works today, on messages that proton wrote. Every number shown is checked; a wrong one ends in an error.

The codec's whole way: an outsider (proton's own Message) writes a day of orders as the service would hand them out in peek responses,
our codec decodes the responses into Arrow columns inside Spark tasks, and Spark counts them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator

import proton
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.spark.schema import message_schema

MESSAGES, PAGE, PARTITIONS = 20_000, 250, 4
STATES = ("active", "active", "active", "deferred", "scheduled")
REASONS = (None, None, None, "MaxDeliveryCountExceeded", "TTLExpiredException", "BadAddress")


def order(number: int) -> proton.Message:
    """One message as the service hands it out: annotated by the broker, dead-lettered now and then."""
    state, reason = STATES[number % len(STATES)], REASONS[number % len(REASONS)]
    properties: dict[str, object] = {"region": ("north", "south", "west")[number % 3], "items": proton.int32(number % 7)}
    if reason:
        properties["DeadLetterReason"] = reason
    return proton.Message(
        inferred=True,
        body=f'{{"order": {number}, "total": {number % 500}.50}}'.encode(),
        id=f"order-{number:06d}",
        subject="order.created",
        content_type="application/json",
        properties=properties,
        annotations={
            proton.symbol("x-opt-sequence-number"): number,
            proton.symbol("x-opt-enqueued-time"): proton.timestamp(1_700_000_000_000 + number * 1000),
            proton.symbol("x-opt-message-state"): proton.int32(("active", "deferred", "scheduled").index(state)),
        },
    )


def peek_response(first: int) -> bytes:
    """A page of a peek, written by proton from beginning to end."""
    page = [{"message": bytes(order(number).encode())} for number in range(first, first + PAGE)]
    response = proton.Message(body={"messages": page}, properties={"statusCode": proton.int32(200)}, correlation_id="1")
    return bytes(response.encode())


def decode_pages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield decode_responses(batch.column("response").to_pylist(), DEFAULT_COLUMNS, entity="orders/$DeadLetterQueue")


def chart(title: str, counts: dict[str, int]) -> None:
    print(f"\n{title}")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {name:26} {'█' * max(1, round(40 * count / max(counts.values())))} {count:,}")


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"demo: {what} is {found!r}, and must be {expected!r}")


def main() -> None:
    print(f"Writing {MESSAGES:,} messages as peek responses with proton ...", flush=True)
    pages = [(peek_response(first),) for first in range(0, MESSAGES, PAGE)]
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("sbmgmt-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    responses = spark.createDataFrame(pages, "response binary").repartition(PARTITIONS)

    way = "compiled code" if native_module() is not None else "numpy"
    print(f"Decoding them in {PARTITIONS} Spark tasks into {len(DEFAULT_COLUMNS)} columns, by {way} ...", flush=True)
    start = time.perf_counter()
    messages = responses.mapInArrow(decode_pages, message_schema()).cache()
    count = messages.count()
    print(f"{count:,} rows in {time.perf_counter() - start:.1f} s, Spark's own start included\n")
    messages.orderBy("sequence_number").select(
        "sequence_number", "message_id", "state", "enqueued_time", "dead_letter_reason", "application_properties"
    ).show(5, truncate=False)

    states = {row.state: row["count"] for row in messages.groupBy("state").count().collect()}
    reasons = {
        row.dead_letter_reason: row["count"]
        for row in messages.dropna(subset=["dead_letter_reason"]).groupBy("dead_letter_reason").count().collect()
    }
    chart("States", states)
    chart("Dead-letter reasons", reasons)
    worth = messages.select(f.sum(f.get_json_object(f.col("body").cast("string"), "$.total").cast("double"))).first()

    check("the number of rows", count, MESSAGES)
    check("the count by state", states, dict(Counter(STATES[number % len(STATES)] for number in range(MESSAGES))))
    check("the count by reason", reasons, dict(Counter(filter(None, (REASONS[number % len(REASONS)] for number in range(MESSAGES))))))
    check("the sum of all orders", worth and worth[0], sum(number % 500 + 0.5 for number in range(MESSAGES)))
    check("the number of different messages", messages.select("sequence_number").distinct().count(), MESSAGES)
    spark.stop()
    print("\nAll of these numbers were checked.")


if __name__ == "__main__":
    main()
