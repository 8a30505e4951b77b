"""How a receiver settles a message (wire-facts.md sections 1.1, 1.2 and 3.6).

The one rule: a link's outcome and an update-disposition request are the same to the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spark_sb_mgmt.amqp.types import Map

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_ERROR_DESCRIPTION = "DeadLetterErrorDescription"
MAX_DEAD_LETTER_TEXT = 4096


class DispositionStatus(str, Enum):
    """The values of `disposition-status`, as they are on the wire."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    # The service's own spelling (wire-facts.md section 1.2).
    DEFERED = "defered"
    # Dead-lettered.
    SUSPENDED = "suspended"
    # Only as a link's outcome `released`: given back unread, no delivery was attempted.
    RELEASED = "released"


@dataclass(frozen=True)
class Disposition:
    status: DispositionStatus
    deadletter_reason: str | None = None
    deadletter_description: str | None = None
    properties_to_modify: Map = field(default_factory=Map)


COMPLETED = Disposition(DispositionStatus.COMPLETED)
ABANDONED = Disposition(DispositionStatus.ABANDONED)
DEFERED = Disposition(DispositionStatus.DEFERED)
RELEASED = Disposition(DispositionStatus.RELEASED)
