"""Services that cost next to nothing, each in a process of its own: one answers peeks with answers that were recorded before, one takes
messages to be scheduled and forgets them, and lets all be cancelled.

The one rule: what is measured is the client. What a page is made of was encoded before the clock starts; of what is taken only the number
of messages is looked at. All else (SASL ANONYMOUS, `$cbs`, links, sessions) is granted without a look.

The one that replays has a second port, where there is no AMQP at all: each byte that comes is answered by the next page, the same bytes
behind their length. That is as fast as bytes go from one process to the other.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import count, cycle
from multiprocessing.connection import Connection
from typing import Any, Final

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.message import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    AmqpValue,
    Message,
    Properties,
    decode_message,
    encode_message,
)
from spark_sb_mgmt.amqp.response import find_entries
from spark_sb_mgmt.amqp.types import Array, Described, Int, Map, UByte, UInt, ULong, UShort
from tests.bench.processes import running

# The encoded amqp-value section of the answer to a peek, by the sequence number that it was asked from.
Pages = Mapping[int, bytes]

_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_MECHANISMS, _OUTCOME = 0x40, 0x44
_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH, _END, _CLOSE = range(0x10, 0x19)
_ACCEPTED: Final = Described(ULong(0x24), ())
_WINDOW: Final = UInt(2**31 - 1)
_MAX_MESSAGE_SIZE: Final = ULong(1 << 20)
# More than a continued transfer needs before its payload.
_FRAME_OVERHEAD: Final = 64
# In the answer to an attach: where the link's own terminus stands.
_SOURCE, _TARGET = 5, 6
# In a transfer.
_MORE: Final = 5


def replaying(pages: Pages, max_frame_size: int) -> AbstractContextManager[tuple[int, int]]:
    """The ports of a running service: AMQP, and bare bytes."""
    return running(_serve, dict(pages), max_frame_size)


def _serve(pages: Pages, max_frame_size: int, ready: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as amqp, socket.create_server(("127.0.0.1", 0)) as bare:
        ready.send((amqp.getsockname()[1], bare.getsockname()[1]))
        threading.Thread(target=_accept, args=(bare, lambda sock: _send_bare(sock, pages)), daemon=True).start()
        _accept(amqp, lambda sock: _Peer(sock, pages, max_frame_size).run())


def taking() -> AbstractContextManager[int]:
    """The port of a running service that takes what is scheduled. It has no message to peek."""
    return running(_serve_taking)


def _serve_taking(ready: Connection) -> None:
    numbers = count(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        _accept(listener, lambda sock: _Taker(sock, numbers).run())


def _accept(listener: socket.socket, serve: Any) -> None:
    def run(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with sock:
            serve(sock)

    while True:
        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()


def _send_bare(sock: socket.socket, pages: Pages) -> None:
    ordered = cycle([len(pages[start]).to_bytes(8, "big") + pages[start] for start in sorted(pages)])
    while asked := sock.recv(4096):
        for _ in asked:
            sock.sendall(next(ordered))


class _ClosedError(Exception):
    pass


class _Peer:
    """One connection."""

    def __init__(self, sock: socket.socket, pages: Pages, max_frame_size: int) -> None:
        self._sock = sock
        self._pages = pages
        self._frame_size = max_frame_size
        self._received = bytearray()
        # By channel and handle of the client: the node that a link goes to; by channel and node: the handle that answers go out on.
        self._nodes: dict[tuple[int, int], str] = {}
        self._answers: dict[tuple[int, str], int] = {}
        self._sent = 0
        # The frames of a page, but for the first.
        self._frames: dict[tuple[int, int, int], bytes] = {}
        # Of a request that comes in several frames: what was said of it first, and what came of it.
        self._first: Any = None
        self._parts: list[bytes] = []

    def run(self) -> None:
        try:
            self._exactly(len(_SASL_HEADER))
            self._sock.sendall(_SASL_HEADER + _frame(1, 0, _MECHANISMS, (Array("symbol", ["ANONYMOUS"]),)))
            self._next_frame()
            self._sock.sendall(_frame(1, 0, _OUTCOME, (UByte(0),)))
            self._exactly(len(_AMQP_HEADER))
            self._sock.sendall(_AMQP_HEADER)
            while True:
                self._take(*self._next_frame())
        except (_ClosedError, ConnectionError):
            return

    # --- frames ---------------------------------------------------------------------------------------------------------

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self._sock.recv(1 << 16)
            if not data:
                raise _ClosedError
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _next_frame(self) -> tuple[int, bytes]:
        """Channel and content."""
        head = self._exactly(8)
        content = self._exactly(int.from_bytes(head[:4], "big") - len(head))
        return int.from_bytes(head[6:8], "big"), content

    def _say(self, channel: int, code: int, *fields: Any) -> None:
        self._sock.sendall(_frame(0, channel, code, fields))

    # --- what the client says -------------------------------------------------------------------------------------------

    def _take(self, channel: int, content: bytes) -> None:
        if not content:
            return
        said, at = decode_value(content)
        assert isinstance(said, Described)
        fields: Any = said.value
        if said.descriptor == _OPEN:
            self._say(channel, _OPEN, "replay", None, UInt(self._frame_size))
        elif said.descriptor == _BEGIN:
            self._say(channel, _BEGIN, UShort(channel), UInt(0), _WINDOW, _WINDOW)
        elif said.descriptor == _ATTACH:
            self._attach(channel, fields)
        elif said.descriptor == _TRANSFER:
            self._request(channel, fields, content[at:])
        elif said.descriptor == _DETACH:
            self._say(channel, _DETACH, fields[0], True)
        elif said.descriptor in (_END, _CLOSE):
            self._say(channel, int(said.descriptor))

    def _attach(self, channel: int, fields: Any) -> None:
        name, handle, client_receives = fields[:3]
        terminus = fields[_SOURCE if client_receives else _TARGET]
        node = str(terminus.value[0])
        ends = (fields[_SOURCE], fields[_TARGET])
        self._say(channel, _ATTACH, name, handle, not client_receives, None, None, *ends, None, None, UInt(0), _MAX_MESSAGE_SIZE)
        if client_receives:
            self._answers[channel, node] = handle
        else:
            self._nodes[channel, handle] = node
            self._say(channel, _FLOW, UInt(0), _WINDOW, UInt(0), _WINDOW, handle, UInt(0), _WINDOW)

    def _request(self, channel: int, fields: Any, payload: bytes) -> None:
        self._first = self._first or fields
        self._parts.append(payload)
        if len(fields) > _MORE and fields[_MORE]:
            return
        fields, self._first = self._first, None
        whole = b"".join(self._parts)
        self._parts.clear()
        handle, delivery_id = fields[:2]
        self._say(channel, _DISPOSITION, True, delivery_id, delivery_id, True, _ACCEPTED)
        node = self._nodes[channel, handle]
        out = self._answers[channel, node]
        about = decode_message(whole, sections=(PROPERTIES, APPLICATION_PROPERTIES))
        assert about.properties is not None
        if node == "$cbs":
            self._answer(channel, out, about.properties.message_id, "status-code", 202, b"")
        else:
            self._respond(channel, out, about, whole)

    def _respond(self, channel: int, out: int, about: Message, request: bytes) -> None:
        """Answer what was asked of a management node."""
        assert about.properties is not None
        body = decode_message(request).body
        assert isinstance(body, AmqpValue)
        asked: Any = body.value
        start = asked["from-sequence-number"]
        page = self._pages.get(start)
        if page is None:
            assert start > max(self._pages), f"nobody recorded a peek from {start}"
            self._answer(channel, out, about.properties.message_id, "statusCode", 204, b"")
            return
        key = (channel, out, start)
        if key not in self._frames:
            self._frames[key] = b"".join(self._continued(channel, out, page))
        self._answer(channel, out, about.properties.message_id, "statusCode", 200, self._frames[key])

    def _answer(self, channel: int, handle: int, message_id: Any, status_key: str, status: int, rest: bytes) -> None:
        envelope = Message(properties=Properties(correlation_id=message_id), application_properties=Map([(status_key, Int(status))]))
        fields = (UInt(handle), UInt(self._sent), self._sent.to_bytes(4, "big"), UInt(0), True, bool(rest))
        self._sent += 1
        self._sock.sendall(_frame(0, channel, _TRANSFER, fields, encode_message(envelope)) + rest)

    def _continued(self, channel: int, handle: int, page: bytes) -> Iterator[bytes]:
        size = self._frame_size - _FRAME_OVERHEAD
        for at in range(0, len(page), size):
            fields = (UInt(handle), None, None, None, None, at + size < len(page))
            yield _frame(0, channel, _TRANSFER, fields, page[at : at + size])


class _Taker(_Peer):
    """One connection to the service that takes messages; `numbers` are those of all its connections."""

    def __init__(self, sock: socket.socket, numbers: Iterator[int]) -> None:
        super().__init__(sock, {}, _MAX_MESSAGE_SIZE)
        self._numbers = numbers

    def _respond(self, channel: int, out: int, about: Message, request: bytes) -> None:
        assert about.properties is not None
        assert about.application_properties is not None
        operation = about.application_properties["operation"]
        if operation == "com.microsoft:peek-message":
            self._answer(channel, out, about.properties.message_id, "statusCode", 204, b"")
            return
        if operation == "com.microsoft:cancel-scheduled-message":
            self._answer(channel, out, about.properties.message_id, "statusCode", 200, b"")
            return
        assert operation == "com.microsoft:schedule-message", f"messages are taken and cancelled, and nothing else is done: {operation}"
        taken = [next(self._numbers) for _ in range(len(find_entries(request)) - 1)]
        body = encode_message(Message(body=AmqpValue(Map([("sequence-numbers", Array("long", taken))]))))
        rest = b"".join(self._continued(channel, out, body))
        self._answer(channel, out, about.properties.message_id, "statusCode", 200, rest)


def _frame(kind: int, channel: int, code: int, fields: tuple[Any, ...], payload: bytes = b"") -> bytes:
    content = encode_value(Described(ULong(code), fields)) + payload
    return (8 + len(content)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + content
