"""What the options of one kind of work are, once they are read.

The one rule: frozen, typed, and right, because only `options` makes them. No `repr` of these has a secret; pickled they have, because a
task has to connect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spark_sb_mgmt.operations.times import EPOCH


@dataclass(frozen=True)
class ConnectionOptions:
    """How to connect: by `connection_string`, or to `fully_qualified_namespace` with a `credential` of Entra ID."""

    connection_string: str | None = field(repr=False)
    fully_qualified_namespace: str | None
    credential: str | None
    tenant_id: str | None
    client_id: str | None
    client_secret: str | None = field(repr=False)
    transport: str
    ca_file: str | None
    server_timeout_ms: int
    max_retries: int
    pipeline_depth: int


@dataclass(frozen=True)
class OperationOptions:
    """What every operation has. `entities` are addresses; a write has one."""

    operation: str
    connection: ConnectionOptions
    entities: tuple[str, ...]


@dataclass(frozen=True)
class PeekOptions(OperationOptions):
    """peek-message. Sequence numbers: first inclusive, end exclusive; None where the end is open."""

    from_sequence_number: int | None
    until_sequence_number: int | None
    states: tuple[str, ...] | None
    enqueued_from: datetime | None
    enqueued_until: datetime | None
    session_id: str | None
    num_partitions: int | None
    page_size: int
    max_messages: int | None

    @property
    def enqueued_from_ms(self) -> int | None:
        return bound_ms(self.enqueued_from)

    @property
    def enqueued_until_ms(self) -> int | None:
        return bound_ms(self.enqueued_until)


@dataclass(frozen=True)
class ReceiveOptions(OperationOptions):
    """receive-by-sequence-number: `sequence_numbers` as ranges with exclusive ends, or None where a range is to be searched."""

    sequence_numbers: tuple[tuple[int, int], ...] | None
    from_sequence_number: int | None
    until_sequence_number: int | None
    receive_mode: str
    on_missing: str
    session_id: str | None
    num_partitions: int | None
    page_size: int


@dataclass(frozen=True)
class SessionsOptions(OperationOptions):
    """get-message-sessions; without a time all sessions."""

    last_updated_since: datetime | None


@dataclass(frozen=True)
class RulesOptions(OperationOptions):
    """enumerate-rules: nothing of its own."""


@dataclass(frozen=True)
class StreamOptions(OperationOptions):
    """peek-message as a stream. `starting_sequence_number` is `earliest`, `latest` or a number."""

    states: tuple[str, ...] | None
    session_id: str | None
    num_partitions: int | None
    page_size: int
    starting_sequence_number: int | str
    max_messages_per_trigger: int | None
    fail_on_data_loss: bool


@dataclass(frozen=True)
class WriteOptions(OperationOptions):
    """What every write operation has; those with more have a class of their own."""

    receipts_path: str | None
    row_key: str | None
    on_error: str

    @property
    def entity(self) -> str:
        return self.entities[0]


@dataclass(frozen=True)
class BatchedWriteOptions(WriteOptions):
    """Operations that send many rows in one request."""

    max_batch_messages: int


@dataclass(frozen=True)
class ScheduleOptions(BatchedWriteOptions):
    """schedule-message. `max_batch_bytes` None: what the link takes."""

    transactional: bool
    max_batch_bytes: int | None
    spread_seconds: float
    property_columns: tuple[str, ...]
    scheduled_enqueue_time: datetime | None


@dataclass(frozen=True)
class SettleOptions(BatchedWriteOptions):
    """update-disposition. `disposition_status` None: each row has its own."""

    transactional: bool
    disposition_status: str | None


@dataclass(frozen=True)
class PurgeOptions(BatchedWriteOptions):
    """batch-delete-messages. `enqueued_before` None: the start of the job."""

    enqueued_before: datetime | None


ReadOptions = PeekOptions | ReceiveOptions | SessionsOptions | RulesOptions


def bound_ms(moment: datetime | None) -> int | None:
    """A time as a bound on times of whole milliseconds: the first of these that is not before it."""
    return None if moment is None else -((EPOCH - moment) // timedelta(milliseconds=1))
