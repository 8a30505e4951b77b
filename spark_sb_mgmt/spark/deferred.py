"""Taking deferred messages by their numbers, when some of them are missing or locked (wire-facts.md, section 1.4; DESIGN section 5).

The service takes all messages of a request or none, and does not tell which was in the way. So a request that is refused is halved until
the ones in the way stand alone, and each of these is looked at by a peek.

The one rule: every number ends as a message that was taken or as one that was not, with the reason; and what was locked can be given back
(`release`): whoever fails after this must do so, or nobody can take those messages until their locks end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from spark_sb_mgmt.client import EntityClient, Messages
from spark_sb_mgmt.client.peeking import sequence_numbers
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import MessageNotFoundError, OutcomeUnknownError, SbMgmtError
from spark_sb_mgmt.operations import names, settle
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.peek import peek_message
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.spark.partitioning import request_batches

_LOG: Final = logging.getLogger(__name__)
# Tokens of one request that gives locks back.
_RELEASED_AT_ONCE: Final = 500
# How often the loss of an answer is made good by asking again.
_MOST_UNKNOWN: Final = 5


class Status(Enum):
    """What became of a number."""

    RECEIVED = "received"
    MISSING = "missing"
    NOT_DEFERRED = "not deferred"
    LOCKED = "locked"


@dataclass(frozen=True)
class Patience:
    """How long to wait for locks that end by themselves: those of an attempt that was killed, or whose answer was lost. The service locks
    for five minutes at most."""

    seconds: float = 310.0
    interval_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class DeferredMessages:
    """Deferred messages of one entity, for one task, at most `page_size` in a request. `was_killed`: an earlier attempt at this may have
    left locks behind."""

    def __init__(
        self,
        entity: EntityClient,
        *,
        page_size: int,
        delete: bool = False,
        session_id: str | None = None,
        was_killed: bool = False,
        patience: Patience | None = None,
    ) -> None:
        self._entity = entity
        self._page_size = page_size
        self._mode = names.RECEIVE_AND_DELETE if delete else names.PEEK_LOCK
        self._session_id = session_id
        self._locks_may_be_ours = was_killed
        self._patience = patience or Patience()
        self._unknown = 0
        # The tokens of all locks that were taken, 16 bytes each.
        self._tokens = bytearray()
        self._answers: Iterator[tuple[int, Outcome[Messages]]] = iter(())
        self._stopped = False
        self._refused: list[int] = []
        self.not_received: dict[int, Status] = {}

    def receive(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Messages]:
        """Take the messages of these ranges of numbers, their ends exclusive. `not_received` is complete when this ends."""
        yield from self._all(request_batches(ranges, self._page_size), split=True)
        status = self._look(self._refused)
        locked = sorted(number for number in self._refused if status[number] is Status.LOCKED)
        if locked and self._locks_may_be_ours and self._mode == names.PEEK_LOCK:
            yield from self._wait_for(locked)
            still = set(self._refused)
            status = {number: reason for number, reason in status.items() if reason is not Status.LOCKED or number in still}
        self.not_received.update(status)

    def _all(self, batches: Iterable[Sequence[int]], *, split: bool) -> Iterator[Messages]:
        """What is refused as a whole is halved, down to single numbers, or with no `split` is refused as it is."""
        self._refused = []
        todo: Iterable[Sequence[int]] = batches
        while True:
            asked: list[Sequence[int]] = []
            again: list[Sequence[int]] = []
            answers = self._entity.pipeline(self._requests(todo, asked))
            self._answers = answers
            for position, outcome in answers:
                numbers = asked[position]
                asked[position] = ()
                if isinstance(outcome, Messages):
                    self._took(outcome)
                    got = set(sequence_numbers(outcome))
                    self._refused += [number for number in numbers if number not in got]
                    yield outcome
                elif isinstance(outcome, MessageNotFoundError):
                    if split and len(numbers) > 1:
                        middle = len(numbers) // 2
                        again += [numbers[:middle], numbers[middle:]]
                    else:
                        self._refused += numbers
                else:
                    self._check_repeatable(outcome)
                    again.append(numbers)
            if not again:
                return
            todo = again

    def _requests(self, batches: Iterable[Sequence[int]], asked: list[Sequence[int]]) -> Iterator[Request[Messages]]:
        for numbers in batches:
            if self._stopped:
                return
            asked.append(numbers)
            yield receive_by_sequence_number(numbers, self._mode, self._session_id)

    def _check_repeatable(self, error: SbMgmtError) -> None:
        """Raise what cannot be made good. A lost answer can, where only locks were taken: asked again, the message is free, or is locked
        until that lock ends."""
        self._unknown += 1
        if not isinstance(error, OutcomeUnknownError) or self._mode != names.PEEK_LOCK or self._unknown > _MOST_UNKNOWN:
            raise error
        self._locks_may_be_ours = True

    def _took(self, messages: Messages) -> None:
        if self._mode == names.PEEK_LOCK:
            for index in range(len(messages)):
                token = messages.lock_token(index)
                assert token is not None, "an answer without a token was refused when it was read"
                self._tokens += token.bytes

    def _look(self, numbers: Sequence[int]) -> dict[int, Status]:
        """Why these were refused, as far as a peek shows: a deferred message that stands and cannot be taken is locked."""
        found: dict[int, Status] = {}
        requests = (peek_message(number, 1, self._session_id) for number in numbers)
        for position, outcome in self._entity.pipeline(requests):
            if isinstance(outcome, SbMgmtError):
                raise outcome
            number = numbers[position]
            if not outcome or outcome[0].sequence_number != number:
                found[number] = Status.MISSING
            else:
                found[number] = Status.LOCKED if outcome[0].state == "deferred" else Status.NOT_DEFERRED
        return found

    def _wait_for(self, numbers: Sequence[int]) -> Iterator[Messages]:
        patience = self._patience
        end = patience.clock() + patience.seconds
        _LOG.warning(
            "%d deferred messages of %s are locked, perhaps by an earlier attempt of this task that was killed or whose answer was lost: "
            "waiting up to %.0f s for their locks to end (sequence numbers %s)",
            len(numbers),
            self._entity.path,
            patience.seconds,
            shown(numbers),
        )
        left: Sequence[int] = numbers
        while left and patience.clock() < end:
            patience.sleep(patience.interval_s)
            # Locks of one request end together, so the first tells of all; once it is free, each of the others is tried.
            first, *others = left
            yield from self._all([[first]], split=False)
            if not self._refused:
                yield from self._all(request_batches(((number, number + 1) for number in others), self._page_size), split=True)
                left = sorted(self._refused)
            elif (status := self._look([first])[first]) is not Status.LOCKED:
                # Somebody else took it meanwhile.
                self.not_received[first] = status
                left = others
        self._refused = list(left)

    def stop(self) -> None:
        """Take no more messages. What `receive` gave stays locked; what is asked for at this moment is waited for and given back."""
        self._stopped = True
        given = len(self._tokens)
        for _, outcome in self._answers:
            if isinstance(outcome, Messages):
                self._took(outcome)
        del self._tokens[:given]
        self.release()

    def release(self) -> None:
        """Give back every lock that was taken, as far as they still hold: the messages are deferred as before."""
        tokens = [UUID(bytes=bytes(self._tokens[at : at + 16])) for at in range(0, len(self._tokens), 16)]
        self._tokens.clear()
        batches = [tokens[at : at + _RELEASED_AT_ONCE] for at in range(0, len(tokens), _RELEASED_AT_ONCE)]
        failed: list[UUID] = []
        for position, outcome in self._entity.pipeline(self._giving_back(batch) for batch in batches):
            if isinstance(outcome, SbMgmtError):
                failed += batches[position]
        # All of a request or none: a lock that ended already is in the way of the others.
        for _, outcome in self._entity.pipeline(self._giving_back([token]) for token in failed):
            if isinstance(outcome, SbMgmtError):
                _LOG.info("a lock on %s was not given back, it ends by itself: %s", self._entity.path, outcome)

    def _giving_back(self, tokens: Sequence[UUID]) -> Request[None]:
        return settle.update_disposition("deferred", tokens, session_id=self._session_id)


def shown(numbers: Sequence[int], most: int = 20) -> str:
    """Numbers for a person: the first of them, and how many there are."""
    listed = ", ".join(map(str, numbers[:most]))
    return listed if len(numbers) <= most else f"{listed}, ... {len(numbers)} in all"
