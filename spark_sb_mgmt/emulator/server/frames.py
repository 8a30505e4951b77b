"""The message-format of incoming transfers, which proton reads over.

Service Bus batches are told from messages by nothing but the message-format of their transfer (wire-facts.md section 3.6), and proton does
not hand it out. So the byte stream is looked at before proton gets it, and cut around the first frame of every transfer that has
another format than zero: what proton tells after such a frame is about that delivery.

The one rule: bytes are only cut, never changed; what cannot be understood is passed on for proton to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.errors import DecodeError

_PROTOCOL_HEADER: Final = 8
_TRANSFER: Final = b"\x00\x53\x14"
# From the start of a frame to the end of its message-format: frame header, descriptor, list header, handle, delivery-id, a delivery-tag
# of 32 bytes and the format itself, each in its widest form.
_HEAD: Final = 8 + 3 + 9 + 5 + 5 + (5 + 32) + 5
_DELIVERY_ID, _MESSAGE_FORMAT = 1, 3
_LIST_HEADERS: Final = {0xC0: 3, 0xD0: 9}


class Piece(NamedTuple):
    """Bytes for proton; with `message_format`, exactly the first frame of one transfer."""

    data: bytes | memoryview
    message_format: int = 0


class FrameSplitter:
    """`max_frame_size` is what the peer was told; a frame that claims more is not waited for."""

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._held = b""
        # Bytes of the frame under way that need not be looked at: first the protocol header.
        self._passing = _PROTOCOL_HEADER

    def split(self, data: bytes) -> Iterator[Piece]:
        """The same bytes in pieces. Less than a frame's head may be held back until more comes."""
        if self._held:
            data, self._held = self._held + data, b""
        view = memoryview(data)
        start = at = 0
        end = len(data)
        while at < end:
            if self._passing:
                step = min(self._passing, end - at)
                at += step
                self._passing -= step
                continue
            if end - at < 8:
                break
            size = int.from_bytes(view[at : at + 4], "big")
            if not 8 <= size <= self._max_frame_size:
                at = end
                break
            need = min(size, _HEAD)
            if end - at < need:
                break
            message_format = _message_format(data, at, at + need)
            if not message_format:
                self._passing = size
                continue
            if end - at < size:
                break
            if at > start:
                yield Piece(view[start:at])
            yield Piece(view[at : at + size], message_format)
            start = at = at + size
        if at > start:
            yield Piece(view[start:at])
        self._held = bytes(view[at:])


def _message_format(data: bytes, at: int, end: int) -> int:
    body = at + data[at + 4] * 4
    if data[at + 5] != 0 or data[body : body + 3] != _TRANSFER:
        return 0
    body += 3
    header = _LIST_HEADERS.get(data[body]) if body < end else None
    if header is None:
        return 0
    count = int.from_bytes(data[body + header // 2 + 1 : body + header], "big")
    if count <= _MESSAGE_FORMAT:
        return 0
    body += header
    try:
        for field in range(_MESSAGE_FORMAT):
            value, body = decode_value(data, body, end)
            if field == _DELIVERY_ID and value is None:
                return 0  # A later frame of a transfer that has begun.
        value, _ = decode_value(data, body, end)
    except DecodeError:
        return 0
    return int(value) if isinstance(value, int) else 0
