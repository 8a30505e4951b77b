"""Responses to Arrow: the lock-step decoder gives what the scalar one gives, and both give what the message says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_sb_mgmt.amqp import arrow_decode
from spark_sb_mgmt.amqp.arrow_decode import decode_located, decode_responses, decode_scalar, find_fields
from spark_sb_mgmt.amqp.columns import COLUMNS, DEFAULT_COLUMNS, schema
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.lockstep import PADDING, Views
from spark_sb_mgmt.amqp.message import AmqpSequence, AmqpValue, Data, Header, Message, Properties, encode_message
from spark_sb_mgmt.amqp.messages import Messages, locate
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.amqp.types import Int, Long, Map, Short, Symbol, Timestamp, UInt, ULong
from spark_sb_mgmt.errors import DecodeError
from tests.amqp import shapes

ALL = tuple(COLUMNS)
TOKEN = UUID("03020100-0504-0706-0809-0a0b0c0d0e0f")


@pytest.fixture(params=["native", "numpy"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything here holds for the compiled fields and for those by numpy; that one was not built is a failure, not a skip."""
    assert native_module() is not None
    if request.param == "numpy":
        monkeypatch.setenv("SBMGMT_NATIVE", "0")
    assert (native_module() is not None) == (request.param == "native")
    found: str = request.param
    return found


def row(message: Message, *, token: UUID | None = None, entity: str | None = "orders") -> dict[str, object]:
    """The one row of a response with this message, as the lock-step decoder gives it beside enough others, checked against the scalar."""
    filler = encode_message(Message(body=Data((b"filler",))))
    wires = [encode_message(message), *[filler] * arrow_decode.FEWEST_FOR_LOCKSTEP]
    located = locate([shapes.response(wires, [token, *[None] * (len(wires) - 1)])])
    fast = decode_located(located, ALL, entity=entity)
    assert same(fast, decode_scalar(located, ALL, entity=entity))
    found: dict[str, object] = fast.slice(0, 1).to_pylist()[0]
    return found


def same(fast: pa.RecordBatch, scalar: pa.RecordBatch) -> bool:
    fast.validate(full=True)
    assert fast.schema.equals(scalar.schema)
    for name in fast.schema.names:
        assert fast.column(name).to_pylist() == scalar.column(name).to_pylist(), name
    return True


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(shapes.messages, min_size=1, max_size=6),
    st.integers(0, 2**32),
    st.lists(st.sampled_from(ALL), unique=True, max_size=8) | st.just(list(ALL)),
)
def test_lock_step_equals_scalar_message_by_message(messages: list[Message], seed: int, names: list[str]) -> None:
    choice = Random(seed)
    wires = [shapes.encode_message_any_width(message, choice) for message in messages] * 2
    # The same messages again in the one canonical form: shapes repeat, as they do in a queue.
    wires += [encode_message(choice.choice(messages)) for _ in range(arrow_decode.FEWEST_FOR_LOCKSTEP)]
    tokens = [choice.choice([None, UUID(int=choice.getrandbits(128))]) for _ in wires]
    half = len(wires) // 2
    responses = [
        shapes.response(wires[:half], tokens[:half], choice),
        shapes.response([], choice=choice),
        shapes.response(wires[half:], tokens[half:], choice),
    ]
    located = locate(responses)
    assert same(decode_located(located, names, entity="q"), decode_scalar(located, names, entity="q"))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(shapes.messages, min_size=1, max_size=3), st.integers(0, 2**32), st.sampled_from([DEFAULT_COLUMNS, ("body",)]))
