"""Peeked pages and what is read of them without decoding their messages.

The one rule: no step for each message. A page is bytes; its sequence numbers are found for all messages at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_sb_mgmt.amqp.columns import STATES
from spark_sb_mgmt.connection.planning import Found
from spark_sb_mgmt.operations.message import Messages, ServiceBusMessage
from spark_sb_mgmt.operations.times import to_milliseconds

SCHEDULED: Final = STATES[2]


@dataclass(frozen=True)
class PeekPage:
    """An answer to one peek of a range. `keep` are the slices of its messages that belong to this page and to no other; all of them, nearly
    always. `response` is as it came, for `amqp.arrow_decode.decode_responses`."""

    messages: Messages
    keep: tuple[slice, ...]
    from_sequence_number: int
    until_sequence_number: int

    @property
    def response(self) -> bytes:
        return self.messages.response

    @property
    def is_whole(self) -> bool:
        """Whether every message of the answer is kept."""
        return len(self.keep) == 1 and self.keep[0] == slice(0, len(self.messages))

    def __len__(self) -> int:
        return sum(part.stop - part.start for part in self.keep)

    def __iter__(self) -> Iterator[ServiceBusMessage]:
        for part in self.keep:
            yield from self.messages[part]

    def __repr__(self) -> str:
        return f"PeekPage({len(self)} messages from {self.from_sequence_number} until {self.until_sequence_number})"


def sequence_numbers(messages: Messages) -> list[int]:
    """The sequence number of every message of an answer."""
    numbers: list[int] = messages.sequence_numbers().tolist()
    return numbers


def found(messages: Messages) -> Found | None:
    """What a probe found."""
    if not messages:
        return None
    message = messages[0]
    # A scheduled message is not enqueued yet: whatever time it shows is out of order.
    enqueued = message.enqueued_time if message.state != SCHEDULED else None
    return Found(message.sequence_number, None if enqueued is None else to_milliseconds(enqueued))
