"""Transfers before proton sees them: batches told from messages, and numbers put in sequence, however the stream is cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.types import Described
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.emulator.server.frames import FrameSplitter
from tests.emulator.server.peer import Peer, eventually, message, peeked
from tests.emulator.server.raw import (
    AMQP_HEADER,
    BATCH,
    RawClient,
    attach_frame,
    batch,
    begin_frame,
    frame,
    further,
    open_frame,
    transfer,
)

MAX_FRAME = 65536
SPLIT = [batch(message(b"a"), message(b"b"))[:20], batch(message(b"a"), message(b"b"))[20:60], batch(message(b"a"), message(b"b"))[60:]]
BATCH_FRAMES = [
    transfer(1, SPLIT[0], message_format=BATCH, more=True),
    further(SPLIT[1], more=True),
    further(SPLIT[2], more=False),
]


def pieces(stream: bytes, cuts: list[int]) -> list[tuple[bytes, int]]:
    splitter = FrameSplitter(MAX_FRAME)
    bounds = [0, *sorted(cuts), len(stream)]
    return [(bytes(piece.data), piece.message_format) for start, end in pairwise(bounds) for piece in splitter.split(stream[start:end])]


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_the_first_frame_of_a_batch_is_found_wherever_the_stream_is_cut(width: int) -> None:
    before = AMQP_HEADER + open_frame() + begin_frame() + attach_frame(0, "q") + transfer(0, message(b"single"))
    stream = before + b"".join(BATCH_FRAMES) + transfer(2, message(b"after"))
    for cut in range(len(stream)):
        found = pieces(stream, [min(cut + step, len(stream)) for step in range(width)])
        assert b"".join(data for data, _ in found) == stream
        assert [(data, code) for data, code in found if code] == [(BATCH_FRAMES[0], BATCH)]


def test_byte_by_byte_the_same_is_found() -> None:
    stream = AMQP_HEADER + open_frame() + b"".join(BATCH_FRAMES)
    found = pieces(stream, list(range(1, len(stream))))
    assert b"".join(data for data, _ in found) == stream
    assert [data for data, code in found if code] == [BATCH_FRAMES[0]]


Made = Callable[[int], tuple[bytes, int]]
PAYLOADS = st.binary(max_size=300)
TRANSFERS: st.SearchStrategy[Made] = st.builds(
    lambda payload, code: lambda number: (transfer(number, payload, message_format=code), code), PAYLOADS, st.sampled_from([0, BATCH, 1])
)
OTHERS: st.SearchStrategy[Made] = st.one_of(
    st.builds(lambda payload: lambda _: (further(payload, more=True), 0), PAYLOADS),
    st.sampled_from([(frame(None), 0), (attach_frame(3, "q"), 0), (open_frame(), 0)]).map(lambda made: lambda _: made),
)
CUTS = st.lists(st.integers(0, 2000), max_size=12)


@given(st.lists(st.one_of(TRANSFERS, OTHERS), max_size=12), st.integers(0, 2**32 - 1), CUTS)
def test_bytes_are_only_cut_and_every_transfer_of_a_format_comes_alone(made: list[Made], first: int, cuts: list[int]) -> None:
    numbers = count(first)
    # Only transfers differ by their number, and so only they are counted.
    frames = [make(next(numbers) % 2**32) if make(0) != make(1) else make(0) for make in made]
    stream = AMQP_HEADER + b"".join(data for data, _ in frames)
    found = pieces(stream, [min(cut, len(stream)) for cut in cuts])
    assert b"".join(data for data, _ in found) == stream
    assert [piece for piece in found if piece[1]] == [each for each in frames if each[1]]


@given(st.lists(st.tuples(TRANSFERS, st.integers(0, 2**32 - 1)), min_size=1, max_size=12), CUTS)
def test_deliveries_out_of_sequence_get_the_number_that_is_due(made: list[tuple[Made, int]], cuts: list[int]) -> None:
    first = made[0][1]
    stream = AMQP_HEADER + b"".join(make(number)[0] for make, number in made)
    found = pieces(stream, [min(cut, len(stream)) for cut in cuts])
    # Other forms of the same number are as good: what is there is compared by what proton's peer would read.
    expected = [make((first + index) % 2**32) for index, (make, _) in enumerate(made)]
    assert [_without_tag(data) for data in _frames(b"".join(data for data, _ in found)[8:])] == [_without_tag(data) for data, _ in expected]
    assert [code for _, code in found if code] == [code for _, code in expected if code]


def _frames(stream: bytes) -> list[bytes]:
    frames = []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        assert len(stream) >= size, "a frame says more than there is"
        frames.append(stream[:size])
        stream = stream[size:]
    return frames


def _without_tag(data: bytes) -> tuple[list[object], bytes]:
    """The fields of a transfer, but for its tag, which `transfer` makes of the number; and the payload."""
    fields, end = decode_value(data, 8)
    assert isinstance(fields, Described)
    assert isinstance(fields.value, tuple)
    return [*fields.value[:2], *fields.value[3:]], data[end:]


def test_numbers_are_counted_for_each_session_and_a_new_one_begins_anywhere() -> None:
    def of(channel: int, data: bytes) -> bytes:
        return data[:6] + channel.to_bytes(2, "big") + data[8:]

    one, two = of(0, transfer(7, b"a")), of(1, transfer(900, b"b"))
    again = of(0, begin_frame())
    stream = AMQP_HEADER + one + two + of(0, transfer(8, b"c")) + of(1, transfer(901, b"d")) + again + of(0, transfer(3, b"e"))
    assert b"".join(data for data, _ in pieces(stream, [])) == stream


def test_a_transfer_whose_frames_all_repeat_its_number_keeps_one_number(emulator: Emulator) -> None:
    whole = message(b"long" * 100)
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q")
        client.sock.sendall(transfer(0, message(b"first")))
        # Out of sequence, so that a number is made for it.
        client.sock.sendall(transfer(0, whole[:50], more=True) + transfer(0, whole[50:99], more=True) + transfer(0, whole[99:]))
        client.sock.sendall(transfer(2, message(b"last")))
        eventually(lambda: emulator.counts("q")["active"] == 3)
        assert peeked(peer, "q") == [b"first", b"long" * 100, b"last"]


def test_a_client_whose_threads_share_a_link_keeps_its_connection(emulator: Emulator) -> None:
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q")
        numbers = [0, 1, 1, 4, 3, 5]
        client.sock.sendall(b"".join(transfer(number, message(b"%d" % index)) for index, number in enumerate(numbers)))
        eventually(lambda: emulator.counts("q")["active"] == len(numbers))
        assert peeked(peer, "q") == [b"%d" % index for index in range(len(numbers))]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_what_cannot_be_understood_is_passed_on_as_it_is(stream: bytes, cuts: list[int]) -> None:
    splitter = FrameSplitter(MAX_FRAME)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    passed = b"".join(bytes(piece.data) for start, end in pairwise(bounds) for piece in splitter.split(stream[start:end]))
    assert stream.startswith(passed)
    # What is held back is less than a frame.
    assert len(stream) - len(passed) < MAX_FRAME


def test_a_batch_cut_in_two_at_every_byte_is_stored_message_by_message(emulator: Emulator) -> None:
    whole = b"".join(BATCH_FRAMES)
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q")
        sent = 0
        for cut in range(1, len(whole), 3):
            numbered = transfer(sent, SPLIT[0], message_format=BATCH, more=True) + b"".join(BATCH_FRAMES[1:])
            client.sock.sendall(numbered[:cut])
            # The server has had a turn in between: it has answered somebody else.
            peeked(peer, "other")
            client.sock.sendall(numbered[cut:])
            sent += 1
        eventually(lambda: emulator.counts("q")["active"] >= 2 * sent)
        assert peeked(peer, "q", 250) == [b"a", b"b"] * sent


def test_batches_and_messages_in_turn_on_two_links_are_not_mixed_up(emulator: Emulator) -> None:
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q", 0)
        client.attach("other", 1)
        payload = batch(message(b"a"), message(b"b"))
        client.sock.sendall(
            transfer(0, payload[:30], message_format=BATCH, more=True, handle=0)
            + transfer(1, message(b"single"), handle=1)
            + further(payload[30:], more=False, handle=0)
            + transfer(2, message(b"c"), handle=0)
            + transfer(3, batch(message(b"d")), message_format=BATCH, handle=1)
        )
        eventually(lambda: emulator.counts("other")["active"] == 2 and emulator.counts("q")["active"] == 3)
        assert (peeked(peer, "q"), peeked(peer, "other")) == ([b"a", b"b", b"c"], [b"single", b"d"])


@pytest.mark.parametrize(
    ("payload", "message_format", "condition"),
    [
        (b"\x00\x53\x75\xa0\x03abc", BATCH, b"amqp:decode-error"),
        (b"no sections", BATCH, b"amqp:decode-error"),
        (b"", BATCH, b"amqp:decode-error"),
        (message(b"a"), 77, b"amqp:decode-error"),
    ],
)
def test_a_batch_that_is_none_is_rejected_whole(emulator: Emulator, payload: bytes, message_format: int, condition: bytes) -> None:
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q")
        client.sock.sendall(transfer(0, payload, message_format=message_format))
        client.read_until(condition)
        assert peeked(peer, "q") == []


def test_a_batch_of_which_one_message_cannot_be_taken_leaves_none(emulator: Emulator) -> None:
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("sessions")
        client.sock.sendall(transfer(0, batch(message(b"a", group_id="s"), message(b"b")), message_format=BATCH))
        client.read_until(b"amqp:not-allowed")
        assert peeked(peer, "sessions") == []


def test_batches_of_the_official_sdk_over_many_frames(emulator: Emulator) -> None:
    with ServiceBusClient.from_connection_string(emulator.connection_string) as client, client.get_queue_sender("large") as sender:
        sender.send_messages([ServiceBusMessage(b"%d" % number + b"x" * 20_000) for number in range(40)])
    with Peer.connect(emulator) as peer:
        assert [body.rstrip(b"x") for body in peeked(peer, "large", 40)] == [b"%d" % number for number in range(40)]
