"""What the service answers when it refuses: one error type, with the conditions of wire-facts.md section 1.4.

The one rule: a fault carries everything that a link (condition, description) or a management response (status as well) must say, so
that neither has to translate.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from spark_sb_mgmt.errors import SbMgmtError


class ServiceBusFault(SbMgmtError):  # noqa: N818 - the service answered, as it should; the caller erred
    """The emulated service refuses a request. `status` is the management status code, `condition` the AMQP error condition."""

    def __init__(self, status: int, condition: str, description: str) -> None:
        self.status = status
        self.condition = condition
        self.description = description
        super().__init__(status, condition, description)

    def __str__(self) -> str:
        return f"{self.status} {self.condition}: {self.description}"


def _maker(status: int, condition: str) -> Any:
    def make(description: str) -> ServiceBusFault:
        return ServiceBusFault(status, condition, description)

    return make


not_allowed = _maker(400, "amqp:not-allowed")
decode_error = _maker(400, "amqp:decode-error")
argument_error = _maker(400, "com.microsoft:argument-error")
argument_out_of_range = _maker(400, "com.microsoft:argument-out-of-range")
message_size_exceeded = _maker(403, "amqp:link:message-size-exceeded")
resource_limit_exceeded = _maker(403, "amqp:resource-limit-exceeded")
entity_already_exists = _maker(409, "com.microsoft:entity-already-exists")


def entity_not_found(address: str) -> ServiceBusFault:
    return ServiceBusFault(404, "amqp:not-found", f"The messaging entity '{address:.260}' could not be found.")


def message_not_found(what: str) -> ServiceBusFault:
    return ServiceBusFault(404, "com.microsoft:message-not-found", what)


def rule_not_found(rule_name: str, entity: str) -> ServiceBusFault:
    # In the words for an entity: by them the JavaScript SDK tells what is missing from a service that cannot be reached.
    what = f"The messaging entity '{entity}|{rule_name:.50}' could not be found: there is no rule '{rule_name:.50}'."
    return ServiceBusFault(404, "amqp:not-found", what)


def message_lock_lost(token: UUID) -> ServiceBusFault:
    return ServiceBusFault(
        410,
        "com.microsoft:message-lock-lost",
        f"The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue. "
        f"Lock token: {token}.",
    )


def session_lock_lost(session_id: str) -> ServiceBusFault:
    return ServiceBusFault(
        410,
        "com.microsoft:session-lock-lost",
        f"The session lock has expired on the MessageSession. Accept a new MessageSession. Session: '{session_id:.128}'.",
    )


def session_cannot_be_locked(session_id: str) -> ServiceBusFault:
    return ServiceBusFault(
        410,
        "com.microsoft:session-cannot-be-locked",
        f"The requested session '{session_id:.128}' cannot be accepted. It may be locked by another receiver.",
    )


def transaction_failed(description: str) -> ServiceBusFault:
    return ServiceBusFault(400, "amqp:transaction:rollback", description)