def test_damaged_messages_give_the_same_rows_or_the_same_error(messages: list[Message], seed: int, names: tuple[str, ...]) -> None:
    choice = Random(seed)
    wires = [encode_message(choice.choice(messages)) for _ in range(arrow_decode.FEWEST_FOR_LOCKSTEP)]
    for _ in range(choice.randrange(1, 4)):
        index = choice.randrange(len(wires))
        damaged = bytearray(wires[index])
        for _ in range(choice.randrange(1, 3)):
            if damaged:
                damaged[choice.randrange(len(damaged))] = choice.choice([0, 0x40, 0x45, 0x53, 0xFF, choice.randrange(256)])
        wires[index] = bytes(damaged[: choice.choice([len(damaged), choice.randrange(len(damaged) + 1)])])
    located = locate([shapes.response(wires)])
    expected, fast = _outcome(decode_scalar, located, names), _outcome(decode_located, located, names)
    if isinstance(expected, pa.RecordBatch):
        assert isinstance(fast, pa.RecordBatch)
        assert same(fast, expected)
    else:
        assert fast == expected


def _outcome(decode: Callable[..., pa.RecordBatch], located: Messages, names: tuple[str, ...]) -> pa.RecordBatch | tuple[object, ...]:
    """What came out, or which message is wrong where."""
    try:
        return decode(located, names)
    except DecodeError as problem:
        return problem.message, problem.offset, problem.problem


def test_usual_messages_do_not_need_the_scalar_decoder() -> None:
    """The fast path would pass every test above by always stepping aside."""
    messages = [
        Message(
            header=Header(durable=True, ttl=1000, delivery_count=index % 3),
            message_annotations=Map(
                [(Symbol("x-opt-sequence-number"), Long(index)), (Symbol("x-opt-enqueued-time"), Timestamp(index))][:: (-1) ** index]
            ),
            properties=Properties(message_id=f"m{index}" if index % 2 else UUID(int=index), subject="s" if index % 3 else None),
            application_properties=Map([("n", Int(index)), ("d", 1.5), ("t", Timestamp(index)), ("u", UUID(int=1))][: index % 5]),
            body=[Data((b"x" * index,)), AmqpValue("text"), None][index % 3],
        )
        for index in range(100)
    ]
    located = locate([shapes.response([encode_message(message) for message in messages])])
    assert not find_fields(located, DEFAULT_COLUMNS).slow.any()


def test_every_column_of_a_full_message() -> None:
    message = Message(
        header=Header(durable=True, priority=4, ttl=60_000, delivery_count=2),
        message_annotations=Map(
            [
                (Symbol("x-opt-sequence-number"), Long(7)),
                (Symbol("x-opt-enqueue-sequence-number"), Long(3)),
                (Symbol("x-opt-enqueued-time"), Timestamp(1_700_000_000_123)),
                (Symbol("x-opt-scheduled-enqueue-time"), Timestamp(1_700_000_001_000)),
                (Symbol("x-opt-locked-until"), Timestamp(1_700_000_002_000)),
                (Symbol("x-opt-partition-key"), "pk"),
                (Symbol("x-opt-via-partition-key"), "vpk"),
                (Symbol("x-opt-deadletter-source"), "origin"),
                (Symbol("x-opt-message-state"), Int(1)),
            ]
        ),
        properties=Properties(
            message_id="id",
            to="to",
            subject="label",
            reply_to="reply",
            correlation_id=ULong(2**64 - 1),
            content_type="text/plain",
            group_id="session",
            reply_to_group_id="other",
        ),
        application_properties=Map([("DeadLetterReason", "r"), ("DeadLetterErrorDescription", "d"), ("n", Short(-5)), ("z", None)]),
        body=Data((b"one", b"two")),
    )
    found = row(message, token=TOKEN)
    times = {name: found[name].isoformat() for name in ("enqueued_time", "scheduled_enqueue_time", "locked_until", "expires_at")}  # type: ignore[attr-defined]
    assert times == {
        "enqueued_time": "2023-11-14T22:13:20.123000+00:00",
        "scheduled_enqueue_time": "2023-11-14T22:13:21+00:00",
        "locked_until": "2023-11-14T22:13:22+00:00",
        "expires_at": "2023-11-14T22:14:20.123000+00:00",
    }
    assert {name: found[name] for name in DEFAULT_COLUMNS if name not in times} == {
        "entity": "orders",
        "sequence_number": 7,
        "enqueued_sequence_number": 3,
        "message_id": "id",
        "session_id": "session",
        "partition_key": "pk",
        "via_partition_key": "vpk",
        "correlation_id": "18446744073709551615",
        "subject": "label",
        "to": "to",
        "reply_to": "reply",
        "reply_to_session_id": "other",
        "content_type": "text/plain",
        "time_to_live_ms": 60_000,
        "delivery_count": 2,
        "state": "deferred",
        "dead_letter_source": "origin",
        "dead_letter_reason": "r",
        "dead_letter_error_description": "d",
        "lock_token": str(TOKEN),
        "application_properties": [("DeadLetterReason", "r"), ("DeadLetterErrorDescription", "d"), ("n", "-5"), ("z", None)],
        "body": b"onetwo",
        "body_type": "data",
    }
    assert found["amqp_message"] == encode_message(message)
    assert found["typed_properties"] == [
        ("DeadLetterReason", {"type": "string", "value": "r"}),
        ("DeadLetterErrorDescription", {"type": "string", "value": "d"}),
        ("n", {"type": "short", "value": "-5"}),
        ("z", {"type": "null", "value": None}),
    ]
    assert found["header"] == [
        ("durable", {"type": "boolean", "value": "true"}),
        ("priority", {"type": "ubyte", "value": "4"}),
        ("ttl", {"type": "uint", "value": "60000"}),
        ("delivery-count", {"type": "uint", "value": "2"}),
    ]


