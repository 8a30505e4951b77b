"""Duplicate detection: the message ids that an entity accepted within its window.

The one rule: the first of equal ids wins and the later ones are acknowledged and dropped, so a sender may repeat itself safely.
"""

from __future__ import annotations

from collections import deque


class DuplicateHistory:
    def __init__(self, window: int) -> None:
        self.window = window
        self._accepted: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()

    def seen(self, message_id: str, now: int) -> bool:
        while self._order and self._order[0][0] + self.window <= now:
            time, old = self._order.popleft()
            if self._accepted.get(old) == time:
                del self._accepted[old]
        return message_id in self._accepted

    def remember(self, message_id: str, now: int) -> None:
        self._accepted[message_id] = now
        self._order.append((now, message_id))
