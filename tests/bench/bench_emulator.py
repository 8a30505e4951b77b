"""How fast the emulator answers peeks, what scheduling and cancelling cost it, and what a stored message costs it in memory.

The emulator is a process of its own. The client is as thin as can be, so that it is not what is measured: requests are encoded once, and of
the answers only the heads of frames are looked at. The rate by the clock depends on who else uses the machine, and on the client, which
shares it; the rate per second of the server's own processor time does not. Of writes only that is looked at.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.servicebus._pyamqp import performatives
from proton import Message, int32

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Int
from spark_sb_mgmt.operations.envelope import Request, encode_request
from spark_sb_mgmt.operations.schedule import ScheduledMessage, cancel_scheduled_message, schedule_message
from tests.bench.figures import Figure
from tests.emulator.server.peer import DEADLINE_S, message, peek_body
from tests.emulator.server.program import Program
from tests.emulator.server.raw import BATCH, FLOW, RawClient, attach_frame, batch, frame, made, transfer

MESSAGES: Final = 100_000
BODY: Final = 1024
PAGE, IN_FLIGHT = 250, 8
# Of writes: messages in all, messages of a request, and how often all are scheduled and cancelled.
WRITES, WRITE_BATCH, ROUNDS = 100_000, 500, 4
SECONDS: Final = 5.0
# What azure-servicebus offers, and what .NET does.
FRAME_SIZES: Final = {"1 MB frames": 1024 * 1024, "64 KB frames": 65536}
RATE, MAX_BYTES_PER_MESSAGE = 250_000.0, 3 * 1024
SCHEDULE_US, CANCEL_US = 4.0, 0.7
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": [{"Name": "q", "Properties": {"MaxMessageSizeInKilobytes": 1024}}]}]}}
_ANSWER, _MORE = 0x14, 5


class Usage(NamedTuple):
    """Of a process: seconds of processor time, user and system, and bytes of memory."""

    seconds: float
    memory: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


class NodeClient(RawClient):
    """Has the links for requests to the queue's node, and for their answers."""

    def __init__(self, sock: socket.socket, max_frame_size: int) -> None:
        super().__init__(sock, max_frame_size=max_frame_size)
        node = "q/$management"
        sock.sendall(attach_frame(0, node, receives=True))
        flow = made(
            performatives.FlowFrame,
            next_incoming_id=0,
            incoming_window=2**31 - 1,
            next_outgoing_id=0,
            outgoing_window=2**31 - 1,
            handle=0,
            delivery_count=0,
            link_credit=2**31 - 1,
        )
        sock.sendall(frame(flow))
        self.attach(node, 1)
        # What came with the credit, so that from here on every frame is seen from its start.
        tail = self.received[self.received.index(FLOW) - 8 :]
        missing = int.from_bytes(tail[:4], "big") - len(tail)
        if missing > 0:
            sock.recv(missing, socket.MSG_WAITALL)


class PeekClient(NodeClient):
    """Keeps peeks in flight and throws the answers away."""

    def __init__(self, sock: socket.socket, max_frame_size: int) -> None:
        super().__init__(sock, max_frame_size)
        self._requests = [request(1 + start) for start in range(0, MESSAGES, PAGE)]
        self._buffer = bytearray(1 << 20)
        self._asked = 0
        self._bytes = 0

    def ask(self) -> None:
        payload = self._requests[self._asked % len(self._requests)]
        self.sock.sendall(transfer(self._asked, payload, handle=1))
        self._asked += 1

    def peek_for(self, seconds: float) -> int:
        """How many answers came in that time."""
        for _ in range(IN_FLIGHT):
            self.ask()
        answers, skip, held = 0, 0, b""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            size = self.sock.recv_into(self._buffer)
            assert size, "the emulator closed the connection"
            self._bytes += size
            if skip >= size:
                skip -= size
                continue
            data = held + self._buffer[skip:size]
            at = 0
            # Enough of a frame to see whether it is the last of an answer.
            while len(data) - at >= 64 or (len(data) - at >= 8 and len(data) - at >= int.from_bytes(data[at : at + 4], "big")):
                frame_size = int.from_bytes(data[at : at + 4], "big")
                if is_end_of_answer(bytes(data[at : at + min(frame_size, 64)])):
                    answers += 1
                    self.ask()
                at += frame_size
            held, skip = (bytes(data[at:]), 0) if at <= len(data) else (b"", at - len(data))
        assert self._bytes >= answers * PAGE * BODY, "answers were not full pages"
        return answers