def test_bare_minimum_message_is_a_row_of_nulls() -> None:
    found = row(Message(), entity=None)
    assert {name for name, value in found.items() if value is not None} == {"state", "amqp_message"}
    assert found["state"] == "active"


@pytest.mark.parametrize(
    ("body", "expected", "kind"),
    [
        (Data((b"",)), b"", "data"),
        (AmqpValue("text"), b"\xa1\x04text", "value"),
        (AmqpValue(None), b"\x40", "value"),
        (AmqpValue(Map([("k", Int(1))])), encode_value(Map([("k", Int(1))])), "value"),
        (AmqpSequence(((Int(1), "a"), ())), encode_value((Int(1), "a")) + encode_value(()), "sequence"),
    ],
)
def test_bodies_of_every_kind(body: Data | AmqpValue | AmqpSequence, expected: bytes, kind: str) -> None:
    found = row(Message(body=body))
    assert (found["body"], found["body_type"]) == (expected, kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Timestamp(-62_135_596_800_000), None),
        (Timestamp(-62_135_596_799_999), "0001-01-01T00:00:00.001000+00:00"),
        (Timestamp(253_402_300_799_999), "9999-12-31T23:59:59.999000+00:00"),
        (Timestamp(253_402_300_800_000), None),
        (Timestamp(2**63 - 1), None),
        (Long(1000), "1970-01-01T00:00:01+00:00"),
        (ULong(2**64 - 1), None),
        ("text", None),
    ],
)
def test_a_time_that_a_timestamp_cannot_hold_is_null_and_stands_in_its_section(value: object, expected: str | None) -> None:
    found = row(Message(message_annotations=Map([(Symbol("x-opt-enqueued-time"), value)])))
    shown = found["enqueued_time"]
    assert (None if shown is None else shown.isoformat()) == expected  # type: ignore[attr-defined]
    assert found["message_annotations"] == [("x-opt-enqueued-time", _typed(value))]


