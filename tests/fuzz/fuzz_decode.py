"""Coverage-guided fuzzing of the decoders with atheris: `python -m tests.fuzz.fuzz_decode TARGET [libFuzzer options] [corpus]`.

Targets: `value`, `message`, `batch`, `sender` (what the emulator reads of a sender's message and of a request: the compiled and the scalar
way must agree), `responses` (a management response into Arrow columns) and `columns` (one message among many: the compiled, the numpy and
the scalar way must agree); the last two need pyarrow and numpy beside atheris.

A decoder returns, or raises DecodeError with an offset inside the buffer; what it returns can be written and read again; time and
memory are libFuzzer's limits (-timeout, -rss_limit_mb). Anything else is a finding: libFuzzer leaves its bytes in a file crash-*, and
they become a case of tests/amqp/test_hostile.py. Not part of `make test`: it has no end.

Without a corpus it starts from one message of each kind, so that the first minutes are not spent on finding 0x00 0x53.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import atheris

with atheris.instrument_imports(include=["spark_sb_mgmt"]):
    from spark_sb_mgmt.amqp.decode import decode_value
    from spark_sb_mgmt.amqp.encode import encode_value
    from spark_sb_mgmt.amqp.message import (
        AmqpSequence,
        AmqpValue,
        Data,
        Header,
        Message,
        Properties,
        decode_batch,
        decode_message,
        encode_batch,
        encode_message,
    )
    from spark_sb_mgmt.amqp.types import Array, Described, Float, Int, Long, Map, Symbol, Timestamp, ULong
    from spark_sb_mgmt.errors import DecodeError


def value(wire: bytes) -> None:
    found, after = decode_value(wire)
    assert 0 < after <= len(wire)
    canonical = encode_value(found)
    again, end = decode_value(canonical)
    assert end == len(canonical)
    assert encode_value(again) == canonical


def message(wire: bytes) -> None:
    canonical = encode_message(decode_message(wire))
    assert encode_message(decode_message(canonical)) == canonical


def batch(wire: bytes) -> None:
    for encoded in decode_batch(wire):
        message(encoded)


def sender() -> Callable[[bytes], None]:
    with atheris.instrument_imports(include=["spark_sb_mgmt"]):
        from spark_sb_mgmt.amqp.native import native_sender
        from spark_sb_mgmt.emulator.entities.message import read_by_values, read_message
        from spark_sb_mgmt.emulator.management.bodies import Body
        from spark_sb_mgmt.emulator.management.envelope import read_request
        from spark_sb_mgmt.emulator.management.scheduling import read_scheduled
    if native_sender() is None:
        sys.exit("the compiled reader is not built for this Python: there is nothing to compare")

    def outcome(act: Callable[[], Any]) -> str:
        try:
            return repr(act())
        except Exception as problem:
            return f"{type(problem).__name__} {problem}"

    def compare(wire: bytes) -> None:
        os.environ["SBMGMT_NATIVE"] = "1"
        assert outcome(lambda: read_message(wire)) == outcome(lambda: read_by_values(wire))
        found = []
        for way in ("1", "0"):
            os.environ["SBMGMT_NATIVE"] = way
            found.append(outcome(lambda: read_scheduled(Body(read_request(wire).body, "the body"))))
        assert found[0] == found[1]

    return compare


def responses() -> Callable[[bytes], None]:
    # Imported only for this target, because of what it needs.
    with atheris.instrument_imports(include=["spark_sb_mgmt"]):
        from spark_sb_mgmt.amqp.arrow_decode import decode_responses
    return lambda wire: decode_responses([wire])


def columns() -> Callable[[bytes], None]:
    with atheris.instrument_imports(include=["spark_sb_mgmt"]):
        from spark_sb_mgmt.amqp.arrow_decode import FEWEST_FOR_LOCKSTEP, decode_located, decode_scalar
        from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
        from spark_sb_mgmt.amqp.messages import locate
        from spark_sb_mgmt.amqp.native import native_module
    if native_module() is None:
        sys.exit("the compiled decoder is not built for this Python: there is nothing to compare")
    filler = Map([("message", encode_message(Message(body=Data((b"filler",)))))])
    names = (*DEFAULT_COLUMNS, "amqp_message")

    def outcome(decode: Callable[..., Any], located: Any) -> Any:
        try:
            return [decode(located, names).column(name).to_pylist() for name in names]
        except DecodeError as problem:
            return problem.message, problem.offset, problem.problem

    def compare(wire: bytes) -> None:
        among = (Map([("message", wire)]), *[filler] * FEWEST_FOR_LOCKSTEP)
        located = locate([encode_message(Message(body=AmqpValue(Map([("messages", among)]))))])
        expected = outcome(decode_scalar, located)
        for way in ("1", "0"):
            os.environ["SBMGMT_NATIVE"] = way
            assert outcome(decode_located, located) == expected, f"SBMGMT_NATIVE={way}"

    return compare


TARGETS: dict[str, Callable[[], Callable[[bytes], Any]]] = {
    "value": lambda: value,
    "message": lambda: message,
    "batch": lambda: batch,
    "sender": sender,
    "responses": responses,
    "columns": columns,
}


def seeds(target: str) -> list[bytes]:
    """Small inputs that reach every part of the decoder."""
    values: list[Any] = [
        (None, True, Int(300), Long(-1), ULong(0), 1.5, Float(2.5), Timestamp(5), UUID(int=7), b"b", "s" * 300, Symbol("y")),
        Map([("k", Array("long", [1, 2])), (Symbol("d"), Described(ULong(0x24), ()))]),
        Array("list", [(Int(1),), ()], Symbol("of")),
        Array("array", [Array("string", ["a", "b" * 300]), Array("boolean", [True])]),
        Array("map", [Map([("a", None)])]),
    ]
    if target == "value":
        return [encode_value(each) for each in values]
    messages = [
        encode_message(
            Message(
                header=Header(durable=True, priority=4, ttl=1, delivery_count=2),
                delivery_annotations=Map([(Symbol("x-opt-lock-token"), UUID(int=9))]),
                message_annotations=Map([(Symbol("x-opt-sequence-number"), Long(5)), (Symbol("x-opt-enqueued-time"), Timestamp(6))]),
                properties=Properties(message_id="m", correlation_id=ULong(7), content_type="c", creation_time=8, group_id="g"),
                application_properties=Map([("a", Int(1)), ("b", "two")]),
                body=body,
                footer=Map(),
            )
        )
        for body in (Data((b"x", b"y")), AmqpSequence(((Int(1),), ())), *(AmqpValue(each) for each in values))
    ]
    if target in ("message", "columns"):
        return messages
    if target == "sender":
        entries = tuple(Map([("message-id", "m"), ("message", wire)]) for wire in messages[:2])
        return [*messages, encode_message(Message(body=AmqpValue(Map([("messages", entries)]))))]
    if target == "batch":
        return [encode_batch(messages[:2])]
    listed = tuple(Map([("message", wire), ("lock-token", UUID(int=3))]) for wire in messages)
    return [encode_message(Message(application_properties=Map([("statusCode", Int(200))]), body=AmqpValue(Map([("messages", listed)]))))]


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"say what to fuzz: {', '.join(TARGETS)}")
    target = sys.argv.pop(1)
    decode = TARGETS[target]()

    def one_input(wire: bytes) -> None:
        try:
            decode(wire)
        except DecodeError as problem:
            if not 0 <= problem.offset <= len(wire):
                raise AssertionError("an offset outside the buffer") from problem

    with tempfile.TemporaryDirectory() as corpus:
        for number, wire in enumerate(seeds(target)):
            (Path(corpus) / f"seed-{number}").write_bytes(wire)
        atheris.Setup([*sys.argv, corpus], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
