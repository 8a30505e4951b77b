"""update-disposition and renew-lock: what is done with messages that are locked (wire-facts.md, sections 1.1, 1.2 and 3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Map, Value
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations import arguments, names, results
from spark_sb_mgmt.operations.envelope import Request, Response

# As people spell them, and as they go on the wire.
DISPOSITIONS: Final[Mapping[str, str]] = {
    names.COMPLETED: names.COMPLETED,
    names.ABANDONED: names.ABANDONED,
    names.SUSPENDED: names.SUSPENDED,
    "deferred": names.DEFERED,
}


def update_disposition(
    disposition_status: str,
    lock_tokens: Iterable[UUID | str],
    deadletter_reason: str | None = None,
    deadletter_description: str | None = None,
    properties_to_modify: Mapping[str, Any] | Map | None = None,
    session_id: str | None = None,
) -> Request[None]:
    """Settle locked messages: `completed`, `abandoned`, `suspended` (to the dead-letter queue) or `deferred`."""
    arguments.one_of("disposition_status", disposition_status, dict.fromkeys(DISPOSITIONS, ""))
    tokens = arguments.uuid_array("lock_tokens", lock_tokens)
    body: list[tuple[str, Value]] = [
        (names.DISPOSITION_STATUS, DISPOSITIONS[disposition_status]),
        (names.LOCK_TOKENS, tokens),
    ]
    for argument, key, reason in (
        ("deadletter_reason", names.DEADLETTER_REASON, deadletter_reason),
        ("deadletter_description", names.DEADLETTER_DESCRIPTION, deadletter_description),
    ):
        if reason is not None:
            if disposition_status != names.SUSPENDED:
                raise InvalidArgumentError(argument, f"is only for disposition_status suspended, not {disposition_status}")
            body.append((key, arguments.text(argument, reason, arguments.LONGEST_DEADLETTER_TEXT)))
    if properties_to_modify is not None:
        if disposition_status == names.COMPLETED:
            raise InvalidArgumentError("properties_to_modify", "is not for disposition_status completed: no message is left to modify")
        body.append((names.PROPERTIES_TO_MODIFY, arguments.properties("properties_to_modify", properties_to_modify)))
    if session_id is not None:
        body.append((names.SESSION_ID, arguments.identifier("session_id", session_id)))
    return Request(
        names.UPDATE_DISPOSITION,
        encode_value(Map(body)),
        f"update-disposition of {len(tokens)} messages to {disposition_status}",
        results.nothing,
        transactional=True,
    )


def renew_lock(lock_tokens: Iterable[UUID | str]) -> Request[list[datetime]]:
    """Keep messages locked; answers until when, in the order of the tokens."""
    tokens = arguments.uuid_array("lock_tokens", lock_tokens)
    return Request(
        names.RENEW_LOCK,
        encode_value(Map([(names.LOCK_TOKENS, tokens)])),
        f"renew-lock of {len(tokens)} messages",
        partial(_read_expirations, count=len(tokens)),
        safe=True,
    )


def _read_expirations(response: Response, count: int) -> list[datetime]:
    expirations = results.several(response.body(), names.EXPIRATIONS, "timestamp", count)
    return [results.moment(names.EXPIRATIONS, milliseconds) for milliseconds in expirations]