@pytest.mark.parametrize(
    ("value", "expected"), [(Long(-1), -1), (ULong(2**63), None), (ULong(2**63 - 1), 2**63 - 1), (True, None), (1.5, None), ("7", None)]
)
def test_an_integer_that_a_column_cannot_hold_is_null_and_stands_in_its_section(value: object, expected: int | None) -> None:
    found = row(Message(message_annotations=Map([(Symbol("x-opt-sequence-number"), value)])))
    assert found["sequence_number"] == expected
    assert found["message_annotations"] == [("x-opt-sequence-number", _typed(value))]


def test_a_delivery_count_beyond_an_int_is_null_and_stands_in_the_header() -> None:
    found = row(Message(header=Header(delivery_count=UInt(2**31))))
    assert found["delivery_count"] is None
    assert found["header"] == [("delivery-count", {"type": "uint", "value": "2147483648"})]


def test_a_state_without_a_name_is_shown_as_it_is() -> None:
    assert row(Message(message_annotations=Map([(Symbol("x-opt-message-state"), Int(9))])))["state"] == "9"


def test_text_that_is_not_utf8_is_shown_escaped_and_kept_in_its_section() -> None:
    broken = b"a\xff".decode("utf-8", "surrogateescape")
    found = row(Message(properties=Properties(message_id=broken), application_properties=Map([("k", broken)])))
    assert found["message_id"] == r"a\xff"
    assert found["application_properties"] == [("k", r"a\xff")]
    assert found["properties"] == [("message-id", {"type": "string;base64", "value": "Yf8="})]


@pytest.mark.parametrize(
    ("ttl", "created", "expires", "expected"),
    [
        (1000, None, None, 1000),
        (1000, 5, 9_000_000_000_005, 1000),
        (2**32 - 1, 5, 9_000_000_000_005, 9_000_000_000_000),
        (2**32 - 1, None, 5, 2**32 - 1),
        (None, 5, 105, 100),
        (None, None, None, None),
        (None, -(2**63), 2**63 - 1, None),
    ],
)
def test_time_to_live_beyond_the_header(ttl: int | None, created: int | None, expires: int | None, expected: int | None) -> None:
    message = Message(header=Header(ttl=ttl), properties=Properties(creation_time=created, absolute_expiry_time=expires))
    assert row(message)["time_to_live_ms"] == expected


def test_a_lock_token_annotation_serves_where_the_response_has_none() -> None:
    message = Message(delivery_annotations=Map([(Symbol("x-opt-lock-token"), TOKEN)]))
    assert row(message)["lock_token"] == str(TOKEN)
    assert row(message, token=UUID(int=1))["lock_token"] == str(UUID(int=1))


@pytest.mark.parametrize("names", [ALL, ALL[::-1], ("body", "entity"), ("sequence_number",), ()])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_batches_have_exactly_the_asked_columns(names: tuple[str, ...], count: int) -> None:
    wires = [encode_message(Message(body=Data((b"x",))))] * count
    batch = decode_responses([shapes.response(wires)], names)
    assert batch.schema.equals(schema(names))
    assert batch.num_rows == count


def test_no_responses_and_answers_without_a_body_are_no_rows() -> None:
    no_content = encode_message(Message(application_properties=Map([("statusCode", Int(204))])))
    null_body = encode_message(Message(body=AmqpValue(None)))
    no_list = encode_message(Message(body=AmqpValue(Map([("skip", Int(0))]))))
    assert decode_responses([]).num_rows == 0
    assert decode_responses([no_content, null_body, no_list]).num_rows == 0


@pytest.mark.parametrize("count", [1, 100])
def test_an_error_names_the_message_and_the_byte_within_it(count: int) -> None:
    good = encode_message(Message(body=Data((b"x",))))
    bad = b"\x00\x53\x75\xa0\x09x"
    with pytest.raises(DecodeError, match=rf"binary needs 9 bytes where 1 are left \(at message {count}, byte 5\)") as caught:
        decode_responses([shapes.response([good] * count), shapes.response([bad])])
    assert (caught.value.message, caught.value.offset) == (count, 5)


