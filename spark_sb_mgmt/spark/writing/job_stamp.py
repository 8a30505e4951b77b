"""The stamp on every message that a job schedules, by which what a lost attempt left behind is found again (DESIGN section 5).

The stamp is the message annotation `x-opt-sbmgmt-stamp`, a string `<job>/<partition>/<attempt>/<row>`: an id that no other job has, the
partition of the DataFrame, an id of the task attempt, and the row's place in the partition. An annotation, because the service keeps
those that it does not know (the JavaScript SDK's live tests rely on that), and because consumers do not look at them: application
properties, which rules and programs do look at, stay what the rows say.

The one rule: a message counts as the job's only if its annotation says so; that the bytes look like it is merely why it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from spark_sb_mgmt.amqp.columns import COLUMNS, Received, sections_of
from spark_sb_mgmt.amqp.message import decode_message
from spark_sb_mgmt.amqp.messages import locate
from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.spark.writing.number_runs import Runs
from spark_sb_mgmt.spark.writing.write_operation import TaskAttempt

KEY: Final = "x-opt-sbmgmt-stamp"
_PAGE: Final = 250
_SEEN: Final = ("sequence_number", "state", "message_id")
# All else of a message is passed over.
_SECTIONS: Final = sections_of(_SEEN)


@dataclass(frozen=True)
class Stamped:
    """A message of a job, where it stands."""

    sequence_number: int
    partition: int
    attempt: str
    row: int
    state: str
    message_id: str | None


def attempt_prefix(job: str, attempt: TaskAttempt) -> str:
    """How the stamps of an attempt begin."""
    return f"{job}/{attempt.partition}/{attempt.id}/"


def job_prefix(job: str) -> str:
    return f"{job}/"


def stamped(entity: EntityClient, prefix: str, ranges: Runs) -> Iterator[Stamped]:
    """The messages in these ranges whose stamps begin so, in no order."""
    wanted = prefix.encode()
    for page in entity.peek_ranges(ranges, _PAGE):
        if wanted not in page.response:
            continue
        messages = locate([page.response])
        for index in chain.from_iterable(range(part.start, part.stop) for part in page.keep):
            wire = messages.buffer[messages.start[index] : messages.end[index]]
            if wanted in wire and (found := _stamped(wire, prefix)) is not None:
                yield found


def _stamped(wire: bytes, prefix: str) -> Stamped | None:
    message = decode_message(wire, sections=_SECTIONS)
    stamp = (message.message_annotations or Map()).get(KEY)
    if not isinstance(stamp, str) or not stamp.startswith(prefix):
        return None
    number, state, message_id = (COLUMNS[name].read(Received(message, wire, None, None)) for name in _SEEN)
    _, partition, attempt, row = stamp.split("/")
    return Stamped(number, int(partition), attempt, int(row), state, message_id)
