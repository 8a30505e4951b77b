"""The server's side of SASL (AMQP 1.0 part 5.3), before proton sees a byte.

By hand because proton's own offers only the mechanisms that it was built with, and never MSSBCBS, the name under which .NET asks for
ANONYMOUS (wire-facts.md section 3.1). It is four frames.

The one rule: bytes in, bytes out; nobody is let through whose bytes were not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Described, UByte, ULong
from spark_sb_mgmt.errors import DecodeError

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_MECHANISMS_CODE, _INIT_CODE, _OUTCOME_CODE = 0x40, 0x41, 0x44
_OK, _AUTHENTICATION_FAILED = 0, 1
_FRAME_TYPE: Final = 1
# The peer may send no larger frame before it is known (AMQP 1.0 part 5.3.1).
MAX_FRAME: Final = 512

# What a mechanism makes of the initial response: a name for who it is, or None to refuse.
Verifier = Callable[[bytes], str | None]


class SaslState(Enum):
    HEADER = auto()
    INIT = auto()
    # What comes next is AMQP.
    DONE = auto()
    # Send what there is to send and close.
    REFUSED = auto()


class SaslServer:
    """`mechanisms` by name, in the order in which they are offered."""

    def __init__(self, mechanisms: Mapping[str, Verifier]) -> None:
        self._mechanisms = mechanisms
        self._buffer = b""
        self._output = b""
        self.state = SaslState.HEADER
        self.identity: str | None = None

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; what comes back belongs to the next layer."""
        self._buffer += data
        while self._step():
            pass
        if self.state is SaslState.DONE:
            rest, self._buffer = self._buffer, b""
            return rest
        return b""

    def take_output(self) -> bytes:
        output, self._output = self._output, b""
        return output

    def _step(self) -> bool:
        if self.state is SaslState.HEADER:
            if self._skips():
                self.identity = self._mechanisms["ANONYMOUS"](b"")
                self.state = SaslState.DONE
                return False
            if len(self._buffer) < len(AMQP_HEADER) and AMQP_HEADER.startswith(self._buffer):
                return False
            if not SASL_HEADER.startswith(self._buffer[: len(SASL_HEADER)]):
                # The header that would be right is the answer to one that is wrong (part 2.2).
                self._output += SASL_HEADER
                self.state = SaslState.REFUSED
                return False
            if len(self._buffer) < len(SASL_HEADER):
                return False
            self._buffer = self._buffer[len(SASL_HEADER) :]
            names = Array("symbol", self._mechanisms)
            self._output += SASL_HEADER + _frame(Described(ULong(_MECHANISMS_CODE), (names,)))
            self.state = SaslState.INIT
            return True
        if self.state is SaslState.INIT:
            return self._read_init()
        return False

    def _skips(self) -> bool:
        """Whether the peer starts with AMQP itself, which may be anonymous too (part 5.2): the JavaScript SDK does so where its connection
        string has a signature and no key's name."""
        return "ANONYMOUS" in self._mechanisms and self._buffer.startswith(AMQP_HEADER)

    def _read_init(self) -> bool:
        if len(self._buffer) < 8:
            return False
        size, data_offset = int.from_bytes(self._buffer[:4], "big"), self._buffer[4] * 4
        if not 8 <= data_offset <= size <= MAX_FRAME or self._buffer[5] != _FRAME_TYPE:
            self.state = SaslState.REFUSED
            return False
        if len(self._buffer) < size:
            return False
        frame, self._buffer = self._buffer[data_offset:size], self._buffer[size:]
        self.identity = self._verify(frame)
        code = _AUTHENTICATION_FAILED if self.identity is None else _OK
        self._output += _frame(Described(ULong(_OUTCOME_CODE), (UByte(code),)))
        self.state = SaslState.REFUSED if self.identity is None else SaslState.DONE
        return False

    def _verify(self, frame: bytes) -> str | None:
        try:
            init, _ = decode_value(frame, 0, len(frame))
        except DecodeError:
            return None
        if not isinstance(init, Described) or init.descriptor not in (_INIT_CODE, "amqp:sasl-init:list"):
            return None
        fields = init.value if isinstance(init.value, tuple) else ()
        verify = self._mechanisms.get(str(fields[0])) if fields else None
        response = fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) else b""
        return None if verify is None else verify(response)


def _frame(performative: Described) -> bytes:
    body = encode_value(performative)
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, _FRAME_TYPE, 0, 0)) + body