def test_sections_nobody_asked_for_are_not_decoded() -> None:
    """Also not by the scalar decoder: a damaged section that no column needs is no error."""
    broken_properties = b"\x00\x53\x74\xc1\x03\x02\xff\xff" + b"\x00\x53\x75\xa0\x01x"
    for count in (1, 100):
        responses = [shapes.response([broken_properties] * count)]
        assert decode_responses(responses, ["body"]).column("body").to_pylist() == [b"x"] * count
        with pytest.raises(DecodeError):
            decode_responses(responses, ["application_properties"])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda entry: entry[:-1], "end at byte"),
        (lambda entry: b"\xd1\xff\xff\xff\xff" + entry[5:], "end at byte"),
        (lambda entry: b"\xd1\xff", "cut off"),
        (lambda entry: b"\x54\x01", r"map must stand here, not 0x54 \(at message 0, byte 0\)"),
        (lambda entry: b"\xc1\x01\x00", "has no `message`"),
        (lambda entry: encode_value(Map([("message", "text")])), "is a binary"),
        (lambda entry: encode_value(Map([("message", b""), ("lock-token", "text")])), "is a uuid"),
    ],
)
def test_a_damaged_messages_list_is_one_clear_error(damage: object, problem: str) -> None:
    wire = encode_message(Message(body=Data((b"x" * 300,))))
    entry = encode_value(Map([("message", wire)]))
    assert entry[0] == 0xD1
    body = encode_value("messages") + b"\xd0" + (4 + len(damaged := damage(entry))).to_bytes(4, "big") + b"\x00\x00\x00\x01" + damaged  # type: ignore[operator]
    whole = b"\x00\x53\x77\xd1" + (4 + len(body)).to_bytes(4, "big") + b"\x00\x00\x00\x02" + body
    with pytest.raises(DecodeError, match=problem):
        decode_responses([whole])


def test_more_bytes_than_one_batch_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_sb_mgmt.amqp.messages.MAX_BATCH_BYTES", 100)
    with pytest.raises(ValueError, match="give fewer at once"):
        decode_responses([bytes(101)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(2**32 - 1)
@given(st.integers(129, 2**32 - 1))
def test_a_count_of_billions_is_no_loop(count: int) -> None:
    bomb = b"\x00\x53\x74\xd1\x00\x00\x00\x04" + count.to_bytes(4, "big")
    good = encode_message(Message(body=Data((b"x",))))
    with pytest.raises(DecodeError, match="message 60"):
        decode_responses([shapes.response([good] * 60 + [bomb])])


def _typed(value: object) -> dict[str, str | None]:
    from spark_sb_mgmt.amqp.typed_text import to_typed

    kind, text = to_typed(value)
    return {"type": kind, "value": text}


def test_numpy_sees_unaligned_numbers_as_they_are() -> None:
    views = Views(b"\x00\x01\x02\x03\x04\x05\x06\x07\x08" + PADDING)
    assert views.u32[np.array([1])][0] == 0x01020304
    assert views.read(0x81, np.array([1])).tolist() == [0x0102030405060708]  # type: ignore[union-attr]


def test_messages_without_a_byte_are_rows_too() -> None:
    assert decode_responses([shapes.response([b""] * 100)], ["body", "state"]).to_pylist() == [{"body": None, "state": "active"}] * 100


def test_bytes_in_a_messages_list_of_no_entries_are_one_clear_error() -> None:
    """Found by fuzzing: there is no last entry to point at."""
    items = b"\xa1\x08messages" + b"\xd0\x00\x00\x00\x06\x00\x00\x00\x00\x40\x40"
    with pytest.raises(DecodeError, match=r"the 0 entries of the messages list end at byte 31, the list itself at 33 \(at byte 31\)"):
        decode_responses([b"\x00\x53\x77\xd1" + (4 + len(items)).to_bytes(4, "big") + b"\x00\x00\x00\x02" + items])
