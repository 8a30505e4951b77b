"""The emulator's own controls: scripted faults, the clock, what was asked of it and what stands in it.

From the process that started it, `Emulator` has them; from any other:

    control = EmulatorControl.connect(connection_string)
    control.faults.add(Fault("throttle", operation="peek-message", count=3))

A command is one line of JSON over a connection to the AMQP port, with the name and key of a policy that may manage, and is answered by
one line. Nothing of it is part of Service Bus.

The one rule: a command runs in the server's own turn, between requests, and whoever gave it goes on when it has taken effect.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from spark_sb_mgmt.emulator.fault_script import Fault, FaultError
from spark_sb_mgmt.errors import SbMgmtError

# The first byte of a command; AMQP starts with an A.
FIRST_BYTE: Final = b"{"
MAX_LINE: Final = 64 * 1024
Call = Callable[[str, Mapping[str, Any]], Any]


class ControlError(SbMgmtError):
    """A command that was not carried out."""


class EmulatorControl:
    """Controls of an emulator, wherever it runs."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.faults = FaultControl(call)

    @classmethod
    def connect(cls, connection_string: str, *, timeout: float = 30.0) -> EmulatorControl:
        """Of the emulator that printed this connection string. Each command has its own connection, so nothing needs closing."""
        return cls(_Remote(connection_string, timeout))

    def advance(self, seconds: float) -> None:
        """Move the clock of an emulator that was started with a `ManualClock`; all that is due by then has happened on return."""
        self._call("advance", {"seconds": seconds})

    @property
    def requests(self) -> dict[str, int]:
        """How many requests of each operation there were, throttled and failed ones too."""
        return dict(self._call("requests", {}))

    def counts(self, entity: str) -> dict[str, int]:
        """How many messages stand in an entity: active, deferred, scheduled."""
        return dict(self._call("counts", {"entity": entity}))

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return int(self._call("connections", {}))


class FaultControl:
    """The scripted faults of an emulator: see `Fault`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def add(self, fault: Fault) -> int:
        """A key for `remove` and `hits`."""
        return int(self._call("add-fault", {"fault": fault.to_json()}))

    def remove(self, key: int) -> None:
        self._call("remove-fault", {"key": key})

    def clear(self) -> None:
        self._call("clear-faults", {})

    def hits(self, key: int) -> int:
        """How often it has struck."""
        return int(self._call("fault-hits", {"key": key}))


class _Remote:
    """Commands over a socket."""

    def __init__(self, connection_string: str, timeout: float) -> None:
        given = dict(part.strip().partition("=")[::2] for part in connection_string.split(";") if part.strip())
        fields = {name.lower(): value for name, value in given.items()}
        missing = [name for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey") if not fields.get(name.lower())]
        if missing:
            raise ControlError(f"the connection string lacks {', '.join(missing)}: give the one that the emulator printed")
        endpoint = urlsplit(fields["endpoint"])
        self._address = (endpoint.hostname or "127.0.0.1", endpoint.port or 5672)
        self._policy = {"key_name": fields["sharedaccesskeyname"], "key": fields["sharedaccesskey"]}
        self._timeout = timeout

    def __call__(self, command: str, arguments: Mapping[str, Any]) -> Any:
        line = json.dumps({"command": command, "arguments": arguments, **self._policy}).encode() + b"\n"
        try:
            with socket.create_connection(self._address, self._timeout) as sock, sock.makefile("rb") as answers:
                sock.sendall(line)
                answer = json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise ControlError(f"the emulator at {self._address[0]}:{self._address[1]} does not answer '{command}': {error}") from error
        if "error" in answer:
            raise ControlError(str(answer["error"]))
        return answer["result"]

    def __repr__(self) -> str:
        return f"commands to {self._address[0]}:{self._address[1]}"


def parse_command(line: bytes) -> tuple[str, Mapping[str, Any], str, str]:
    """Command, arguments, key name and key of a line."""
    try:
        document = json.loads(line)
        command, arguments = document["command"], document["arguments"]
        key_name, key = document["key_name"], document["key"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ControlError("a command is one line of JSON with command, arguments, key_name and key") from None
    if not all(isinstance(text, str) for text in (command, key_name, key)) or not isinstance(arguments, dict):
        raise ControlError("command, key_name and key are texts, arguments is an object")
    return command, arguments, key_name, key


def fault_of(arguments: Mapping[str, Any]) -> Fault:
    fault = arguments.get("fault")
    if not isinstance(fault, dict):
        raise FaultError("`fault` is an object with the fields of a Fault.")
    return Fault.from_json(fault)
