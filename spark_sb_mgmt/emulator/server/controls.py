"""Commands to the emulator itself, carried out: see `spark_sb_mgmt.emulator.control`.

The one rule: what a command changes is the broker's; nothing is kept here.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from spark_sb_mgmt.emulator.clock import Clock, ManualClock
from spark_sb_mgmt.emulator.control import MAX_LINE, ControlError, fault_of, parse_command
from spark_sb_mgmt.emulator.entities import ServiceBusFault
from spark_sb_mgmt.emulator.server.broker import Broker
from spark_sb_mgmt.emulator.server.byte_streams import EndOfStreamError, TcpStream
from spark_sb_mgmt.errors import SbMgmtError

_log = logging.getLogger(__name__)


_MAX_ADVANCE_S: Final = 100 * 366 * 86_400
# One who does not finish a command is not waited for.
_PATIENCE_S: Final = 60.0


class Commands:
    """What can be commanded, by name. To be called in the loop's thread."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._commands: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "add-fault": self._add_fault,
            "remove-fault": lambda arguments: broker.faults.remove(_number(arguments, "key")),
            "clear-faults": lambda _: broker.faults.clear(),
            "fault-hits": self._fault_hits,
            "advance": self._advance,
            "requests": lambda _: dict(broker.requests),
            "counts": self._counts,
            "connections": lambda _: len(broker.connections),
        }

    def __call__(self, command: str, arguments: Mapping[str, Any]) -> Any:
        run = self._commands.get(command)
        if run is None:
            raise ControlError(f"'{command:.64}' is no command; there are {', '.join(self._commands)}")
        return run(arguments)

    def _add_fault(self, arguments: Mapping[str, Any]) -> int:
        key = self._broker.faults.add(fault_of(arguments))
        self._broker.watch_idle()
        return key

    def _fault_hits(self, arguments: Mapping[str, Any]) -> int:
        key = _number(arguments, "key")
        try:
            return self._broker.faults.hits(key)
        except KeyError:
            raise ControlError(f"there was never a fault with the key {key}") from None

    def _advance(self, arguments: Mapping[str, Any]) -> None:
        seconds = arguments.get("seconds")
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= _MAX_ADVANCE_S:
            raise ControlError(f"`seconds` is a number from 0 to {_MAX_ADVANCE_S:g}: time does not go back, nor for ever on")
        if not isinstance(self._clock, ManualClock):
            raise ControlError("this emulator goes by the machine's clock: start it with clock=ManualClock() to move its time")
        # What is due happens at the end of this turn.
        self._clock.move(round(seconds * 1000))

    def _counts(self, arguments: Mapping[str, Any]) -> dict[str, int]:
        try:
            return dict(self._broker.namespace.resolve(str(arguments.get("entity"))).counts()._asdict())
        except ServiceBusFault as fault:
            raise ControlError(fault.description) from None


def _number(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if not isinstance(value, int):
        raise ControlError(f"`{name}` is a whole number")
    return value


class CommandConnection:
    """One command of another process, and its answer."""

    def __init__(self, broker: Broker, commands: Commands, sock: socket.socket) -> None:
        self._broker = broker
        self._commands = commands
        self._stream = TcpStream(sock)
        self._line = b""
        self._answered = False
        self._timer = broker.loop.call_later(_PATIENCE_S, self.close)
        broker.commanders.add(self)
        broker.loop.watch(sock, self._on_ready)

    def _on_ready(self, _: int) -> None:
        try:
            self._line += self._stream.receive()
        except EndOfStreamError:
            self.close()
            return
        if self._answered:
            return
        if b"\n" in self._line:
            self._answered = True
            answer = self._carry_out(self._line.partition(b"\n")[0])
            # In the next turn: what was commanded has taken effect by then.
            self._broker.loop.call_soon(lambda: self._answer(answer))
        elif len(self._line) > MAX_LINE:
            self.close()

    def _carry_out(self, line: bytes) -> dict[str, Any]:
        try:
            command, arguments, key_name, key = parse_command(line)
            rights = self._broker.policies.verify_plain(key_name, key)
            if rights is None or "Manage" not in rights:
                raise ControlError("the key is not that of a policy that may manage: give the connection string that the emulator printed")
            return {"result": self._commands(command, arguments)}
        except SbMgmtError as error:
            return {"error": str(error)}
        except Exception:
            _log.exception("a command failed")
            return {"error": "the command failed; the emulator's log says why"}

    def _answer(self, answer: dict[str, Any]) -> None:
        with suppress(EndOfStreamError):
            # A line of an answer always fits into the empty buffer of a new socket.
            self._stream.send(json.dumps(answer).encode() + b"\n")
        self.close()

    def close(self) -> None:
        if self in self._broker.commanders:
            self._broker.commanders.discard(self)
            self._timer.cancel()
            self._broker.loop.unwatch(self._stream.sock)
            self._stream.close()
