"""Addresses of entities as each SDK writes them (wire-facts.md section 3.4), to the one form that the namespace knows.

The one rule: scheme, host, slashes around and letter case mean nothing; the rest is the entity's path, which may have slashes of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MANAGEMENT = "$management"
_ABSOLUTE = re.compile(r"^[a-z][a-z0-9+.-]*://[^/]*", re.IGNORECASE)


class EntityAddress(NamedTuple):
    """`path` as it was written, `key` for comparison; `is_management` where the address is that of the management node."""

    path: str
    is_management: bool

    @property
    def key(self) -> str:
        return self.path.lower()


def parse_address(address: str) -> EntityAddress:
    """`amqps://host:5671/q`, `/q` and `q` are the same entity; `q/$management` is its management node."""
    path = _ABSOLUTE.sub("", address).strip("/")
    head, slash, tail = path.rpartition("/")
    if slash and tail.lower() == MANAGEMENT:
        return EntityAddress(head, True)
    return EntityAddress(path, False)
