"""The path of an entity, as the client takes it (wire-facts.md, section 3.4).

The one rule: a path that cannot be one is refused here, not after a connection was opened for it.
"""

from __future__ import annotations

from typing import Final

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations import names

# 260 characters of an entity's path; a subscription and a sub-queue come on top.
_LONGEST_PATH: Final = 512


def check_path(path: str) -> str:
    """The path without slashes around it, if it can be an entity's."""
    if not isinstance(path, str):
        raise InvalidArgumentError("path", f"is {path!r:.80}: it must be the path of an entity, a text")
    trimmed = path.strip("/")
    if not trimmed or trimmed != trimmed.strip():
        raise InvalidArgumentError("path", f"is {path!r:.80}: it must be the path of an entity")
    if len(trimmed) > _LONGEST_PATH:
        raise InvalidArgumentError("path", f"has {len(trimmed)} characters, more than any entity has: {trimmed[:40]!r}...")
    if trimmed.lower().endswith(names.MANAGEMENT_NODE):
        raise InvalidArgumentError("path", f"is {path!r:.80}: give the entity, its {names.MANAGEMENT_NODE} is found by itself")
    return trimmed
