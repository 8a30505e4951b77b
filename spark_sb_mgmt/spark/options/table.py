"""Every option there is: its name, what it is for, its kind, its default and its meaning (CONTRACT sections 1.1 to 1.4).

The one rule: what is known of an option stands in its line here and nowhere else; parsing, errors and the README's tables follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_sb_mgmt.amqp.columns import STATES
from spark_sb_mgmt.connection.credentials import ENTRA_CREDENTIALS
from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS, MAX_PAGE_SIZE
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.names import short_name
from spark_sb_mgmt.operations.settle import DISPOSITIONS
from spark_sb_mgmt.spark.options import values as kinds
from spark_sb_mgmt.spark.options.values import Kind

PEEK: Final = short_name(names.PEEK_MESSAGE)
RECEIVE: Final = short_name(names.RECEIVE_BY_SEQUENCE_NUMBER)
SESSIONS: Final = short_name(names.GET_MESSAGE_SESSIONS)
RULES: Final = short_name(names.ENUMERATE_RULES)
SCHEDULE: Final = short_name(names.SCHEDULE_MESSAGE)
CANCEL: Final = short_name(names.CANCEL_SCHEDULED_MESSAGE)
SETTLE: Final = short_name(names.UPDATE_DISPOSITION)
RENEW_LOCK: Final = short_name(names.RENEW_LOCK)
RENEW_SESSION_LOCK: Final = short_name(names.RENEW_SESSION_LOCK)
SET_SESSION_STATE: Final = short_name(names.SET_SESSION_STATE)
ADD_RULE: Final = short_name(names.ADD_RULE)
REMOVE_RULE: Final = short_name(names.REMOVE_RULE)
PURGE: Final = short_name(names.BATCH_DELETE_MESSAGES)
READ_OPERATIONS: Final = (PEEK, RECEIVE, SESSIONS, RULES)
WRITE_OPERATIONS: Final = (
    SCHEDULE,
    CANCEL,
    SETTLE,
    RENEW_LOCK,
    RENEW_SESSION_LOCK,
    SET_SESSION_STATE,
    ADD_RULE,
    REMOVE_RULE,
    PURGE,
)
EVERY_OPERATION: Final = (*READ_OPERATIONS, *WRITE_OPERATIONS)

CONNECTION_STRING_VARIABLE: Final = "SBMGMT_CONNECTION_STRING"
# A batch is at most 4500 messages, a transaction 100 (wire-facts.md, section 4); what arrays of numbers and tokens may have is not known.
MOST_BATCH_MESSAGES: Final = 4500
MOST_TRANSACTION_MESSAGES: Final = 100
DEFAULT_BATCH_MESSAGES: Final = 500

BATCH, STREAM = "batch", "stream"


@dataclass(frozen=True)
class Option:
    """One option. `shown_default` is the default in words, where the value does not say it. A `secret` value is in no text: that is also
    said of options where people put a secret by mistake."""

    name: str
    kind: Kind
    meaning: str
    operations: tuple[str, ...] = EVERY_OPERATION
    default: Any = None
    shown_default: str = "-"
    secret: bool = False
    modes: tuple[str, ...] = (BATCH, STREAM)

    @property
    def field(self) -> str:
        """Its name in Python."""
        return re.sub(r"([A-Z])", r"_\1", self.name).lower()

    @property
    def default_text(self) -> str:
        """The default as documents show it."""
        if self.default is None or self.default == ():
            return self.shown_default
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


_NUMBER = kinds.integer(0, END_OF_NUMBERS - 1)
_BATCHED = (SCHEDULE, CANCEL, SETTLE, RENEW_LOCK, PURGE)
_READ_BATCH = (BATCH,)

COMMON_OPTIONS: Final = (
    Option(
        "connectionString",
        kinds.TEXT,
        "Service Bus connection string",
        shown_default=f"environment variable {CONNECTION_STRING_VARIABLE} on the driver",
        secret=True,
    ),
    Option("fullyQualifiedNamespace", kinds.TEXT, "<ns>.servicebus.windows.net, with credential"),
    Option("credential", kinds.choice(*ENTRA_CREDENTIALS), "Entra ID through azure-identity", secret=True),
    Option("tenantId", kinds.TEXT, "with credential clientSecret"),
    Option("clientId", kinds.TEXT, "with credential managedIdentity or clientSecret"),
    Option("clientSecret", kinds.TEXT, "with credential clientSecret", secret=True),
    Option("queue", kinds.TEXT, "name of a queue"),
    Option("topic", kinds.TEXT, "name of a topic; alone, or with subscription"),
    Option("subscription", kinds.TEXT, "name of a subscription of topic"),
    Option("entityPath", kinds.TEXT, "the address as it is; for reads several, divided by commas"),
    Option("subQueue", kinds.choice("deadLetter", "transferDeadLetter"), "the entity's dead-letter queue instead of itself"),
    Option("operation", kinds.TEXT, "what to do", shown_default=f"{PEEK} on read, {SCHEDULE} on write"),
    Option("transport", kinds.choice("amqp", "amqpWebSocket"), "AMQP over TLS (5671) or over a WebSocket (443)", default="amqp"),
    Option("caFile", kinds.FILE, "PEM file of extra trusted CAs", shown_default="system store"),
    Option("serverTimeoutMs", kinds.integer(1, 2**32 - 1), "how long the service may take for one request", default=60_000),
    Option("maxRetries", kinds.integer(0, 1000), "how often a transient failure is tried again", default=5),
    Option("pipelineDepth", kinds.integer(1, 1000), "requests in flight on one link pair", default=8),
)
READ_OPTIONS: Final = (
    Option(
        "fromSequenceNumber", _NUMBER, "first sequence number, inclusive", (PEEK, RECEIVE), shown_default="the lowest", modes=_READ_BATCH
    ),
    Option(
        "untilSequenceNumber",
        kinds.integer(0, END_OF_NUMBERS),
        "end of the sequence numbers, exclusive",
        (PEEK, RECEIVE),
        shown_default="open",
        modes=_READ_BATCH,
    ),
    Option("states", kinds.choices(*STATES), "only messages in these states", (PEEK,), shown_default="all"),
    Option("enqueuedFrom", kinds.TIME, "only messages enqueued then or later", (PEEK,), modes=_READ_BATCH),
    Option("enqueuedUntil", kinds.TIME, "only messages enqueued before then", (PEEK,), modes=_READ_BATCH),
    Option("sessionId", kinds.ANY_TEXT, "only messages of this session", (PEEK, RECEIVE)),
    Option(
        "numPartitions",
        kinds.integer(1, 100_000),
        "tasks of the read, as far as there are numbers to share",
        (PEEK, RECEIVE),
        shown_default="by size, 32 at most",
    ),
    Option("pageSize", kinds.integer(1, MAX_PAGE_SIZE), "messages of one request", (PEEK, RECEIVE), default=250),
    Option(
        "maxMessages",
        kinds.integer(1, END_OF_NUMBERS - 1),
        "rows at most; the read is then one task",
        (PEEK,),
        shown_default="all",
        modes=_READ_BATCH,
    ),
    Option("sequenceNumbers", kinds.NUMBERS, "which deferred messages", (RECEIVE,), modes=_READ_BATCH),
    Option(
        "receiveMode",
        kinds.choice("peekLock", "receiveAndDelete"),
        "lock the messages, or take them away for good",
        (RECEIVE,),
        default="peekLock",
        modes=_READ_BATCH,
    ),
    Option(
        "onMissing",
        kinds.choice("fail", "skip", "report"),
        "a message that is missing or locked fails the read, gives no row, or a row with column status",
        (RECEIVE,),
        default="fail",
        modes=_READ_BATCH,
    ),
    Option(
        "lastUpdatedSince", kinds.TIME, "only sessions whose state was set after then", (SESSIONS,), shown_default="all", modes=_READ_BATCH
    ),
)
STREAM_OPTIONS: Final = (
    Option(
        "startingSequenceNumber",
        kinds.integer_or(0, END_OF_NUMBERS - 1, "earliest", "latest"),
        "where a query without a checkpoint starts",
        (PEEK,),
        default="latest",
        modes=(STREAM,),
    ),
    Option(
        "maxMessagesPerTrigger",
        kinds.integer(1, END_OF_NUMBERS - 1),
        "messages of one micro-batch at most; PySpark 4.2 and newer",
        (PEEK,),
        shown_default="all",
        modes=(STREAM,),
    ),
    Option(
        "failOnDataLoss",
        kinds.FLAG,
        "whether a planned micro-batch whose messages are gone fails",
        (PEEK,),
        default=True,
        modes=(STREAM,),
    ),
)
WRITE_OPTIONS: Final = (
    Option("receiptsPath", kinds.TEXT, "directory for the receipts, as Parquet", WRITE_OPERATIONS),
    Option("rowKey", kinds.TEXT, "column that is copied to the receipts and names rows in errors", WRITE_OPERATIONS),
    Option(
        "onError", kinds.choice("fail", "report"), "a row that fails fails the job, or is in the receipts", WRITE_OPERATIONS, default="fail"
    ),
    Option("transactional", kinds.FLAG, "each request in an AMQP transaction, 100 messages at most", (SCHEDULE, SETTLE), default=False),
    Option("maxBatchBytes", kinds.integer(1, 2**31 - 1), "bytes of one request at most", (SCHEDULE,), shown_default="what the link takes"),
    Option(
        "maxBatchMessages",
        kinds.integer(1, MOST_BATCH_MESSAGES),
        "messages of one request at most",
        _BATCHED,
        shown_default=f"{DEFAULT_BATCH_MESSAGES}, in a transaction {MOST_TRANSACTION_MESSAGES}",
    ),
    Option("spreadSeconds", kinds.SECONDS, "enqueue times are put off by a random time up to this", (SCHEDULE,), default=0.0),
    Option("propertyColumns", kinds.NAMES, "columns that become application properties", (SCHEDULE,), default=()),
    Option("scheduledEnqueueTime", kinds.TIME, "when to enqueue, for rows without that column", (SCHEDULE,)),
    Option("dispositionStatus", kinds.choice(*DISPOSITIONS), "what to settle to, for rows without that column", (SETTLE,)),
    Option("enqueuedBefore", kinds.TIME, "only messages enqueued before then", (PURGE,), shown_default="start of the job"),
)
OPTIONS: Final = (*COMMON_OPTIONS, *READ_OPTIONS, *STREAM_OPTIONS, *WRITE_OPTIONS)
BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
# Spark hands these to a streaming sink along with the sink's own.
SPARKS_OWN: Final = frozenset(("checkpointlocation", "queryname"))


def options_of(operation: str, mode: str) -> Iterable[Option]:
    """The options that an operation has in a batch or a stream."""
    return (option for option in OPTIONS if operation in option.operations and mode in option.modes)
