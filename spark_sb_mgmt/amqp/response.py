"""The answer to peek-message and receive-by-sequence-number: where its messages lie (request-response document; wire-facts.md, 1.1).

The one rule: find, do not decode. A response is an amqp-value map with a `messages` list of maps, each with the wire-encoded `message` and
perhaps a `lock-token`; what is found here is offsets into the response's own bytes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812

import numpy as np
import numpy.typing as npt

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value, skip_value
from spark_sb_mgmt.amqp.message import AMQP_VALUE, read_descriptor
from spark_sb_mgmt.amqp.native import native_module
from spark_sb_mgmt.errors import DecodeError

_SIZE_COUNT = Struct(">II").unpack_from
_U32 = Struct(">I").unpack_from


def find_entries(response: bytes) -> npt.NDArray[np.int64]:
    """Where each entry of the `messages` list starts, and last where the list ends; nothing where there is no body or no list."""
    body = _find_body(response)
    if body is None:
        return np.empty(0, np.int64)
    end = len(response)
    count, at, stop = _compound(response, body, end, "map", (c.MAP_8, c.MAP_32))
    for _ in range(count // 2):
        key, at = decode_value(response, at, stop)
        if key == "messages":
            return _list_entries(response, at, stop)
        at = skip_value(response, at, stop)
    return np.empty(0, np.int64)


def _find_body(response: bytes) -> int | None:
    at, end = 0, len(response)
    while at < end:
        code, at = read_descriptor(response, at, end)
        if code == AMQP_VALUE:
            return None if at < end and response[at] == c.NULL else at
        at = skip_value(response, at, end)
    return None


def _list_entries(response: bytes, at: int, end: int) -> npt.NDArray[np.int64]:
    if at < end and response[at] in (c.LIST_0, c.NULL):
        return np.empty(0, np.int64)
    count, at, stop = _compound(response, at, end, "list", (c.LIST_8, c.LIST_32))
    if count > stop - at:
        raise DecodeError(f"a list of {count} messages cannot fit in {stop - at} bytes", at)
    native = native_module()
    found = native.entries(response, at, stop, count) if native is not None else None
    if found is not None:
        return np.frombuffer(found, np.int64)
    bounds: list[int] = []
    append = bounds.append
    try:
        for _ in range(count):
            # The one step per message that cannot be done for all at once: an entry's size tells where the next one starts.
            # Cursors only grow, so that the check after the loop covers every step of it.
            append(at)
            at = at + 5 + _U32(response, at + 1)[0] if response[at] == c.MAP_32 else skip_value(response, at, stop)
    except (IndexError, StructError):
        # The entry that claimed more than there is: the last that starts inside the list.
        cut_off = max(index for index, start in enumerate(bounds) if start < stop)
        raise DecodeError(f"entry {cut_off} of the messages list is cut off", bounds[cut_off]) from None
    if at != stop:
        last = bounds[-1] if bounds else at
        raise DecodeError(f"the {count} entries of the messages list end at byte {at}, the list itself at {stop}", last)
    append(stop)
    return np.array(bounds, np.int64)


def _compound(response: bytes, at: int, end: int, what: str, allowed: tuple[int, int]) -> tuple[int, int, int]:
    """Count, start and stop of the items of the list or map at `at`."""
    if at >= end or response[at] not in allowed:
        found = f"0x{response[at]:02x}" if at < end else "nothing"
        raise DecodeError(f"a {what} must stand here, not {found}", at)
    stop = skip_value(response, at, end)
    if response[at] == allowed[0]:
        if stop < at + 3:
            raise DecodeError(f"a {what} has no room for its own count", at)
        return response[at + 2], at + 3, stop
    if stop < at + 9:
        raise DecodeError(f"a {what} has no room for its own count", at)
    return _SIZE_COUNT(response, at + 1)[1], at + 9, stop


def read_entry(response: bytes, start: int, end: int) -> tuple[int, int, int | None]:
    """Of one entry: start and end of its encoded message, and where the 16 bytes of its lock token start if it has one."""
    count, at, stop = _compound(response, start, end, "map", (c.MAP_8, c.MAP_32))
    message: tuple[int, int] | None = None
    token: int | None = None
    for _ in range(count // 2):
        key, at = decode_value(response, at, stop)
        value_at = at
        at = skip_value(response, at, stop)
        if key == "message":
            if response[value_at] not in (c.BINARY_8, c.BINARY_32):
                raise DecodeError("the `message` of an entry is a binary", value_at)
            message = (value_at + (2 if response[value_at] == c.BINARY_8 else 5), at)
        elif key == "lock-token" and response[value_at] != c.NULL:
            if response[value_at] != c.UUID_:
                raise DecodeError("the `lock-token` of an entry is a uuid", value_at)
            token = value_at + 1
    if at != stop:
        raise DecodeError(f"{stop - at} bytes of an entry are left after its {count} items", at)
    if message is None:
        raise DecodeError("an entry of the messages list has no `message`", start)
    return (*message, token)
