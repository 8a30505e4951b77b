"""Several requests that take effect together or not at all (wire-facts.md, section 3.7).

The one rule: left by its end it is committed, left by an exception it is rolled back; and where nobody can know which of the two happened,
the error says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.client.pipeline import pipeline
from spark_sb_mgmt.client.scheduling import ToSchedule, schedule
from spark_sb_mgmt.client.told import operation, told
from spark_sb_mgmt.connection.channel import Channel, Outcome, TransactionHandle
from spark_sb_mgmt.connection.coordinator import Coordinator
from spark_sb_mgmt.errors import ClosedError, InvalidArgumentError, OutcomeUnknownError, SbMgmtError, TransactionError
from spark_sb_mgmt.operations import settle
from spark_sb_mgmt.operations.envelope import Request

T = TypeVar("T")


class Transaction:
    """`with entity.transaction() as txn:`. The service takes up to 100 messages in one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._handle: TransactionHandle | None = None

    def __enter__(self) -> Transaction:
        with told("declare", self._channel.entity):
            self._handle = self._declare()
        return self

    def _declare(self) -> TransactionHandle:
        if self._handle is not None:
            raise ClosedError("a transaction is entered once")
        links = self._channel.links()
        connection = self._channel.connection
        with connection.driving():
            coordinator = Coordinator(links.engine)
            try:
                coordinator.attach(connection.deadline("attach", connection.settings.attach_timeout_s))
                transaction_id = coordinator.declare(connection.deadline("declare", connection.settings.request_timeout_s))
            except SbMgmtError:
                coordinator.close()
                raise
        return TransactionHandle(coordinator, transaction_id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if error is None:
            self._commit(handle)
            return
        # The service rolls back by itself when the link goes; what the user is to see is why the block was left.
        with suppress(SbMgmtError):
            self._discharge(handle, fail=True)

    def rollback(self) -> None:
        """End it now, with nothing done."""
        handle, self._handle = self._need(), None
        self._discharge(handle, fail=True)

    @operation
    def schedule_message(self, messages: ToSchedule) -> list[int]:
        """As `EntityClient.schedule_message`, within the transaction."""
        return schedule(self.call, messages)

    @operation
    def update_disposition(
        self,
        disposition_status: str,
        lock_tokens: Iterable[UUID | str],
        deadletter_reason: str | None = None,
        deadletter_description: str | None = None,
        properties_to_modify: Mapping[str, Any] | Map | None = None,
        session_id: str | None = None,
    ) -> None:
        self.call(
            settle.update_disposition(
                disposition_status, lock_tokens, deadletter_reason, deadletter_description, properties_to_modify, session_id
            )
        )

    def call(self, request: Request[T]) -> T:
        """Any request that may be part of a transaction."""
        return self._channel.call(_transactional(request), self._need())

    def pipeline(self, requests: Iterable[Request[T]], depth: int | None = None) -> Iterator[tuple[int, Outcome[T]]]:
        """As `EntityClient.pipeline`, within the transaction."""
        return pipeline(self._channel, map(_transactional, requests), depth, self._need())

    def _need(self) -> TransactionHandle:
        if self._handle is None:
            raise ClosedError("the transaction has ended, or was not entered", entity=self._channel.entity)
        return self._handle

    def _commit(self, handle: TransactionHandle) -> None:
        entity = self._channel.entity
        try:
            self._discharge(handle, fail=False)
        except SbMgmtError as problem:
            problem.about("discharge", entity)
            if problem.may_have_taken_effect:
                unknown = OutcomeUnknownError("discharge of a transaction", str(problem), operation="discharge", entity=entity)
                raise unknown from problem
            raise

    def _discharge(self, handle: TransactionHandle, *, fail: bool) -> None:
        connection = self._channel.connection
        with connection.driving():
            deadline = connection.deadline("discharge", connection.settings.request_timeout_s)
            # What came while nobody listened: a transaction that was lost meanwhile is rolled back, and not in doubt.
            handle.coordinator.engine.step(0.0)
            try:
                if not handle.is_alive:
                    raise TransactionError("the connection was lost, and with it the transaction: the service rolls it back")
                handle.coordinator.discharge(handle.transaction_id, fail, deadline)
            finally:
                handle.coordinator.close()


def _transactional(request: Request[T]) -> Request[T]:
    if not request.transactional:
        raise InvalidArgumentError(
            "request", f"is {request.name}, which no transaction can have: schedule-message and update-disposition can"
        )
    return request
