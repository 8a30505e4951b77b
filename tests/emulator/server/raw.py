"""Frames by azure-servicebus's own encoder, put on a socket by hand: for what proton would not send.

client = RawClient.connect(emulator)
client.attach("q")
client.sock.sendall(transfer(0, payload, message_format=BATCH))
"""

from __future__ import annotations

import socket
from typing import Any

from azure.servicebus._pyamqp import endpoints, performatives
from azure.servicebus._pyamqp._encode import encode_frame

from spark_sb_mgmt.emulator import Emulator
from tests.emulator.server.peer import DEADLINE_S, KEY, POLICY

BATCH = 0x80013700
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
FLOW = b"\x00\x53\x13"
PLAIN = f"\0{POLICY}\0{KEY}".encode()


def frame(performative: Any, *, channel: int = 0, kind: bytes = b"\x00") -> bytes:
    header, body = encode_frame(performative, kind)
    return bytes(header) + channel.to_bytes(2, "big") + bytes(body or b"")


def made(kind: Any, **fields: Any) -> Any:
    """A performative with these fields and no others."""
    return kind(**{**dict.fromkeys(kind._fields), **fields})


def sasl_init(mechanism: str, response: bytes = b"") -> bytes:
    return frame(made(performatives.SASLInit, mechanism=mechanism.encode(), initial_response=response), kind=b"\x01")


def open_frame(**fields: Any) -> bytes:
    return frame(made(performatives.OpenFrame, **{"container_id": "raw", "hostname": "host", "max_frame_size": 65536, **fields}))


def begin_frame() -> bytes:
    return frame(made(performatives.BeginFrame, next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1))


def attach_frame(handle: int, address: str, *, receives: bool = False) -> bytes:
    return frame(
        made(
            performatives.AttachFrame,
            name=f"link-{handle}",
            handle=handle,
            role=receives,
            source=endpoints.Source(address=address),
            target=endpoints.Target(address=address),
            initial_delivery_count=0,
        )
    )


def transfer(number: int, payload: bytes, *, message_format: int = 0, handle: int = 0, settled: bool = False, **fields: Any) -> bytes:
    return frame(
        made(
            performatives.TransferFrame,
            handle=handle,
            delivery_id=number,
            delivery_tag=number.to_bytes(4, "big"),
            message_format=message_format,
            settled=settled,
            payload=payload,
            **fields,
        )
    )


def further(payload: bytes, *, more: bool, handle: int = 0) -> bytes:
    """A later frame of a transfer that has begun."""
    return frame(made(performatives.TransferFrame, handle=handle, more=more, payload=payload))


def batch(*encoded: bytes) -> bytes:
    """The payload of a batch: each message in a data section of its own."""
    return b"".join(b"\x00\x53\x75\xb0" + len(each).to_bytes(4, "big") + each for each in encoded)


class RawClient:
    """A connection that has logged in and begun a session; what comes back is for the test to read, or not."""

    def __init__(self, sock: socket.socket, *, max_frame_size: int = 65536) -> None:
        self.sock = sock
        self.received = b""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(SASL_HEADER + sasl_init("PLAIN", PLAIN) + AMQP_HEADER + open_frame(max_frame_size=max_frame_size) + begin_frame())

    @classmethod
    def connect(cls, emulator: Emulator) -> RawClient:
        return cls(socket.create_connection(("127.0.0.1", emulator.port), DEADLINE_S))

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()

    def attach(self, address: str, handle: int = 0) -> None:
        """Attach a link to send on, and wait for its credit."""
        self.received = b""
        self.sock.sendall(attach_frame(handle, address))
        self.read_until(FLOW)

    def read_until(self, expected: bytes) -> None:
        """Until these bytes have come."""
        while expected not in self.received:
            data = self.sock.recv(1 << 16)
            assert data, f"the server closed after {self.received!r}"
            self.received += data
