"""Locks whose holder is gone.

Its messages go to whoever asks next. Until somebody does, the holder may still settle them by their tokens over another link, as clients
do when their receiver was closed (wire-facts.md section 5, row 9).

The one rule: a former lock is good as long as the lock would have been, and no longer than until the message is taken or leaves.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from spark_sb_mgmt.emulator.entities.events import Holder


class FormerLock(NamedTuple):
    sequence_number: int
    until: int


# Has what is taken back. Not the former holder: that one is gone, and must not be kept from going.
FORMER_HOLDER: Final[Holder] = "former"


class FormerLocks:
    def __init__(self) -> None:
        self._by_token: dict[UUID, FormerLock] = {}
        self._tokens: dict[int, UUID] = {}

    def add(self, token: UUID, former: FormerLock) -> None:
        self._by_token[token] = former
        self._tokens[former.sequence_number] = token

    def find(self, token: UUID, now: int) -> FormerLock | None:
        """What this token still stands for."""
        former = self._by_token.get(token)
        return None if former is None or former.until <= now else former

    def forget(self, sequence_number: int) -> None:
        """The message was taken, or is gone."""
        token = self._tokens.pop(sequence_number, None)
        if token is not None:
            del self._by_token[token]
