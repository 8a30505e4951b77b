"""Whether an entity has sessions at all, which rows that name one take for granted.

The one rule: it is asked before anything is done, for where there are none nobody promises that a session's id is not passed over.
"""

from __future__ import annotations

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.errors import ArgumentError
from spark_sb_mgmt.operations.sessions import get_message_sessions


def no_sessions(entity: EntityClient) -> ArgumentError | None:
    """How the service refuses to tell the sessions of an entity that has none."""
    try:
        entity.call(get_message_sessions(top=1))
    except ArgumentError as problem:
        return problem
    return None
