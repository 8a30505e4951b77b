"""A queue filled with a million messages in the time that the emulator takes to accept them.

The one rule: what is sent is what an SDK would send, a batch at a time; only the making of it costs nothing. All messages are one message
whose id counts up.
"""

from __future__ import annotations

import socket
import time
from typing import Final

import numpy as np

from tests.bench.bench_emulator import transfer_in_frames
from tests.emulator.server.peer import peek_body
from tests.emulator.server.program import Program
from tests.emulator.server.raw import RawClient

BATCH: Final = 500
# Of a link that nobody reads from, less than the credit it starts with.
_BATCHES_OF_A_LINK: Final = 900
_DIGITS: Final = 8
# What stands for the number in the message that all are made of.
NUMBER: Final = "#" * _DIGITS
_TIMEOUT_S: Final = 300.0


def fill(program: Program, queue: str, encoded: bytes, count: int) -> None:
    """Send `count` messages like this one, `NUMBER` in it counting from 0; they are there when this returns."""
    entry = b"\x00\x53\x75\xb0" + len(encoded).to_bytes(4, "big") + encoded
    at = entry.index(NUMBER.encode())
    entries = np.tile(np.frombuffer(entry, np.uint8), (BATCH, 1))
    with RawClient(socket.create_connection(("127.0.0.1", program.port))) as client:
        for batch, start in enumerate(range(0, count, BATCH)):
            link, place = divmod(batch, _BATCHES_OF_A_LINK)
            if not place:
                client.attach(queue, link)
            numbers = np.arange(start, min(count, start + BATCH))
            for digit in range(_DIGITS):
                entries[: len(numbers), at + _DIGITS - 1 - digit] = ord("0") + numbers // 10**digit % 10
            client.sock.sendall(transfer_in_frames(batch, entries[: len(numbers)].tobytes(), link))
        # With the connection open: what it still holds would be lost with it.
        with program.peer() as peer:
            deadline = time.monotonic() + _TIMEOUT_S
            while peer.request(queue, "peek-message", peek_body(1, count)).status != 200:
                assert time.monotonic() < deadline, f"{queue} does not fill"
                time.sleep(0.2)
