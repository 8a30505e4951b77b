"""The README's tables of options, columns and rights, made from the code.

The one rule: what the code knows is written nowhere else. Here are only the meanings of columns, which no code needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spark_sb_mgmt.amqp.columns import COLUMNS
from spark_sb_mgmt.emulator.management import required_right
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options import values as kinds
from spark_sb_mgmt.spark.schema import spark_type
from spark_sb_mgmt.spark.writing.write_schema import NOT_SENT, REQUIRED, WRITE_COLUMNS

README: Final = Path(__file__).parents[2] / "README.md"

_TYPED: Final = "map<string,struct<type:string,value:string>>"
MEANINGS: Final = {
    "entity": "address of the queue, topic or subscription it was read from",
    "sequence_number": "the message's number in its entity",
    "enqueued_sequence_number": "the number it was given first, by the topic it came through, or while it was scheduled",
    "message_id": "",
    "session_id": "",
    "partition_key": "",
    "via_partition_key": "",
    "correlation_id": "",
    "subject": "also known as label",
    "to": "",
    "reply_to": "",
    "reply_to_session_id": "",
    "content_type": "",
    "time_to_live_ms": "",
    "enqueued_time": "",
    "scheduled_enqueue_time": "when it becomes active",
    "expires_at": "enqueued_time + time_to_live_ms",
    "locked_until": "of a message that was received, not of one that was peeked",
    "delivery_count": "",
    "state": "`active`, `deferred` or `scheduled`",
    "dead_letter_source": "the entity it was in before it was dead-lettered and forwarded",
    "dead_letter_reason": "",
    "dead_letter_error_description": "",
    "lock_token": "what a received message is settled by",
    "application_properties": "each value as text; its type is in typed_properties",
    "body": "bytes of the data sections; another body as AMQP encodes it",
    "body_type": "`data`, `value` or `sequence`",
    "amqp_message": "the whole message as it came over the wire",
    "typed_properties": "application properties with their AMQP types",
    "properties": "the whole AMQP section of this name, as are the four below",
    "message_annotations": "",
    "delivery_annotations": "",
    "header": "",
    "footer": "",
}
ROLES: Final = {"Listen": "Data Receiver", "Send": "Data Sender"}


def rows(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body))


def options(chosen: Iterable[table.Option], *, with_operations: bool = True) -> str:
    head = ("option", *(("for",) if with_operations else ()), "meaning", "it must be", "default")
    return rows(head, ((f"`{one.name}`", *((_for(one),) if with_operations else ()), *_said(one)) for one in chosen))


def _for(option: table.Option) -> str:
    every = {table.READ_OPERATIONS: "every read", table.WRITE_OPERATIONS: "every write"}
    return every.get(option.operations) or ", ".join(f"`{name}`" for name in option.operations)


def _said(option: table.Option) -> tuple[str, str, str]:
    allowed = {kinds.TEXT: "text", kinds.ANY_TEXT: "text", kinds.TIME: "a time in ISO 8601; UTC if it has no offset"}
    default = "" if option.default_text == "-" else option.default_text
    return option.meaning.replace("<", "&lt;"), allowed.get(option.kind, option.kind.allowed), default


def columns() -> str:
    def row(name: str) -> tuple[str, str, str]:
        kind = spark_type(COLUMNS[name].type).simpleString()
        on_request = "on request: " if COLUMNS[name].on_request else ""
        return (
            f"`{name}`",
            "typed map" if kind == _TYPED else f"`{kind}`" if "<" in kind else kind,
            f"{on_request}{MEANINGS[name]}".removesuffix(": "),
        )

    return rows(("column", "type", ""), map(row, COLUMNS))


def write_columns() -> str:
    either = {
        table.SCHEDULE: ("scheduled_enqueue_time",),
        table.SETTLE: ("disposition_status",),
    }
    option_for = {"scheduled_enqueue_time": "scheduledEnqueueTime", "disposition_status": "dispositionStatus"}

    def row(operation: str) -> tuple[str, str, str]:
        needed = [f"`{name}`" for name in REQUIRED[operation]]
        needed += [f"`{name}`, or option `{option_for[name]}`" for name in either.get(operation, ())]
        if operation == table.SETTLE:
            needed.append("one of `lock_token` and `sequence_number`")
        other = [name for name in WRITE_COLUMNS[operation] if f"`{name}`" not in " ".join(needed)]
        other = [name for name in other if name not in NOT_SENT.get(operation, ())]
        return f"`{operation}`", "; ".join(needed) or "none", ", ".join(f"`{name}`" for name in other)

    return rows(("operation", "needs", "may have"), map(row, table.WRITE_OPERATIONS))


def rights() -> str:
    """By right, since that is what one has to ask for."""
    operations: dict[str, list[str]] = {}
    for operation in table.EVERY_OPERATION:
        operations.setdefault(required_right(f"com.microsoft:{operation}"), []).append(f"`{operation}`")
    return rows(
        ("right of the key", "or role in Entra ID", "operations"),
        ((f"**{right}**", f"Azure Service Bus {ROLES[right]}", ", ".join(needing)) for right, needing in operations.items()),
    )


SECTIONS: Final[dict[str, Callable[[], str]]] = {
    "options-common": lambda: options(table.COMMON_OPTIONS, with_operations=False),
    "options-read": lambda: options(table.READ_OPTIONS),
    "options-stream": lambda: options(table.STREAM_OPTIONS, with_operations=False),
    "options-write": lambda: options(table.WRITE_OPTIONS),
    "columns": columns,
    "write-columns": write_columns,
    "rights": rights,
}


def filled(text: str) -> str:
    """The README with its tables as the code has them."""

    def section(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{SECTIONS[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- ([a-z-]+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)
