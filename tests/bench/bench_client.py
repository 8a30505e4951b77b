"""How fast `peek_range` reads: against the azure-servicebus SDK's peek loop, against the bytes alone, and over a long way.

Messages are those of `bench_decode`, sent to an emulator and peeked from it, so that answers are a service's own. Then they are replayed by
a process that only sends bytes: it does not slow down who reads faster, as the emulator does, which shares the machine's cores. One run,
the ways in turn, the best of each: these machines are noisy. Every way counts the messages that it got.
"""

from __future__ import annotations

import dataclasses
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from azure.servicebus import ServiceBusClient

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.columns import DEFAULT_COLUMNS
from spark_sb_mgmt.amqp.message import encode_message
from spark_sb_mgmt.client import EntityClient, ManagementClient, PeekPage
from spark_sb_mgmt.operations.envelope import read_response
from tests.bench.bench_decode import uniform
from tests.bench.bench_emulator import CONFIG, connected, transfer_in_frames
from tests.bench.delaying_relay import delaying
from tests.bench.figures import Figure
from tests.bench.replay_service import Pages, replaying
from tests.emulator.server.program import Program
from tests.emulator.server.raw import RawClient, batch

QUEUE: Final = "q"
MESSAGES, PAGE, DEPTH = 20_000, 250, 8
# The SDK is given fewer: it is slow enough to be measured by them.
SDK_MESSAGES: Final = 5_000
BODY: Final = 1024
# A fast way takes 40 ms: of many rounds one meets a quiet machine. Over the long way a round takes seconds.
ROUNDS, FAR_ROUNDS = 15, 5
# Pages whose messages are decoded together, as a reader does it.
PAGES_PER_BATCH: Final = 16
# What .NET offers, and what azure-servicebus does.
FRAME_SIZES: Final = {"64 KB frames": 65536, "1 MB frames": 1024 * 1024}
ROUND_TRIP_S: Final = 0.02
# To reach.
AGAINST_SDK, DEPTH_8_AGAINST_1 = 12.0, 7.0


def connection_string(port: int) -> str:
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"


# --- the messages -------------------------------------------------------------------------------------------------------


def fill(program: Program) -> None:
    """Send the messages without what the broker is to write into them."""
    with RawClient(connected(program)) as client:
        client.attach(QUEUE)
        for number, start in enumerate(range(0, MESSAGES, PAGE)):
            messages = (dataclasses.replace(uniform(index, BODY), message_annotations=None) for index in range(start, start + PAGE))
            client.sock.sendall(transfer_in_frames(number, batch(*map(encode_message, messages))))
    with ManagementClient.from_connection_string(program.connection_string) as opened:
        deadline = time.monotonic() + 60
        while opened.entity(QUEUE).highest_sequence_number() != MESSAGES:
            assert time.monotonic() < deadline, "the queue does not fill"


def recorded(client: EntityClient) -> Pages:
    """The body of the answer for each page."""
    pages = {}
    for page in client.peek_range(1, MESSAGES + 1, PAGE, DEPTH):
        assert page.is_whole
        assert len(page) == PAGE
        at = read_response(page.response).body_offset
        assert at is not None
        # With the descriptor of the amqp-value section before it.
        pages[page.from_sequence_number] = page.response[at - 3 :]
    assert len(pages) == MESSAGES // PAGE
    return pages


# --- the ways to read them ----------------------------------------------------------------------------------------------


def peek_raw(client: EntityClient, depth: int = DEPTH) -> int:
    return sum(map(len, client.peek_range(1, MESSAGES + 1, PAGE, depth)))


def peek_into_arrow(client: EntityClient) -> int:
    """Every column of every message."""
    count = 0
    held: list[PeekPage] = []
    for page in client.peek_range(1, MESSAGES + 1, PAGE, DEPTH):
        held.append(page)
        if len(held) == PAGES_PER_BATCH:
            count += decode_responses([one.response for one in held], DEFAULT_COLUMNS, entity=QUEUE).num_rows
            held = []
    return count + (decode_responses([one.response for one in held], DEFAULT_COLUMNS, entity=QUEUE).num_rows if held else 0)


