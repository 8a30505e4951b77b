"""A JSON document that knows where it is: every value is read with its type, and what is wrong is said with its path.

The one rule: the path in an error is what one would type to get there: `UserConfig.Namespaces[0].Queues[2].Properties.LockDuration`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from spark_sb_mgmt.emulator.durations import FOREVER, parse_duration
from spark_sb_mgmt.errors import SbMgmtError


class ConfigError(SbMgmtError, ValueError):
    """The configuration is wrong at `path`."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else f"the configuration: {problem}")


_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


class Node:
    """A value of the document and its path."""

    def __init__(self, value: object, path: str) -> None:
        self._value = value
        self.path = path

    def _wrong(self, wanted: str) -> ConfigError:
        return ConfigError(self.path, f"must be {wanted}, not {_NAMES[type(self._value)]}")

    def _object(self) -> dict[str, object]:
        if not isinstance(self._value, dict):
            raise self._wrong("an object")
        return self._value

    def names(self) -> list[str]:
        return list(self._object())

    def only(self, *known: str) -> None:
        """An error for a key that is not known, with the one that was perhaps meant."""
        for key in self._object():
            if key not in known:
                near = next((name for name in known if name.lower() == key.lower()), None)
                near = near or next(iter(get_close_matches(key, known, 1)), None)
                hint = f"did you mean {near}?" if near else f"known are: {', '.join(sorted(known))}"
                raise ConfigError(self._below(key), f"is not known here; {hint}")

    def _below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def optional(self, key: str) -> Node | None:
        """The value of a key; null is as good as absent."""
        value = self._object().get(key)
        return None if value is None else Node(value, self._below(key))

    def required(self, key: str) -> Node:
        found = self.optional(key)
        if found is None:
            raise ConfigError(self._below(key), "is missing")
        return found

    def items(self) -> list[Node]:
        if not isinstance(self._value, list):
            raise self._wrong("a list")
        return [Node(value, f"{self.path}[{at}]") for at, value in enumerate(self._value)]

    def list_of(self, key: str) -> Iterable[Node]:
        found = self.optional(key)
        return () if found is None else found.items()

    def text(self) -> str:
        if not isinstance(self._value, str):
            raise self._wrong("a string")
        return self._value

    def scalar(self) -> str | int | float | bool:
        if not isinstance(self._value, (str, int, float)):
            raise self._wrong("a string, a number, true or false")
        return self._value

    def boolean(self, key: str, default: bool) -> bool:
        found = self.optional(key)
        if found is None:
            return default
        if not isinstance(found._value, bool):
            raise found._wrong("true or false")
        return found._value

    def integer(self, key: str, default: int, at_least: int, at_most: int) -> int:
        found = self.optional(key)
        if found is None:
            return default
        value = found._value
        if isinstance(value, bool) or not isinstance(value, int):
            raise found._wrong("a whole number")
        if not at_least <= value <= at_most:
            raise ConfigError(found.path, f"must be from {at_least} to {at_most}, not {value}")
        return value

    def duration(self, key: str, default: int | None, *, at_most: int | None = None) -> int | None:
        """Milliseconds; None for a time that never comes."""
        found = self.optional(key)
        if found is None:
            return default
        text = found.text()
        try:
            value = parse_duration(text)
        except ValueError as error:
            raise ConfigError(found.path, str(error)) from None
        if value <= 0:
            raise ConfigError(found.path, f"must be more than nothing, not {text}")
        if at_most is not None and value > at_most:
            raise ConfigError(found.path, f"must be at most {at_most // 1000} seconds, not {text}")
        return None if value >= FOREVER else value
