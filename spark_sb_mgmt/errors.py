"""The one tree of errors.

    SbMgmtError
    ├── LocalProtocolError             we were asked for something impossible; nothing was sent
    │   ├── EncodeError                a value that AMQP, or the row it came from, cannot carry
    │   ├── InvalidArgumentError       an argument that the operation cannot have
    │   ├── RequestTooLargeError       a request that the link does not take
    │   └── ClosedError                a client, or a part of it, that was closed already
    ├── RemoteProtocolError            the peer sent what the protocol does not allow
    │   └── DecodeError                bytes that are not the AMQP encoding they claim to be
    ├── ServiceBusError                the service refused; subclasses for what a caller may want to treat apart
    │   ├── ArgumentError              400, argument-error, not-allowed: the request itself is wrong
    │   ├── AuthenticationError        401: no right, or no valid token
    │   ├── EntityNotFoundError        404, amqp:not-found: queue, topic, subscription or rule
    │   ├── EntityAlreadyExistsError   409: such as a rule of that name
    │   ├── EntityDisabledError        the entity takes no such requests for now
    │   ├── MessageNotFoundError       404, message-not-found: gone, never there, or locked by another
    │   ├── MessageLockLostError       410: settle or renew came too late
    │   ├── MessageSizeExceededError   403: larger than the entity takes
    │   ├── NotSupportedError          501
    │   ├── OperationTimeoutError      408: the service's own time was over
    │   ├── QuotaExceededError         403: the entity is full, or a limit of the namespace is reached
    │   ├── ServerBusyError            503: throttled; `retry_after` if the service said how long
    │   ├── SessionCannotBeLockedError 410: another receiver has the session
    │   ├── SessionLockLostError       410: the session is no longer ours
    │   └── TransactionError           the transaction was rolled back, or is unknown
    ├── TransportError                 no answer, because the way to the service failed
    │   ├── ConnectionFailedError      no connection came about: name, TCP, TLS, WebSocket, SASL or open
    │   └── ConnectionLostError        a connection or link that ended while it was in use
    ├── DeadlineExceededError          our own time was over before an answer came
    ├── OutcomeUnknownError            a request that changes something was sent and its outcome is not known
    └── RowsFailedError                a write of many rows, some of which failed

Every error says what it is about (operation, entity), what the service said (status, condition, description), by what its operators find
the request (tracking_id, which was sent with it), and whether sending the same again can help (retryable); what is not known is None.
Every error pickles, because Spark carries it from a Python worker to the driver. No text in an error holds a secret: all that goes in is
scrubbed.

Which condition is which error, and which are transient, is wire-facts.md section 1.4 and AMQP 1.0 part 2, section 2.8.14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

_Error = TypeVar("_Error", bound="SbMgmtError")

# A peer may send a text of any length; a person reads the beginning.
_LONGEST_DESCRIPTION: Final = 2000

# Conditions that some operations take for "nothing there".
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
SESSION_NOT_FOUND: Final = "com.microsoft:session-not-found"

# Names as connection strings, our options and Python arguments spell them.
_NAME: Final = r"(?i)(shared_?access_?key|shared_?access_?signature|client_?secret|password)"
# Each goes up to the end of the value as its own syntax has it: of a connection string `;`, of a quoted text its quote, of a signature `&`.
_SECRETS: Final = (
    (re.compile(_NAME + r"([\"']?\s*[=:]\s*([\"']))(?:(?!\3).)+"), r"\1\2***"),
    (re.compile(_NAME + r"(\s*=\s*)[^;\r\n\"']+"), r"\1\2***"),
    # After a colon words may follow as well; a key has no spaces and is longer than they are.
    (re.compile(_NAME + r"(\s*:\s*)[\w+/=.~%-]{16,}"), r"\1\2***"),
    (re.compile(r"(?i)(SharedAccessSignature)\s+(?=\S*(?:sr|sig|se|skn)=)[^;\s\"']+"), r"\1 ***"),
    # Before it may stand `&`, also as `%26` where the whole was quoted once more: any digit, but no letter.
    (re.compile(r"(?i)(?<![a-z_])(sig)(=|%3d)[^&;\s\"']+"), r"\1\2***"),
    (re.compile(r"(?i)\b(Bearer)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), "***"),
)


def scrub(text: str) -> str:
    """The text without secrets: keys, signatures and tokens are replaced by three stars."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class SbMgmtError(Exception):
    """Root of all errors of this package."""

    operation: str | None = None
    entity: str | None = None
    # What the service said. `Any` stands for None: an error that always has these need not be asked whether it has.
    status: int | Any = None
    condition: str | Any = None
    description: str | Any = None
    tracking_id: str | None = None
    # Can the same request, sent again, succeed without anybody changing anything?
    retryable: bool = False
    # Seconds that the service asked to wait.
    retry_after: float | None = None
    # The service gave an answer that does not exclude that the request was carried out.
    may_have_taken_effect: bool = False

    def __init__(
        self,
        *args: object,
        operation: str | None = None,
        entity: str | None = None,
        status: int | None = None,
        condition: str | None = None,
        description: str | None = None,
        tracking_id: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        may_have_taken_effect: bool | None = None,
    ) -> None:
        # What is no text or number becomes text: an exception or a dict given here could hide a secret, and need not pickle.
        super().__init__(*(part if isinstance(part, (int, float, type(None))) else scrub(str(part)) for part in args))
        known = {
            "operation": operation,
            "entity": entity,
            "status": status,
            "condition": condition,
            "description": description,
            "tracking_id": tracking_id,
            "retryable": retryable,
            "retry_after": retry_after,
            "may_have_taken_effect": may_have_taken_effect,
        }
        for name, value in known.items():
            if value is not None:
                setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        # The one way in for every field of every subclass, and for whoever adds one later: none has to think of it.
        super().__setattr__(name, scrub(value) if isinstance(value, str) else value)

    @property
    def status_code(self) -> int | None:
        """`status`, by the name that it has in receipts."""
        return self.status

    def about(self: _Error, operation: str | None = None, entity: str | None = None, tracking_id: str | None = None) -> _Error:
        """This error, told what it is about by those who know; what it knows already stays."""
        if self.operation is None and operation is not None:
            self.operation = operation
        if self.entity is None and entity is not None:
            self.entity = entity
        if self.tracking_id is None and tracking_id is not None:
            self.tracking_id = tracking_id
        return self

    def __str__(self) -> str:
        text = super().__str__()
        about = " on ".join(part for part in (self.operation, self.entity) if part)
        said = (
            about,
            f"status {self.status}" if self.status is not None else "",
            self.condition,
            f"tracking id {self.tracking_id}" if self.tracking_id else "",
        )
        context = ", ".join(part for part in said if part)
        return f"{text} ({context})" if context else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own pickling calls __init__ with args; keyword attributes travel in __dict__.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[SbMgmtError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SbMgmtError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


# --- we erred -----------------------------------------------------------------------------------------------------------


class LocalProtocolError(SbMgmtError):
    """What the caller asked for cannot be said in the protocol; nothing was sent."""


class EncodeError(LocalProtocolError, ValueError):
    """A value that cannot be encoded. `row` is the position in its batch, where there is one."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        self.problem = message
        self.row = row
        super().__init__(message if row is None else f"row {row}: {message}")

    def at_row(self, row: int) -> EncodeError:
        """The same error, saying which row of the batch it is about."""
        return EncodeError(self.problem, row=row)


class InvalidArgumentError(LocalProtocolError, ValueError):
    """An argument that the operation cannot have. `argument` is its name; `row` its position, where the argument is a sequence."""

    def __init__(self, argument: str, problem: str, *, row: int | None = None, operation: str | None = None) -> None:
        self.argument = argument
        self.problem = scrub(problem)
        self.row = row
        super().__init__(f"{argument}{'' if row is None else f'[{row}]'} {problem}", operation=operation)


class RequestTooLargeError(LocalProtocolError):
    """A request larger than the link's max-message-size. The real service does not refuse it but lets it time out, so it is not sent.
    `row` is the position of the message that is too large on its own, where there is one."""

    def __init__(self, size: int, limit: int, *, row: int | None = None, operation: str | None = None, entity: str | None = None) -> None:
        self.size = size
        self.limit = limit
        self.row = row
        what = "the request" if row is None else f"row {row}: its request alone"
        super().__init__(
            f"{what} has {size} bytes, the link takes {limit} at most: send fewer messages at once, or smaller ones",
            operation=operation,
            entity=entity,
        )


class ClosedError(LocalProtocolError):
    """A client, an entity or a transaction was used after it was closed."""


# --- the peer erred -----------------------------------------------------------------------------------------------------


class RemoteProtocolError(SbMgmtError):
    """The peer broke the protocol. `correlation_id` tells which request's answer it was, if that could be read."""

    correlation_id: Any = None
    # An answer that cannot be read does not say what was done.
    may_have_taken_effect = True


class DecodeError(RemoteProtocolError, ValueError):
    """Bytes that do not decode. `offset` counts from the start of the buffer that was given;
    `message` is the position of the message in its batch, where there is one."""

    def __init__(self, problem: str, offset: int, *, message: int | None = None) -> None:
        self.problem = problem
        self.offset = offset
        self.message = message
        where = f"byte {offset}" if message is None else f"message {message}, byte {offset}"
        super().__init__(f"{problem} (at {where})")

    def at_message(self, message: int) -> DecodeError:
        """The same error, saying which message of the batch it is in."""
        return DecodeError(self.problem, self.offset, message=message)


# --- the service refused ------------------------------------------------------------------------------------------------


class ServiceBusError(SbMgmtError):
    """The service refused a request, or closed a link or connection with a reason."""


class ArgumentError(ServiceBusError):
    """The service finds the request wrong."""


class AuthenticationError(ServiceBusError):
    """No right to do this here, or no valid token."""


class EntityNotFoundError(ServiceBusError):
    """There is no such queue, topic, subscription or rule."""


class EntityAlreadyExistsError(ServiceBusError):
    """There is one of that name already, such as a rule."""


class EntityDisabledError(ServiceBusError):
    """The entity is disabled for this."""


class MessageNotFoundError(ServiceBusError):
    """The message is gone, never was there, or is locked by another: the service tells them not apart."""


class MessageLockLostError(ServiceBusError):
    """The lock of the message is over, or was never given."""


class MessageSizeExceededError(ServiceBusError):
    """The message is larger than the entity takes."""


class NotSupportedError(ServiceBusError):
    """The service does not do this, or not on such an entity."""


class OperationTimeoutError(ServiceBusError):
    """The service itself ran out of time."""


class QuotaExceededError(ServiceBusError):
    """The entity is full, or a limit of the namespace is reached."""


class ServerBusyError(ServiceBusError):
    """The service throttles. `retry_after` is the wait it asks for, in seconds, if it said so."""


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver holds the session."""


class SessionLockLostError(ServiceBusError):
    """The session is no longer held by us."""


class TransactionError(ServiceBusError):
    """The transaction was rolled back, timed out, or is not known to the service."""


# --- no answer ----------------------------------------------------------------------------------------------------------


class TransportError(SbMgmtError):
    """The way to the service failed."""

    retryable = True


class ConnectionFailedError(TransportError):
    """No connection came about. Where trying again is of no use (an untrusted certificate), `retryable` is false."""


class ConnectionLostError(TransportError):
    """A connection or link ended while it was in use."""


class DeadlineExceededError(SbMgmtError):
    """Our own deadline passed. `deadline` names which: connect, open, attach, token, put-token, request, declare, discharge; `seconds` is
    how long it was."""

    retryable = True

    def __init__(self, deadline: str, seconds: float, *, operation: str | None = None, entity: str | None = None) -> None:
        self.deadline = deadline
        self.seconds = seconds
        super().__init__(f"no answer within the {deadline} deadline of {seconds:g} s", operation=operation, entity=entity)


class OutcomeUnknownError(SbMgmtError):
    """A request that changes something was sent, and whether it took effect is not known. It was not sent again.
    `sent` says what it asked for, `reason` why there is no answer to rely on."""

    may_have_taken_effect = True

    def __init__(
        self,
        sent: str,
        reason: str,
        *,
        operation: str | None = None,
        entity: str | None = None,
        tracking_id: str | None = None,
    ) -> None:
        self.sent = sent
        self.reason = reason
        super().__init__(
            f"sent {sent}, and it is not known whether it took effect: {reason}. It was not sent again; look at the entity before you do",
            operation=operation,
            entity=entity,
            tracking_id=tracking_id,
        )


class RowsFailedError(SbMgmtError):
    """A write of many rows, `count` of which failed. `named` are the first of them, each with its reason; `kept` others were done, and
    stay so."""

    def __init__(self, count: int, named: Sequence[str], kept: int = 0, *, operation: str | None = None, entity: str | None = None) -> None:
        self.count = count
        self.kept = kept
        self.named = tuple(scrub(name) for name in named)
        more = f", and {count - len(named)} more" if count > len(named) else ""
        rows = "1 row" if count == 1 else f"{count} rows"
        others = f" {kept} others were done and stay so." if kept else ""
        # What the service says of a row ends with a point of its own.
        listed = "; ".join(name.rstrip(".") for name in self.named)
        super().__init__(
            f"{rows} failed: {listed}{more}.{others} With option onError=report such rows go to the receipts and the others count",
            operation=operation,
            entity=entity,
        )


# --- what the service's words mean --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meaning:
    """The error that a condition or a status stands for; whether it passes by itself; whether the request may have been carried out."""

    kind: type[ServiceBusError | TransportError]
    transient: bool = False
    uncertain: bool = False


_BUSY = Meaning(ServerBusyError, transient=True)
_TIMED_OUT = Meaning(OperationTimeoutError, transient=True, uncertain=True)
_INTERNAL = Meaning(ServiceBusError, transient=True, uncertain=True)
_LOST = Meaning(ConnectionLostError, transient=True, uncertain=True)
_BROKEN = Meaning(ConnectionLostError, uncertain=True)

CONDITIONS: Final[Mapping[str, Meaning]] = {
    "com.microsoft:argument-error": Meaning(ArgumentError),
    "com.microsoft:argument-out-of-range": Meaning(ArgumentError),
    "amqp:not-allowed": Meaning(ArgumentError),
    "amqp:invalid-field": Meaning(ArgumentError),
    "amqp:decode-error": Meaning(ArgumentError),
    "amqp:precondition-failed": Meaning(ServiceBusError),
    "com.microsoft:precondition-failed": Meaning(ServiceBusError),
    "amqp:unauthorized-access": Meaning(AuthenticationError),
    "com.microsoft:auth-failed": Meaning(AuthenticationError),
    "com.microsoft:publisher-revoked": Meaning(AuthenticationError),
    "amqp:not-found": Meaning(EntityNotFoundError),
    "amqp:resource-deleted": Meaning(EntityNotFoundError),
    MESSAGE_NOT_FOUND: Meaning(MessageNotFoundError),
    SESSION_NOT_FOUND: Meaning(ServiceBusError),
    "com.microsoft:entity-already-exists": Meaning(EntityAlreadyExistsError),
    "com.microsoft:entity-disabled": Meaning(EntityDisabledError),
    "amqp:resource-limit-exceeded": Meaning(QuotaExceededError),
    "amqp:link:message-size-exceeded": Meaning(MessageSizeExceededError),
    "com.microsoft:message-lock-lost": Meaning(MessageLockLostError),
    "com.microsoft:session-lock-lost": Meaning(SessionLockLostError),
    "com.microsoft:session-cannot-be-locked": Meaning(SessionCannotBeLockedError),
    "com.microsoft:store-lock-lost": Meaning(ServiceBusError),
    "com.microsoft:partition-not-owned": Meaning(ServiceBusError),
    "com.microsoft:no-matching-subscription": Meaning(ServiceBusError),
    "amqp:not-implemented": Meaning(NotSupportedError),
    "amqp:transaction:unknown-id": Meaning(TransactionError),
    "amqp:transaction:rollback": Meaning(TransactionError),
    "amqp:transaction:timeout": Meaning(TransactionError),
    "com.microsoft:server-busy": _BUSY,
    # Another has it for the moment; the request was refused.
    "amqp:resource-locked": Meaning(ServiceBusError, transient=True),
    "com.microsoft:timeout": _TIMED_OUT,
    "amqp:internal-error": _INTERNAL,
    "com.microsoft:operation-cancelled": _INTERNAL,
    "amqp:link:detach-forced": _LOST,
    "amqp:link:transfer-limit-exceeded": _LOST,
    "amqp:connection:forced": _LOST,
    # A second client took our place, or one of us does not keep to the protocol: opening it again only repeats that.
    "amqp:link:stolen": _BROKEN,
    "amqp:link:redirect": _BROKEN,
    "amqp:connection:redirect": _BROKEN,
    "amqp:connection:framing-error": _BROKEN,
    "amqp:session:window-violation": _BROKEN,
    "amqp:session:errant-link": _BROKEN,
    "amqp:session:handle-in-use": _BROKEN,
    "amqp:session:unattached-handle": _BROKEN,
    "amqp:illegal-state": _BROKEN,
    "amqp:frame-size-too-small": _BROKEN,
}

# Where no condition was sent, or one that nobody knows. 403 and 410 are several things, so they stay general.
STATUSES: Final[Mapping[int, Meaning]] = {
    400: Meaning(ArgumentError),
    401: Meaning(AuthenticationError),
    404: Meaning(EntityNotFoundError),
    408: _TIMED_OUT,
    409: Meaning(EntityAlreadyExistsError),
    429: _BUSY,
    501: Meaning(NotSupportedError),
    503: _BUSY,
    504: _TIMED_OUT,
}

_WAIT: Final = re.compile(
    r"(?i)\b(?:wait|retry)(?: for| after| in)?(?: at least)?\s+(\d{1,6}(?:\.\d{1,6})?)\s*(milliseconds?|ms|seconds?|s|minutes?)\b"
)
_SECONDS: Final = {"milliseconds": 0.001, "ms": 0.001, "seconds": 1.0, "s": 1.0, "minutes": 60.0}


def retry_after(description: str | None) -> float | None:
    """The seconds that a throttled answer asks to wait, as in "Please wait 4 seconds and try again"."""
    found = _WAIT.search(description or "")
    if found is None:
        return None
    unit = found[2].lower()
    return float(found[1]) * (_SECONDS.get(unit) or _SECONDS[f"{unit}s"])


def error_from_response(
    status: int,
    condition: str | None,
    description: str | None,
    tracking_id: str | None = None,
    operation: str | None = None,
    entity: str | None = None,
) -> SbMgmtError:
    """The error that an answer stands for: by its condition, else by its status. Which statuses are errors is for the operation to say."""
    meaning = CONDITIONS.get(condition or "") or STATUSES.get(status)
    if meaning is None and 400 <= status < 600:
        meaning = _INTERNAL if status >= 500 else Meaning(ServiceBusError)
    if meaning is None:
        return RemoteProtocolError(
            f"the service answered with status {status}, which no management operation has: {_said(description)}",
            operation=operation,
            entity=entity,
            status=status,
            condition=condition,
            description=description,
            tracking_id=tracking_id,
        )
    if issubclass(meaning.kind, TransportError):
        # The condition of a link, but in an answer: the link lives, the request was refused.
        meaning = Meaning(ServiceBusError, meaning.transient, meaning.uncertain)
    return _made(meaning, _said(description), status, condition, description, tracking_id, operation, entity)


def error_from_condition(
    condition: str | None,
    description: str | None,
    operation: str | None = None,
    entity: str | None = None,
    *,
    ended: str = "link",
) -> SbMgmtError:
    """The error that the end of a link, session or connection stands for. One without a condition, or with one that nobody knows, counts
    as lost: it can be opened again."""
    meaning = CONDITIONS.get(condition or "", _LOST)
    return _made(meaning, f"the service closed the {ended}: {_said(description)}", None, condition, description, None, operation, entity)


def _said(description: str | None) -> str:
    return _cut(description or "").strip() or "the service gave no description"


def _cut(description: str) -> str:
    # Scrubbed first: half a secret no longer looks like one.
    return scrub(description)[:_LONGEST_DESCRIPTION]


def _made(
    meaning: Meaning,
    text: str,
    status: int | None,
    condition: str | None,
    description: str | None,
    tracking_id: str | None,
    operation: str | None,
    entity: str | None,
) -> SbMgmtError:
    return meaning.kind(
        text,
        operation=operation,
        entity=entity,
        status=status,
        condition=condition,
        description=None if description is None else _cut(description),
        tracking_id=tracking_id,
        retryable=meaning.transient,
        retry_after=retry_after(description) if meaning.transient else None,
        may_have_taken_effect=meaning.uncertain,
    )
