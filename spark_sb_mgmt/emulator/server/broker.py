"""The heart of the server: the namespace, the connections, and the turns in which they meet.

The one rule: at the end of a turn, and only there, what happened is told to receivers, then the journal is committed, then answers leave.
Nothing is acknowledged that is not on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from spark_sb_mgmt.emulator.clock import Clock
from spark_sb_mgmt.emulator.entities import MessagesAvailable, Namespace, ServiceBusFault, SessionAvailable
from spark_sb_mgmt.emulator.entities.addresses import parse_address
from spark_sb_mgmt.emulator.entities.faults import session_lock_lost
from spark_sb_mgmt.emulator.fault_script import NO_FAULTS, Action, FaultScript, Plan
from spark_sb_mgmt.emulator.management import Management
from spark_sb_mgmt.emulator.server.authorization import Policies
from spark_sb_mgmt.emulator.server.byte_streams import ByteStream
from spark_sb_mgmt.emulator.server.connection import AmqpConnection
from spark_sb_mgmt.emulator.server.entity_links import ReceiverLink
from spark_sb_mgmt.emulator.server.link import DETACH_FORCED, Link
from spark_sb_mgmt.emulator.server.loop import Callback, Loop, Timer

if TYPE_CHECKING:
    from proton import Link as ProtonLink

    from spark_sb_mgmt.emulator.server.controls import CommandConnection
    from spark_sb_mgmt.emulator.server.session_wait import SessionWait

_MAX_OPERATIONS: Final = 1000
TIMED_OUT: Final = ServiceBusFault(408, "com.microsoft:timeout", "The operation did not complete within the time that the request allowed.")


class Broker:
    def __init__(
        self,
        namespace: Namespace,
        management: Management,
        policies: Policies,
        clock: Clock,
        *,
        commit: Callback,
        attach: Callable[[AmqpConnection, ProtonLink], Link | None],
        idle_timeout: float,
    ) -> None:
        self.namespace = namespace
        self.management = management
        self.policies = policies
        self.faults = FaultScript()
        self.idle_timeout = idle_timeout
        self.loop = Loop(self._end_of_turn)
        # By path of the entity, in the order in which they come to be served.
        self.receivers: dict[str, dict[ReceiverLink, None]] = {}
        self.waiting: dict[str, dict[SessionWait, None]] = {}
        self.connections: set[AmqpConnection] = set()
        self.commanders: set[CommandConnection] = set()
        # How many requests of each operation there were.
        self.requests: Counter[str] = Counter()
        self._clock = clock
        self._commit = commit
        self._attach = attach
        self._touched: dict[AmqpConnection, None] = {}
        self._service_timers: list[Timer] = []
        self._wake: Timer | None = None
        self._idle_timer: Timer | None = None

    # Connections

    def refuses(self) -> bool:
        """Whether a new connection is to be turned away."""
        return bool(self.faults) and self.faults.take_refusal()

    def accept(self, stream: ByteStream) -> None:
        self.connections.add(AmqpConnection(self, stream, self._attach))

    def forget(self, connection: AmqpConnection) -> None:
        self.connections.discard(connection)
        self._touched.pop(connection, None)

    def touch(self, connection: AmqpConnection) -> None:
        """It may have something to send."""
        self._touched[connection] = None

    # Time

    def now(self) -> int:
        """Milliseconds of the service's clock."""
        return self._clock()

    def call_at(self, when: int, callback: Callback) -> Timer:
        """At a time of the service's clock."""
        timer = Timer(when, callback)
        heappush(self._service_timers, timer)
        return timer

    # Requests, and what goes wrong with them on purpose

    def count_request(self, operation: str) -> None:
        # Names that there are not are the client's to choose, and so not all are kept.
        if operation in self.requests or len(self.requests) < _MAX_OPERATIONS:
            self.requests[operation] += 1

    def perform(
        self,
        link: Link,
        plan: Plan,
        act: Callable[[], Callback],
        refuse: Callable[[ServiceBusFault], None],
        timeout: float | None = None,
    ) -> None:
        """Do what a client asked for, then answer it. `act` has the effect and gives the answer, which is sent by calling it. What cannot
        be started within `timeout` seconds, the client's server-timeout, is not done."""
        self.touch(link.connection)
        if plan is NO_FAULTS:
            act()()
        elif timeout is not None and plan.delay_before > timeout:
            self._later(timeout, link, lambda: refuse(TIMED_OUT))
        elif plan.delay_before:
            self._later(plan.delay_before, link, lambda: self._perform(link, plan, act, refuse))
        else:
            self._perform(link, plan, act, refuse)

    def _perform(self, link: Link, plan: Plan, act: Callable[[], Callback], refuse: Callable[[ServiceBusFault], None]) -> None:
        if plan.drop_before is not None:
            _drop(link, plan.drop_before)
        elif plan.refusal is not None:
            refuse(plan.refusal)
        else:
            answer = act()
            if plan.drop_after is not None:
                _drop(link, plan.drop_after)
            elif plan.lose_reply:
                return
            elif plan.delay_after:
                self._later(plan.delay_after, link, answer)
            else:
                answer()

    def _later(self, seconds: float, link: Link, work: Callback) -> None:
        def go_on() -> None:
            if not link.is_gone:
                self.touch(link.connection)
                link.connection.guard(work)

        self.loop.call_later(seconds, go_on)

    def watch_idle(self) -> None:
        """Detach what was idle too long, as long as a fault says so."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        limits = list(self.faults.idle_limits())
        for key, fault in limits:
            now = self.loop.time()
            for connection in list(self.connections):
                for link in list(connection.links.values()):
                    is_idle = now - link.last_active >= fault.wait and fault.applies_to("", parse_address(link.address).path)
                    if is_idle and self.faults.strikes(key):
                        link.detach(DETACH_FORCED)
        if limits:
            self._idle_timer = self.loop.call_later(max(0.01, min(fault.wait for _, fault in limits) / 4), self.watch_idle)

    # The end of a turn

    def _end_of_turn(self) -> None:
        self._run_due()
        self._tell_receivers()
        self._commit()
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()
        self._set_wake()

    def _run_due(self) -> None:
        now = self.now()
        due = self.namespace.next_event()
        if due is not None and due <= now:
            self.namespace.advance(now)
        while self._service_timers and self._service_timers[0].when <= now:
            heappop(self._service_timers).run()

    def _tell_receivers(self) -> None:
        # Again until it is quiet: what one receiver does may matter to another.
        while events := self.namespace.take_events():
            for event in events:
                if isinstance(event, MessagesAvailable):
                    self._deliver(event)
                elif isinstance(event, SessionAvailable):
                    self._offer_sessions(event.entity)
                elif isinstance(event.holder, ReceiverLink):
                    receiver, fault = event.holder, session_lock_lost(event.session_id)
                    receiver.connection.guard(partial(receiver.detach, fault))

    def _deliver(self, event: MessagesAvailable) -> None:
        if isinstance(event.holder, ReceiverLink):
            event.holder.connection.guard(event.holder.pump)
            return
        receivers = self.receivers.get(event.entity, {})
        for receiver in list(receivers):
            receiver.connection.guard(receiver.pump)
            if receiver in receivers:
                # To the end of the line: next time another is the first.
                del receivers[receiver]
                receivers[receiver] = None

    def _offer_sessions(self, entity: str) -> None:
        for wait in list(self.waiting.get(entity, ())):
            wait.connection.guard(wait.try_again)
            if not wait.is_gone:
                # There was none for it, so there is none for those behind it.
                break

    def _set_wake(self) -> None:
        if self._touched:
            self.loop.call_soon(lambda: None)
        if not self._clock.moves_by_itself:
            return
        dues = [
            due for due in (self.namespace.next_event(), self._service_timers[0].when if self._service_timers else None) if due is not None
        ]
        if not dues:
            return
        when = self.loop.time() + max(0, min(dues) - self.now()) / 1000
        # A wake that is too early does no harm and sets the next; a new one every turn would pile up.
        if self._wake is None or when < self._wake.when - 0.001:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = self.loop.call_at(when, self._woken)

    def _woken(self) -> None:
        self._wake = None


def _drop(link: Link, action: Action) -> None:
    if action == "drop-link":
        link.detach(DETACH_FORCED)
    else:
        link.connection.drop(by_peer=False)
