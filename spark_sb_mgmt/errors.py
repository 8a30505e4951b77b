"""The one tree of errors.

    SbMgmtError
    ├── LocalProtocolError        we were asked to put something impossible on the wire
    │   └── EncodeError           a value that AMQP, or the row it came from, cannot carry
    └── RemoteProtocolError       the peer sent what the protocol does not allow
        └── DecodeError           bytes that are not the AMQP encoding they claim to be

Every error pickles, because Spark carries it from a Python worker to the driver; what an error
knows beyond its text is an attribute that survives the journey.
"""

from __future__ import annotations

from typing import Any


class SbMgmtError(Exception):
    """Root of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own pickling calls __init__ with args; keyword attributes travel in __dict__.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[SbMgmtError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SbMgmtError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class LocalProtocolError(SbMgmtError):
    """What the caller asked for cannot be said in the protocol; nothing was sent."""


class EncodeError(LocalProtocolError, ValueError):
    """A value that cannot be encoded. `row` is the position in its batch, where there is one."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        self.problem = message
        self.row = row
        super().__init__(message if row is None else f"row {row}: {message}")

    def at_row(self, row: int) -> EncodeError:
        """The same error, saying which row of the batch it is about."""
        return EncodeError(self.problem, row=row)


class RemoteProtocolError(SbMgmtError):
    """The peer broke the protocol."""


class DecodeError(RemoteProtocolError, ValueError):
    """Bytes that do not decode. `offset` counts from the start of the buffer that was given;
    `message` is the position of the message in its batch, where there is one."""

    def __init__(self, problem: str, offset: int, *, message: int | None = None) -> None:
        self.problem = problem
        self.offset = offset
        self.message = message
        where = f"byte {offset}" if message is None else f"message {message}, byte {offset}"
        super().__init__(f"{problem} (at {where})")

    def at_message(self, message: int) -> DecodeError:
        """The same error, saying which message of the batch it is in."""
        return DecodeError(self.problem, self.offset, message=message)
