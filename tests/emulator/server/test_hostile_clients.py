"""Whatever a client sends, it is the only one to lose anything by it, and nothing of ours fails over it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus._pyamqp import performatives
from azure.servicebus._pyamqp.outcomes import Accepted, Modified, Rejected
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proton import Message, uint

from spark_sb_mgmt.emulator import Emulator
from tests.emulator.server.peer import Outcome, Peer, eventually, message, peek_body, peeked
from tests.emulator.server.raw import BATCH, RawClient, attach_frame, batch, begin_frame, frame, further, made, transfer

WINDOW = 2**31 - 1


def flow(handle: int, credit: int = 10, **fields: Any) -> bytes:
    windows = {"next_incoming_id": 0, "incoming_window": WINDOW, "next_outgoing_id": 0, "outgoing_window": WINDOW}
    return frame(made(performatives.FlowFrame, **windows, handle=handle, delivery_count=0, link_credit=credit, **fields))


def disposition(number: int, state: Any, *, settled: bool = False) -> bytes:
    return frame(made(performatives.DispositionFrame, role=True, first=number, last=number, settled=settled, state=state))


def detach(handle: int, *, closed: bool) -> bytes:
    return frame(made(performatives.DetachFrame, handle=handle, closed=closed))


def request(operation: str, body: Any) -> bytes:
    properties = {"operation": f"com.microsoft:{operation}", "com.microsoft:server-timeout": uint(1000)}
    return bytes(Message(id="a request", reply_to="r", properties=properties, body=body).encode())


LONG = message(b"x" * 5000)
# What a client might send that has a link of every kind.
FRAMES = [
    transfer(0, message(b"a")),
    transfer(1, batch(message(b"b"), message(b"c")), message_format=BATCH),
    flow(1),
    disposition(0, Accepted()),
    disposition(1, Modified(delivery_failed=True, undeliverable_here=True)),
    disposition(2, Rejected(), settled=True),
    transfer(2, request("peek-message", peek_body()), handle=3),
    transfer(3, request("renew-lock", {"lock-tokens": None}), handle=3),
    transfer(4, LONG[:2000], more=True),
    further(LONG[2000:], more=False),
    flow(1, 0, drain=True),
    detach(1, closed=False),
    detach(0, closed=True),
    begin_frame(),
    frame(made(performatives.EndFrame)),
    frame(made(performatives.CloseFrame)),
]
# Where, how many bytes go, and what comes instead.
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 8), st.binary(max_size=4)), max_size=12)


def changed(stream: bytes, changes: Sequence[tuple[float, int, bytes]]) -> bytes:
    data = bytearray(stream)
    for place, gone, instead in changes:
        at = int(place * len(data))
        data[at : at + gone] = instead
    return bytes(data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(st.sampled_from(FRAMES), min_size=1, max_size=24), changes=CHANGES)
def test_others_are_served_and_nothing_fails_whatever_bytes_come(
    emulator: Emulator, caplog: pytest.LogCaptureFixture, sent: list[bytes], changes: list[tuple[float, int, bytes]]
) -> None:
    with Peer.connect(emulator) as peer:
        assert peer.send(peer.sender("other"), message(b"mine")) == Outcome("accepted")
        mine = peer.receive(peer.receiver("other", 1))
        with RawClient.connect(emulator) as client:
            client.attach("q")
            client.sock.sendall(attach_frame(1, "q", receives=True) + attach_frame(2, "q/$management", receives=True) + flow(2))
            client.attach("q/$management", 3)
            client.sock.sendall(changed(b"".join(sent), changes))
            # Sent is not read: its end is.
            with suppress(OSError):
                client.sock.shutdown(socket.SHUT_WR)
                while client.sock.recv(1 << 16):
                    pass
        eventually(lambda: emulator.connections == 1)
        assert [received.body for received in mine] == [b"mine"]
        assert peer.settle(mine[0]) == Outcome("accepted")
        assert peeked(peer, "other") == []
    assert caplog.messages == []


def test_the_frames_above_are_understood_as_they_are(emulator: Emulator) -> None:
    with RawClient.connect(emulator) as client, Peer.connect(emulator) as peer:
        client.attach("q")
        client.sock.sendall(attach_frame(2, "q/$management", receives=True) + flow(2))
        client.attach("q/$management", 3)
        client.sock.sendall(b"".join(FRAMES[:2] + FRAMES[6:10]))
        eventually(lambda: emulator.requests.get("renew-lock") == 1 and emulator.counts("q")["active"] == 4)
        assert peeked(peer, "q")[:3] == [b"a", b"b", b"c"]