def peek_by_sdk(receiver: Any) -> int:
    """As its documentation does it: the next page from behind the last message."""
    count, start = 0, 1
    while count < SDK_MESSAGES:
        messages = receiver.peek_messages(PAGE, sequence_number=start)
        count += len(messages)
        start = messages[-1].sequence_number + 1
    return count


def read_bare(port: int, buffer: bytearray) -> int:
    """The same bytes, looked at by nobody; of each page only its length."""
    pages = MESSAGES // PAGE
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(bytes(DEPTH))
        for number in range(pages):
            left = int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "big")
            while left:
                left -= sock.recv_into(buffer, min(left, len(buffer)))
            if number + DEPTH < pages:
                sock.sendall(b"\0")
    return MESSAGES


def rates(ways: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Messages a second of each way, its best round."""
    best = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            count = way()
            best[name] = max(best[name], count / (time.perf_counter() - start))
    return best


# --- figures ------------------------------------------------------------------------------------------------------------


def against_others(case: str, text: str, bare_port: int | None, target: float | None) -> Iterator[Figure]:
    with (
        ManagementClient.from_connection_string(text) as client,
        client.entity(QUEUE) as ours,
        ServiceBusClient.from_connection_string(text) as sdk,
        sdk.get_queue_receiver(QUEUE) as receiver,
    ):
        ways: dict[str, Callable[[], int]] = {
            "peek_range, raw": lambda: peek_raw(ours),
            "peek_range, into Arrow": lambda: peek_into_arrow(ours),
            "azure-servicebus": lambda: peek_by_sdk(receiver),
        }
        if bare_port is not None:
            buffer = bytearray(1 << 20)
            ways["bare sockets"] = lambda: read_bare(bare_port, buffer)
        rate = rates(ways, ROUNDS)
    for name, value in rate.items():
        yield Figure(case, f"{name}: messages/s", value)
    yield Figure(case, "raw / azure-servicebus", rate["peek_range, raw"] / rate["azure-servicebus"], target)
    yield Figure(case, "into Arrow / azure-servicebus", rate["peek_range, into Arrow"] / rate["azure-servicebus"], target)
    if bare_port is not None:
        yield Figure(case, "bare sockets / raw", rate["bare sockets"] / rate["peek_range, raw"])


def over_a_long_way(port: int) -> Iterator[Figure]:
    case = f"client, {ROUND_TRIP_S * 1000:g} ms round trip"
    with delaying(port, ROUND_TRIP_S) as far, ManagementClient.from_connection_string(connection_string(far)) as client:
        ours = client.entity(QUEUE)
        ways: dict[str, Callable[[], int]] = {
            str(depth): lambda depth=depth: peek_raw(ours, depth)  # type: ignore[misc]
            for depth in (1, DEPTH, 4 * DEPTH)
        }
        rate = rates(ways, FAR_ROUNDS)
    for depth, value in rate.items():
        yield Figure(case, f"depth {depth}: messages/s", value)
    yield Figure(case, f"depth {DEPTH} / depth 1", rate[str(DEPTH)] / rate["1"], DEPTH_8_AGAINST_1)


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        fill(program.ready())
        with ManagementClient.from_connection_string(program.connection_string) as client:
            pages = recorded(client.entity(QUEUE))
        yield from against_others("client of the emulator", program.connection_string, None, None)
    for name, max_frame_size in FRAME_SIZES.items():
        with replaying(pages, max_frame_size) as (port, bare_port):
            yield from against_others(f"client, {name}", connection_string(port), bare_port, AGAINST_SDK)
    with replaying(pages, FRAME_SIZES["64 KB frames"]) as (port, _):
        yield from over_a_long_way(port)
