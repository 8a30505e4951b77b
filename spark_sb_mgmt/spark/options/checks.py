"""What no option can tell alone: which go together, and which do not.

The one rule: each check is of values that are right on their own, and its error says which of the two to leave out or to add.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations.arguments import LONGEST_ID
from spark_sb_mgmt.spark.options import table

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


def wrong(option: str, problem: str) -> InvalidArgumentError:
    """The error about an option, named as it is documented."""
    return InvalidArgumentError(f"option {option}", problem)


def check_connection(values: Mapping[str, Any]) -> None:
    """One way to connect, complete."""
    namespace, credential = values["fully_qualified_namespace"], values["credential"]
    if values["connection_string"] is not None and namespace is not None:
        raise wrong("fullyQualifiedNamespace", "is given, and connectionString too: give one of the two")
    if values["connection_string"] is None and namespace is None:
        raise wrong(
            "connectionString",
            f"is missing, and {table.CONNECTION_STRING_VARIABLE} is not set on the driver (when Spark starts there, not later): "
            "give one of these, or fullyQualifiedNamespace and credential",
        )
    if namespace is None:
        for name in ("credential", "tenantId", "clientId", "clientSecret"):
            if values[table.BY_KEY[name.lower()].field] is not None:
                raise wrong(name, "is given without fullyQualifiedNamespace: a connection string has its own key")
        return
    if not _HOST.fullmatch(namespace):
        # It may be a connection string, so it is not shown.
        raise wrong("fullyQualifiedNamespace", "is no host name: it is <namespace>.servicebus.windows.net, without sb:// and path")
    if credential is None:
        raise wrong("credential", "is missing: fullyQualifiedNamespace needs one of default, managedIdentity or clientSecret")
    allowed = {"managedIdentity": ("clientId",), "clientSecret": ("tenantId", "clientId", "clientSecret")}.get(credential, ())
    for name in ("tenantId", "clientId", "clientSecret"):
        given = values[table.BY_KEY[name.lower()].field] is not None
        if given and name not in allowed:
            raise wrong(name, f"is not for credential {credential}: leave it out, or set credential to clientSecret")
        if not given and credential == "clientSecret":
            raise wrong(name, f"is missing: credential clientSecret needs {', '.join(allowed)}")


def check_own(operation: str, values: dict[str, Any]) -> None:
    """What an operation's own options must be together; a default that depends on others is filled in."""
    if operation in (table.PEEK, table.RECEIVE):
        _check_reading(operation, values)
    if operation in table.WRITE_OPERATIONS:
        _check_writing(values)


def _check_reading(operation: str, values: Mapping[str, Any]) -> None:
    start, end = values.get("from_sequence_number"), values.get("until_sequence_number")
    if start is not None and end is not None and end < start:
        raise wrong("untilSequenceNumber", f"is {end}, which is below fromSequenceNumber {start}")
    session = values["session_id"]
    if session is not None and len(session) > LONGEST_ID:
        raise wrong("sessionId", f"has {len(session)} characters: a session id has {LONGEST_ID} at most")
    earliest, latest = values.get("enqueued_from"), values.get("enqueued_until")
    if earliest is not None and latest is not None and latest < earliest:
        raise wrong("enqueuedUntil", f"is {latest.isoformat()}, which is before enqueuedFrom {earliest.isoformat()}")
    if operation == table.RECEIVE:
        listed, searched = values["sequence_numbers"] is not None, start is not None or end is not None
        if listed and searched:
            raise wrong("sequenceNumbers", "is given, and fromSequenceNumber or untilSequenceNumber too: give the numbers or a range")
        if not listed and not searched:
            raise wrong(
                "sequenceNumbers",
                "is missing: say which messages, as 7,9,100-200, or give fromSequenceNumber and untilSequenceNumber to find those in a "
                "range (fromSequenceNumber 0 alone finds all)",
            )


def _check_writing(values: dict[str, Any]) -> None:
    if values["on_error"] == "report" and values["receipts_path"] is None:
        raise wrong("receiptsPath", "is missing: onError report writes the rows that failed there")
    if "max_batch_messages" not in values:
        return
    transactional = values.get("transactional", False)
    most = values["max_batch_messages"]
    if most is None:
        values["max_batch_messages"] = table.MOST_TRANSACTION_MESSAGES if transactional else table.DEFAULT_BATCH_MESSAGES
    elif transactional and most > table.MOST_TRANSACTION_MESSAGES:
        raise wrong(
            "maxBatchMessages",
            f"is {most}, and transactional is true: a transaction has {table.MOST_TRANSACTION_MESSAGES} messages at most",
        )
