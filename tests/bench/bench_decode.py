"""Decoding peek answers: ours into Arrow, against what an SDK does for one message at a time, and a plain copy of the bytes.

One process, one run, the ways in turn: figures are ratios taken side by side, because these machines are noisy. The outsiders only decode;
ours also finds the messages in the responses and builds every column.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from random import Random
from uuid import UUID

import proton
from azure.servicebus._pyamqp._decode import decode_payload

from spark_sb_mgmt.amqp.arrow_decode import decode_responses, decode_scalar
from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.encode import encode_described, encode_list, encode_map, encode_value
from spark_sb_mgmt.amqp.message import AMQP_VALUE, AmqpValue, Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.messages import locate
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.amqp.types import Int, Long, Map, Symbol, Timestamp, ULong, Value
from tests.bench.figures import Figure

BATCH, PAGE, ROUNDS = 2_000, 250, 15
FEW_COLUMNS = ("sequence_number", "enqueued_time", "message_id", "state")


def uniform(index: int, size: int) -> Message:
    """A message of an order system with sessions, as Service Bus hands it out."""
    return Message(
        header=Header(durable=True, ttl=86_400_000, delivery_count=1),
        message_annotations=Map(
            [
                (Symbol("x-opt-enqueued-time"), Timestamp(1_700_000_000_000 + index)),
                (Symbol("x-opt-sequence-number"), Long(1_000_000 + index)),
                (Symbol("x-opt-enqueue-sequence-number"), Long(1_000_000 + index)),
                (Symbol("x-opt-partition-key"), f"customer-{index % 997:05d}"),
                (Symbol("x-opt-message-state"), Int(index % 3)),
            ]
        ),
        properties=Properties(
            message_id=f"order-{index:08d}",
            to="orders",
            subject="order.created",
            reply_to="replies",
            correlation_id=f"flow-{index:08d}",
            content_type="application/json",
            group_id=f"customer-{index % 997:05d}",
        ),
        application_properties=Map(
            [("region", "west-europe"), ("source", f"shop-{index % 40}"), ("items", Int(index % 50)), ("express", index % 2 == 0)]
        ),
        body=Data((bytes(size),)),
    )


def mixed(index: int, size: int, choice: Random) -> Message:
    """Sections missing, annotations in any order, ids and properties of many types, another kind of body now and then."""
    annotations: list[tuple[Value, Value]] = list(uniform(index, 0).message_annotations or Map())
    choice.shuffle(annotations)
    extra: list[tuple[str, Value]] = [
        ("price", index / 7),
        ("when", Timestamp(1_700_000_000_000 + index)),
        ("batch", UUID(int=index)),
        ("flag", index % 2 == 0),
        ("note", "n" * (index % 40)),
    ]
    choice.shuffle(extra)
    return Message(
        header=choice.choice([None, Header(ttl=5000), Header(durable=True, delivery_count=index % 5)]),
        message_annotations=Map(annotations[: choice.randrange(2, 5)]),
        properties=choice.choice(
            [
                None,
                Properties(message_id=UUID(int=index)),
                Properties(message_id=ULong(index), subject="s"),
                Properties(message_id=f"m{index}", group_id=f"session-{index % 9}", content_type="text/plain"),
            ]
        ),
        application_properties=choice.choice([None, Map(extra[: choice.randrange(5)])]),
        body=AmqpValue("x" * min(size, 200)) if index % 50 == 0 else Data((bytes(size),)),
    )


def response(wires: list[bytes]) -> bytes:
    """The answer to a peek, its entries as the service writes them."""
    entries = []
    for wire in wires:
        entry = encode_value("message") + b"\xb0" + len(wire).to_bytes(4, "big") + wire
        entries.append(b"\xd1" + (4 + len(entry)).to_bytes(4, "big") + (2).to_bytes(4, "big") + entry)
    envelope = Message(properties=Properties(correlation_id=ULong(1)), application_properties=Map([("statusCode", Int(200))]))
    return encode_message(envelope) + encode_described(AMQP_VALUE, encode_map([encode_value("messages"), encode_list(entries)]))


def seconds(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best time of each way, the ways taken in turn so that a slow stretch of the machine meets them all."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in taken.items()}


def decode_each_with_proton(wires: list[bytes]) -> None:
    for wire in wires:
        proton.Message().decode(wire)


def decode_each_with_azure(wires: list[bytes]) -> None:
    for wire in wires:
        decode_payload(memoryview(wire))


def decode_by_numpy(responses: list[bytes]) -> None:
    """Without the compiled part: what a cluster has that got the package as plain Python."""
    os.environ["SBMGMT_NATIVE"] = "0"
    try:
        decode_responses(responses, DEFAULT_COLUMNS, entity="orders")
    finally:
        del os.environ["SBMGMT_NATIVE"]


def run() -> Iterator[Figure]:
    yield Figure("decode", "compiled part is there (1) or not (0)", float(native_module() is not None))
    choice = Random(1)
    for size, label in ((100, "100 B"), (1_024, "1 KB"), (16_384, "16 KB")):
        for shape in ("uniform", "mixed"):
            messages = [uniform(i, size) if shape == "uniform" else mixed(i, size, choice) for i in range(BATCH)]
            wires = [encode_message(message) for message in messages]
            responses = [response(wires[at : at + PAGE]) for at in range(0, BATCH, PAGE)]
            located = locate(responses)
            ways: dict[str, Callable[[], object]] = {
                "ours": lambda responses=responses: decode_responses(responses, DEFAULT_COLUMNS, entity="orders"),  # type: ignore[misc]
                "ours, numpy": lambda responses=responses: decode_by_numpy(responses),  # type: ignore[misc]
                "ours, 4 columns": lambda responses=responses: decode_responses(responses, FEW_COLUMNS),  # type: ignore[misc]
                "azure-servicebus": lambda wires=wires: decode_each_with_azure(wires),  # type: ignore[misc]
                "proton.Message": lambda wires=wires: decode_each_with_proton(wires),  # type: ignore[misc]
                "copy": lambda wires=wires: b"".join(wires),  # type: ignore[misc]
            }
            if size == 1_024:
                ways["ours, scalar"] = lambda located=located: decode_scalar(located, DEFAULT_COLUMNS, entity="orders")  # type: ignore[misc]
            taken = seconds(ways)
            case = f"decode {label} {shape}"
            for name, time_taken in taken.items():
                yield Figure(case, f"{name}: us per message", time_taken / BATCH * 1e6)
            target = {("1 KB", "uniform"): (8.0, 15.0), ("1 KB", "mixed"): (5.0, None)}.get((label, shape), (None, None))
            yield Figure(case, "azure-servicebus / ours", taken["azure-servicebus"] / taken["ours"], target[0])
            yield Figure(case, "azure-servicebus / ours, numpy", taken["azure-servicebus"] / taken["ours, numpy"])
            yield Figure(case, "proton.Message / ours", taken["proton.Message"] / taken["ours"], target[1])
            few = 2.0 if (label, shape) == ("1 KB", "uniform") else None
            yield Figure(case, "ours, all columns / 4 columns", taken["ours"] / taken["ours, 4 columns"], few)