class WriteClient(NodeClient):
    """Sends requests that were encoded before, some of them at a time."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, FRAME_SIZES["64 KB frames"])
        self._asked = 0
        self._held = b""

    def ask(self, requests: Sequence[bytes]) -> None:
        """All are answered, with a success, when this returns."""
        waiting = 0
        for payload in requests:
            self.sock.sendall(transfer_in_frames(self._asked, payload, handle=1, message_format=0))
            self._asked += 1
            waiting += 1
            while waiting >= IN_FLIGHT:
                waiting -= self._answers()
        while waiting:
            waiting -= self._answers()

    def _answers(self) -> int:
        """How many there are of what has come since."""
        data = self.sock.recv(1 << 16)
        assert data, "the emulator closed the connection"
        data = self._held + data
        at = found = 0
        while len(data) - at >= 8 and len(data) - at >= (size := int.from_bytes(data[at : at + 4], "big")):
            if is_end_of_answer(data[at : at + 64]):
                assert _SUCCESS in data[at : at + size], data[at : at + size]
                found += 1
            at += size
        self._held = data[at:]
        return found


_SUCCESS: Final = encode_value("statusCode") + encode_value(Int(200))


def is_end_of_answer(head: bytes) -> bool:
    if head[10:11] != bytes((_ANSWER,)):
        return False
    fields = head[13 + 1 :] if head[11] == 0xC0 else head[11 + 9 :]
    at = 0
    count = head[13] if head[11] == 0xC0 else int.from_bytes(head[16:20], "big")
    values: list[Any] = []
    for _ in range(min(count, _MORE + 1)):
        value, at = decode_value(fields, at, len(fields))
        values.append(value)
    return len(values) <= _MORE or values[_MORE] is not True


def request(start: int) -> bytes:
    body = peek_body(PAGE, start)
    properties = {"operation": "com.microsoft:peek-message", "com.microsoft:server-timeout": int32(60000)}
    return bytes(Message(id="a request", reply_to="q/$management", properties=properties, body=body).encode())


def encoded(request: Request[Any]) -> bytes:
    return encode_request(request, "a request", "q/$management", 60_000)


def schedule_requests() -> list[bytes]:
    """As the Spark writer sends them. A few that are sent over and over: the emulator does not look for duplicates."""
    tomorrow = int(time.time() + 86_400) * 1000
    return [
        encoded(
            schedule_message(
                ScheduledMessage(
                    bytes(BODY),
                    tomorrow,
                    f"order-{index:08d}",
                    subject="order.created",
                    content_type="application/json",
                    application_properties={"region": "west-europe"},
                )
                for index in range(start, start + WRITE_BATCH)
            )
        )
        for start in range(0, 10 * WRITE_BATCH, WRITE_BATCH)
    ]


def cancel_requests(first: int) -> list[bytes]:
    """The numbers of a new queue count from one."""
    return [encoded(cancel_scheduled_message(range(start, start + WRITE_BATCH))) for start in range(first, first + WRITES, WRITE_BATCH)]


def fill(program: Program) -> None:
    """Messages as an SDK sends them, a batch at a time."""
    with RawClient(connected(program)) as client:
        client.attach("q")
        for number, start in enumerate(range(0, MESSAGES, 500)):
            encoded = (message(bytes(BODY), id=f"message-{index:08d}") for index in range(start, start + 500))
            client.sock.sendall(transfer_in_frames(number, batch(*encoded)))
    with program.peer() as peer:
        deadline = time.monotonic() + DEADLINE_S
        while peer.request("q", "peek-message", peek_body(1, MESSAGES)).status != 200:
            assert time.monotonic() < deadline, "the queue does not fill"


def transfer_in_frames(number: int, payload: bytes, handle: int = 0, message_format: int = BATCH) -> bytes:
    size = 60_000
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    first = transfer(number, pieces[0], message_format=message_format, handle=handle, more=len(pieces) > 1, settled=True)
    rest = [made(performatives.TransferFrame, handle=handle, more=piece is not pieces[-1], payload=piece) for piece in pieces[1:]]
    return first + b"".join(map(frame, rest))


def connected(program: Program) -> socket.socket:
    return socket.create_connection(("127.0.0.1", program.port), DEADLINE_S)


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        pid = program.ready().process.pid
        empty = Usage.of(pid)
        fill(program)
        for name, max_frame_size in FRAME_SIZES.items():
            with PeekClient(connected(program), max_frame_size) as client:
                before, start = Usage.of(pid), time.monotonic()
                received = PAGE * client.peek_for(SECONDS)
                taken, after = time.monotonic() - start, Usage.of(pid)
            busy = after.seconds - before.seconds
            case = f"emulator peek, {name}"
            yield Figure(case, "messages/s", received / taken, RATE)
            yield Figure(case, "messages/s of one server core", received / busy, RATE)
            yield Figure(case, "server cores in use", busy / taken)
        # With what answers keep of each message, once all were peeked.
        memory = (Usage.of(pid).memory - empty.memory) / MESSAGES
        yield Figure("emulator memory", "bytes per stored message of 1 KB", memory)
        yield Figure("emulator memory", "3 KB / that", MAX_BYTES_PER_MESSAGE / memory, 1.0)
    with tempfile.TemporaryDirectory() as folder, Program(CONFIG, Path(folder)) as program:
        yield from _writes(program.ready())


def _writes(program: Program) -> Iterator[Figure]:
    pid = program.process.pid
    schedules = (schedule_requests() * (WRITES // WRITE_BATCH))[: WRITES // WRITE_BATCH]
    schedule_s: list[float] = []
    cancel_s: list[float] = []
    with WriteClient(connected(program)) as client:
        for first in range(1, 1 + ROUNDS * WRITES, WRITES):
            for requests, seconds in ((schedules, schedule_s), (cancel_requests(first), cancel_s)):
                before = Usage.of(pid).seconds
                client.ask(requests)
                seconds.append(Usage.of(pid).seconds - before)
    for case, seconds, target in (("emulator schedule, 1 KB", schedule_s, SCHEDULE_US), ("emulator cancel", cancel_s, CANCEL_US)):
        # All of them and not the best: the clock of processor time ticks too slowly for few.
        value = sum(seconds) / (ROUNDS * WRITES) * 1e6
        yield Figure(case, "server us per message", value)
        yield Figure(case, f"{target:g} us / that", target / value, 1.0)
