"""The body of a request, key by key, each of the type that the protocol gives it (wire-facts.md section 1.1).

The one rule: a value of another type is refused with its key and the type that is expected, never converted. A null is an absent key,
because some clients send every key they know. Text is UTF-8 or refused, because it comes back in answers that others must be able to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from spark_sb_mgmt.amqp.types import Array, Map, Symbol, Value, type_name
from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.message import MAX_ID_LENGTH
from spark_sb_mgmt.emulator.management.envelope import EncodedMap, is_utf8
from spark_sb_mgmt.operations import names


class Body:
    """A map of a request: its body, or one within that. `place` says which, in errors."""

    def __init__(self, given: Value | EncodedMap, place: str) -> None:
        if not isinstance(given, (Map, EncodedMap)):
            raise faults.argument_error(f"{_capital(place)} must be an AMQP map, not a {type_name(given)}.")
        self._given = given
        self.place = place

    @property
    def encoded(self) -> EncodedMap | None:
        """The map as it came, if it was not decoded to know that it is one."""
        return self._given if isinstance(self._given, EncodedMap) else None

    @cached_property
    def _pairs(self) -> Map:
        return self._given.decode() if isinstance(self._given, EncodedMap) else self._given

    def __contains__(self, key: str) -> bool:
        return key in self._pairs

    def optional(self, key: str, *kinds: str) -> Any:
        """The value of a key, None where it is absent or null."""
        value = self._pairs.get(key)
        if value is None or type_name(value) in kinds:
            return value
        raise faults.argument_error(f"`{key}` in {self.place} must be an AMQP {' or '.join(kinds)}, not a {type_name(value)}.")

    def required(self, key: str, *kinds: str) -> Any:
        value = self.optional(key, *kinds)
        if value is None:
            raise faults.argument_error(f"`{key}` (AMQP {' or '.join(kinds)}) is missing in {self.place}.")
        return value

    def integer(self, key: str, *kinds: str) -> int:
        return int(self.required(key, *kinds))

    def text(self, key: str) -> str:
        return self._utf8(key, self.required(key, "string"))

    def optional_text(self, key: str) -> str | None:
        value = self.optional(key, "string")
        return None if value is None else self._utf8(key, value)

    def _utf8(self, key: str, text: str) -> str:
        if is_utf8(text):
            return text
        raise faults.argument_error(f"`{key}` in {self.place} is not valid UTF-8.")

    def identifier(self, key: str) -> str:
        """A session-id or the like, as long as such may be."""
        return _limited(key, self.text(key))

    def optional_identifier(self, key: str) -> str | None:
        value = self.optional_text(key)
        return None if value is None else _limited(key, value)

    def several(self, key: str, of: str) -> tuple[Any, ...]:
        """The elements of an array, at least one."""
        array = self.required(key, "array")
        assert isinstance(array, Array), "that is what its type name says"
        if not array.items:
            raise faults.argument_error(f"`{key}` in {self.place} is empty; it must have at least one {of}.")
        if array.of != of or array.descriptor is not None:
            kind = "described value" if array.descriptor is not None else array.of
            raise faults.argument_error(f"`{key}` in {self.place} must be an AMQP array of {of}, not of {kind}.")
        return array.items

    def sequence_numbers(self) -> Sequence[int]:
        return self.several(names.SEQUENCE_NUMBERS, "long")

    def lock_tokens(self) -> Sequence[UUID]:
        return self.several(names.LOCK_TOKENS, "uuid")

    def map(self, key: str) -> Body:
        return Body(self.required(key, "map"), f"`{key}` of {self.place}")

    def optional_map(self, key: str) -> Body | None:
        value = self.optional(key, "map")
        return None if value is None else Body(value, f"`{key}` of {self.place}")

    def properties(self, key: str) -> Map:
        """Application properties: text to simple values (AMQP 1.0 part 3, section 3.2.5). An empty map where they are absent."""
        given: Map | None = self.optional(key, "map")
        for name, value in given or ():
            if type_name(name) != "string":
                raise faults.argument_error(f"The keys of `{key}` in {self.place} must be AMQP strings, not a {type_name(name)}.")
            if type_name(value) in ("list", "map", "array", "described"):
                raise faults.argument_error(
                    f"'{name:.80}' of `{key}` in {self.place} is an AMQP {type_name(value)}; application properties are simple values."
                )
            if not is_utf8(name) or (isinstance(value, str) and not is_utf8(value)):
                raise faults.argument_error(f"'{name:.80}' of `{key}` in {self.place} is not valid UTF-8.")
            if isinstance(value, Symbol) and not value.isascii():
                raise faults.argument_error(f"'{name:.80}' of `{key}` in {self.place} is an AMQP symbol that is not ASCII.")
        return Map() if given is None else given


def _limited(key: str, text: str) -> str:
    if len(text) > MAX_ID_LENGTH:
        raise faults.argument_out_of_range(f"`{key}` has {len(text)} characters; at most {MAX_ID_LENGTH} are allowed.")
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
