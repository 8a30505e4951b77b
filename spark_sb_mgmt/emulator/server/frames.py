"""Incoming transfers, as proton needs them: batches told from messages, deliveries numbered in sequence.

Service Bus batches are told from messages by nothing but the message-format of their transfer (wire-facts.md section 3.6), and proton does
not hand it out. So the byte stream is looked at before proton gets it, and cut around the first frame of every transfer that has
another format than zero: what proton tells after such a frame is about that delivery.

And azure-servicebus, used by several threads, as its lock renewer does, may give two deliveries one number, or send them in the wrong
order. The service bears it; proton would end the connection (AMQP 1.0 part 2.5.6 lets it). Each delivery gets the number that is due. The
client counts on after all it has sent, so that it and proton agree again with the next.

The one rule: bytes are only cut, and of all of them only a delivery-id that is out of sequence is changed; what cannot be understood is
passed on for proton to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.types import UInt
from spark_sb_mgmt.errors import DecodeError

_PROTOCOL_HEADER: Final = 8
_BEGIN: Final = b"\x00\x53\x11"
_TRANSFER: Final = b"\x00\x53\x14"
# From the start of a frame to the end of its field `more`: frame header, descriptor, list header, handle, delivery-id, a delivery-tag of 32
# bytes, message-format, settled and `more` itself, each in its widest form.
_HEAD: Final = 8 + 3 + 9 + 5 + 5 + (5 + 32) + 5 + 2 + 2
_HANDLE, _DELIVERY_ID, _MESSAGE_FORMAT, _MORE = 0, 1, 3, 5
_LIST_HEADERS: Final = {0xC0: 3, 0xD0: 9}
_NUMBERS: Final = 1 << 32


class Piece(NamedTuple):
    """Bytes for proton; with `message_format`, exactly the first frame of one transfer."""

    data: bytes | memoryview
    message_format: int = 0


class _Transfer(NamedTuple):
    """What is read of a transfer's fields. `id_at` and `id_end`: where in their list its delivery-id stands."""

    handle: object
    delivery_id: int | None
    message_format: int
    more: bool
    id_at: int
    id_end: int


class FrameSplitter:
    """`max_frame_size` is what the peer was told; a frame that claims more is not waited for."""

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._held = b""
        # Bytes of the frame under way that need not be looked at: first the protocol header.
        self._passing = _PROTOCOL_HEADER
        # By channel: the number that is due.
        self._due: dict[int, int] = {}
        # By channel and handle: the number that a delivery under way came with, and the one that it was given.
        self._under_way: dict[tuple[int, object], tuple[int, int]] = {}

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
            head = data[at : at + need]
            transfer = self._transfer(head)
            if transfer is None:
                self._passing = size
                continue
            if transfer.message_format and end - at < size:
                break
            number = self._number(int.from_bytes(head[6:8], "big"), transfer)
            if number == transfer.delivery_id and not transfer.message_format:
                self._passing = size
                continue
            if at > start:
                yield Piece(view[start:at])
            if number is not None and number != transfer.delivery_id:
                head = _renumbered(head, transfer, number)
            if transfer.message_format:
                yield Piece(head + view[at + need : at + size], transfer.message_format)
                at += size
            else:
                yield Piece(head)
                at += need
                self._passing = size - need
            start = at
        if at > start:
            yield Piece(view[start:at])
        self._held = bytes(view[at:])

    def _transfer(self, head: bytes) -> _Transfer | None:
        """What the frame with this head transfers, if it is a transfer and can be understood."""
        body = head[4] * 4
        if head[5] != 0 or head[body : body + 3] != _TRANSFER:
            if head[body : body + 3] == _BEGIN:
                self._forget(int.from_bytes(head[6:8], "big"))
            return None
        header = _LIST_HEADERS.get(head[body + 3]) if body + 3 < len(head) else None
        if header is None:
            return None
        width = header // 2
        fields_end = body + 4 + width + int.from_bytes(head[body + 4 : body + 4 + width], "big")
        return _read(head[body + 3 : fields_end])

    def _forget(self, channel: int) -> None:
        """A session begins there: it counts from wherever it likes."""
        self._due.pop(channel, None)
        self._under_way = {key: numbers for key, numbers in self._under_way.items() if key[0] != channel}

    def _number(self, channel: int, transfer: _Transfer) -> int | None:
        """The number that proton expects."""
        key, given = (channel, transfer.handle), transfer.delivery_id
        under_way = self._under_way.pop(key, None)
        if under_way is not None and given in (None, under_way[0]):
            # A later frame of it. Some clients repeat the number in each.
            numbers = under_way
        elif given is None:
            return None
        else:
            due = self._due.get(channel, given)
            self._due[channel] = (due + 1) % _NUMBERS
            numbers = (given, due)
        if transfer.more:
            self._under_way[key] = numbers
        return None if given is None else numbers[1]


# The frames of one transfer but the last differ in nothing that is read here.
@lru_cache(maxsize=64)
def _read(encoded: bytes) -> _Transfer | None:
    """What the list of fields says, which may be cut off behind those that are looked at."""
    at = _LIST_HEADERS[encoded[0]]
    count = int.from_bytes(encoded[at // 2 + 1 : at], "big")
    fields: list[object] = [None] * (_MORE + 1)
    bounds = [at]
    try:
        for field in range(min(count, _MORE + 1)):
            fields[field], at = decode_value(encoded, at)
            bounds.append(at)
    except DecodeError:
        return None
    if len(bounds) <= _DELIVERY_ID + 1:
        return None
    delivery_id, message_format = fields[_DELIVERY_ID], fields[_MESSAGE_FORMAT]
    if not isinstance(delivery_id, UInt):
        delivery_id = None
    return _Transfer(
        handle=fields[_HANDLE],
        delivery_id=delivery_id,
        # A later frame of a transfer that has begun is not looked at for it.
        message_format=int(message_format) if isinstance(message_format, UInt) and delivery_id is not None else 0,
        more=fields[_MORE] is True,
        id_at=bounds[_DELIVERY_ID],
        id_end=bounds[_DELIVERY_ID + 1],
    )


def _renumbered(head: bytes, transfer: _Transfer, number: int) -> bytes:
    """The head of a frame with another delivery-id, and the sizes that this may change."""
    list_at = head[4] * 4 + len(_TRANSFER)
    id_at, id_end = list_at + transfer.id_at, list_at + transfer.id_end
    delivery_id = b"\x52" + bytes((number,)) if id_end - id_at == 2 and number < 0x100 else b"\x70" + number.to_bytes(4, "big")
    fields_at = list_at + _LIST_HEADERS[head[list_at]]
    list_header, growth = head[list_at:fields_at], len(delivery_id) - (id_end - id_at)
    if growth:
        width = len(list_header) // 2
        size, count = int.from_bytes(list_header[1 : 1 + width], "big"), int.from_bytes(list_header[1 + width :], "big")
        list_header = b"\xd0" + (size - width + 4 + growth).to_bytes(4, "big") + count.to_bytes(4, "big")
        growth += len(list_header) - (fields_at - list_at)
    frame_size = int.from_bytes(head[:4], "big") + growth
    return b"".join(
        (
            frame_size.to_bytes(4, "big"),
            head[4:list_at],
            list_header,
            head[fields_at:id_at],
            delivery_id,
            head[id_end:],
        )
    )
