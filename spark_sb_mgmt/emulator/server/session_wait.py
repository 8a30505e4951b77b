"""A receiver that asked for a session: attached when it has one, or refused when its time is over.

The one rule: the attach is answered once, with the session that was locked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proton import Link as ProtonLink

from spark_sb_mgmt.emulator.entities import Queue, ServiceBusFault
from spark_sb_mgmt.emulator.server.entity_links import ReceiverLink
from spark_sb_mgmt.emulator.server.link import Link, refuse
from spark_sb_mgmt.emulator.server.loop import Timer

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

TIMEOUT: Final = "com.microsoft:timeout"
# wire-facts.md section 3.4.
DEFAULT_TIMEOUT_MS: Final = 65_000


class SessionWait(Link):
    """`session_id` None waits for whichever comes first; a named session that another holds is refused at once."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, queue: Queue, session_id: str | None) -> None:
        super().__init__(connection, link, address, "Listen")
        self.queue = queue
        self._session_id = session_id
        self._timer: Timer | None = None

    def receiver(self) -> ReceiverLink | None:
        """The link with its session, or None if it has to wait."""
        receiver = ReceiverLink(self.connection, self.link, self.address, self.queue)
        session = self.queue.accept_session(receiver, self._session_id)
        if session is None:
            return None
        receiver.session = session
        return receiver

    def open(self) -> None:
        """Wait: the attach is not answered yet."""
        given = (self.link.remote_properties or {}).get(TIMEOUT)
        timeout = int(given) if isinstance(given, int) and given > 0 else DEFAULT_TIMEOUT_MS
        self.broker.waiting.setdefault(self.queue.path, {})[self] = None
        self._timer = self.broker.call_at(self.broker.now() + timeout, lambda: self.connection.guard(self._give_up))

    def try_again(self) -> None:
        """Attach if a session is there; if none is, go on waiting."""
        try:
            receiver = self.receiver()
        except ServiceBusFault as fault:
            self.detach(fault)
            return
        if receiver is not None:
            self._end()
            self.connection.links[self.link] = receiver
            receiver.open()

    def _give_up(self) -> None:
        self.detach(
            ServiceBusFault(
                408, "com.microsoft:timeout", f"No session of '{self.queue.path}' became available within the time that was asked for."
            )
        )

    def detach(self, fault: ServiceBusFault) -> None:
        if not self.is_gone:
            self._end()
            refuse(self.link, fault)

    def _end(self) -> None:
        self.gone(by_peer=False)
        self.connection.forget(self.link)

    def gone(self, *, by_peer: bool) -> None:
        super().gone(by_peer=by_peer)
        if self._timer is not None:
            self._timer.cancel()
        self.broker.waiting.get(self.queue.path, {}).pop(self, None)
