"""The messages of several responses as places in one buffer: what every columnar decoder starts from.

The one rule: one buffer, one entry a message, in the order of the responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import byteorder

import numpy as np

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.lockstep import PADDING, Ints, Views
from spark_sb_mgmt.amqp.response import find_entries, read_entry
from spark_sb_mgmt.errors import DecodeError

# Arrow's binary and string columns have 32-bit offsets.
MAX_BATCH_BYTES = 2**31 - 1 - len(PADDING)


@dataclass(frozen=True)
class Messages:
    """The encoded messages of some responses, as places in one buffer that ends in PADDING."""

    buffer: bytes
    start: Ints
    end: Ints
    # Where the 16 bytes of the lock token start, or -1.
    token: Ints

    def __len__(self) -> int:
        return len(self.start)


def locate(responses: Sequence[bytes]) -> Messages:
    """Find every message of these responses. An error in a response counts its offset from the start of that response, one in an
    entry of the messages list from the start of that entry."""
    size = sum(map(len, responses))
    if size > MAX_BATCH_BYTES:
        raise ValueError(f"{size} bytes of responses are more than one batch can hold ({MAX_BATCH_BYTES}): give fewer at once")
    starts: list[Ints] = []
    ends: list[Ints] = []
    base = 0
    for response in responses:
        bounds = find_entries(response) + base
        starts.append(bounds[:-1])
        ends.append(bounds[1:])
        base += len(response)
    none: list[Ints] = [np.empty(0, np.int64)]
    buffer = b"".join([*responses, PADDING])
    return _entries(buffer, np.concatenate(starts or none), np.concatenate(ends or none))


# What an entry of a peek answer begins with, as every encoder seen writes it; `map32` with its size and count, str8 "message", binary32.
_ENTRY_KEY = int.from_bytes(b"\xa1\x07messag", byteorder)


def _entries(buffer: bytes, entry_start: Ints, entry_end: Ints) -> Messages:
    count = len(entry_start)
    token = np.full(count, -1, np.int64)
    if count == 0:
        return Messages(buffer, entry_start, entry_end, token)
    views = Views(buffer)
    start, end = entry_start.copy(), entry_end.copy()
    # The plain shape, for all at once: map32 of one pair, "message" and a binary32 that fills the entry.
    plain = (views.u8[entry_start] == c.MAP_32) & (views.u32[entry_start + 5] == 2)
    plain &= (views.words[entry_start + 9] == _ENTRY_KEY) & (views.u8[entry_start + 17] == ord("e"))
    plain &= views.u8[entry_start + 18] == c.BINARY_32
    plain &= entry_start + 23 + views.u32[entry_start + 19] == entry_end
    start += 23
    for index in (~plain).nonzero()[0]:
        at = int(entry_start[index])
        try:
            first, last, token_at = read_entry(buffer, at, int(entry_end[index]))
        except DecodeError as problem:
            raise DecodeError(problem.problem, problem.offset - at, message=int(index)) from None
        start[index], end[index], token[index] = first, last, -1 if token_at is None else token_at
    return Messages(buffer, start, end, token)
