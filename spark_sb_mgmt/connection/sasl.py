"""The client's side of SASL (AMQP 1.0 part 5.3; wire-facts.md, section 3.1), before proton sees a byte.

By hand because proton's own knows only the mechanisms that it was built with, never MSSBCBS, and says little about what went wrong. Who we
are is said by `$cbs` afterwards, so the mechanism is the one that says nothing: ANONYMOUS, or MSSBCBS, which is the same under the name
that .NET uses. Only where neither is offered, and there is a key, PLAIN says it: the name of the policy and its key.

The one rule: bytes in, bytes out; a key goes out only where the peer offers nothing else, and only through TLS.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from spark_sb_mgmt.amqp.decode import decode_value
from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Described, Symbol, ULong, Value
from spark_sb_mgmt.errors import AuthenticationError, ConnectionFailedError, DecodeError, RemoteProtocolError, SbMgmtError

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
ANONYMOUS: Final = "ANONYMOUS"
MSSBCBS: Final = "MSSBCBS"
PLAIN: Final = "PLAIN"
_MECHANISMS_CODE, _INIT_CODE, _OUTCOME_CODE = 0x40, 0x41, 0x44
_MECHANISMS_NAME, _OUTCOME_NAME = "amqp:sasl-mechanisms:list", "amqp:sasl-outcome:list"
_OK: Final = 0
_FRAME_TYPE: Final = 1
# What the outcome means, beyond 0 for success; 3 and 4 are failures of the service's own.
_TEMPORARY: Final = (2, 4)
# No larger frame may come before SASL is over (part 5.3.1); some are generous with mechanisms.
_LARGEST_FRAME: Final = 4096


class SaslState(Enum):
    HEADER = auto()
    MECHANISMS = auto()
    OUTCOME = auto()
    DONE = auto()


class SaslClient:
    """`policy` is the name and the key of a shared access policy for PLAIN, where that may be used."""

    def __init__(self, host: str, policy: tuple[str, str] | None = None) -> None:
        self._host = host
        self._policy = policy
        self._buffer = bytearray()
        self._output = SASL_HEADER
        self.state = SaslState.HEADER
        self.mechanism: str | None = None

    def take_output(self) -> bytes:
        output, self._output = self._output, b""
        return output

    def receive(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take bytes from the peer; what comes back, once the state is DONE, belongs to AMQP."""
        self._buffer += data
        while self.state is not SaslState.DONE and self._step():
            pass
        if self.state is not SaslState.DONE:
            return b""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _step(self) -> bool:
        if self.state is SaslState.HEADER:
            found = bytes(self._buffer[: len(SASL_HEADER)])
            if not SASL_HEADER.startswith(found):
                raise self._failed("does not speak AMQP with SASL here", retryable=False)
            if len(found) < len(SASL_HEADER):
                return False
            del self._buffer[: len(SASL_HEADER)]
            self.state = SaslState.MECHANISMS
            return True
        frame = self._frame()
        if frame is None:
            return False
        if self.state is SaslState.MECHANISMS:
            self._choose(_fields(frame, _MECHANISMS_CODE, _MECHANISMS_NAME))
            self.state = SaslState.OUTCOME
        else:
            self._outcome(_fields(frame, _OUTCOME_CODE, _OUTCOME_NAME))
            self.state = SaslState.DONE
        return True

    def _frame(self) -> bytes | None:
        if len(self._buffer) < 8:
            return None
        size, offset = int.from_bytes(self._buffer[:4], "big"), self._buffer[4] * 4
        if not 8 <= offset <= size <= _LARGEST_FRAME or self._buffer[5] != _FRAME_TYPE:
            raise RemoteProtocolError(f"{self._host} sent what is no SASL frame", may_have_taken_effect=False)
        if len(self._buffer) < size:
            return None
        frame = bytes(self._buffer[offset:size])
        del self._buffer[:size]
        return frame

    def _choose(self, fields: tuple[Value, ...]) -> None:
        offered = _names(fields[0] if fields else None)
        response: bytes = b""
        if ANONYMOUS in offered:
            self.mechanism = ANONYMOUS
        elif MSSBCBS in offered:
            self.mechanism = MSSBCBS
        elif PLAIN in offered and self._policy is not None:
            self.mechanism = PLAIN
            response = f"\0{self._policy[0]}\0{self._policy[1]}".encode()
        else:
            raise self._failed(f"offers only {', '.join(offered) or 'nothing'} to authenticate by, not {ANONYMOUS}", retryable=False)
        self._output += _encode(Described(ULong(_INIT_CODE), (Symbol(self.mechanism), response)))

    def _outcome(self, fields: tuple[Value, ...]) -> None:
        code = fields[0] if fields else None
        if code == _OK:
            return
        if self.mechanism == PLAIN and code not in _TEMPORARY:
            raise AuthenticationError(f"{self._host} refused the shared access key (SASL {PLAIN}, code {code})")
        raise self._failed(f"refused SASL {self.mechanism} (code {code})", retryable=code in _TEMPORARY)

    def _failed(self, problem: str, *, retryable: bool) -> SbMgmtError:
        return ConnectionFailedError(f"{self._host} {problem}", retryable=retryable)


def _encode(performative: Described) -> bytes:
    body = encode_value(performative)
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, _FRAME_TYPE, 0, 0)) + body


def _fields(frame: bytes, code: int, name: str) -> tuple[Value, ...]:
    problem = f"the peer sent another SASL frame than {name}"
    try:
        value, _ = decode_value(frame, 0, len(frame))
    except DecodeError:
        raise RemoteProtocolError(problem, may_have_taken_effect=False) from None
    if not isinstance(value, Described) or value.descriptor not in (code, name) or not isinstance(value.value, tuple):
        raise RemoteProtocolError(problem, may_have_taken_effect=False)
    return value.value


def _names(value: Value) -> tuple[str, ...]:
    """The mechanisms: an array of symbols, or, if it is one, the symbol alone."""
    if isinstance(value, Array):
        return tuple(str(item) for item in value.items)
    return (str(value),) if isinstance(value, str) else ()
