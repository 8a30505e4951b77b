"""What the server has to act on: values, taken by `Namespace.take_events()` after any call, never callbacks.

`entity` is the `path` of the entity that it is about.

The one rule: an event is a hint to look, not a promise. Whoever looks too late finds nothing and loses nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

# Who holds a lock: opaque to the core, a link to the server.
Holder = Hashable


class MessagesAvailable(NamedTuple):
    """Messages can be received from `entity`; on a session entity, from `session_id`, which `holder` has accepted."""

    entity: str
    session_id: str | None = None
    holder: Holder | None = None


class SessionAvailable(NamedTuple):
    """A session that nobody holds has messages, or a held one was let go: accept_session may now succeed."""

    entity: str


class SessionLockLost(NamedTuple):
    """The lock of `holder` on a session expired: its link is to be detached with com.microsoft:session-lock-lost."""

    entity: str
    session_id: str
    holder: Holder


Event = MessagesAvailable | SessionAvailable | SessionLockLost
