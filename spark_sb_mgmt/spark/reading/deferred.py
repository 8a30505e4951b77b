"""Taking deferred messages by their numbers, when some of them are missing or locked (wire-facts.md, section 1.4; DESIGN section 5).

The service takes all messages of a request or none, and does not tell which was in the way. So the messages of a request that is refused
are peeked: what is not there or not deferred is known then, and the others are asked for again. A lock cannot be seen, so what is refused
then is halved until the ones in the way stand alone.

The one rule: every number ends as a message that was taken or as one that was not, with the reason; and what was locked can be given back
(`release`): whoever fails after this must do so, or nobody can take those messages until their locks end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from spark_sb_mgmt.client import EntityClient, Messages
from spark_sb_mgmt.client.peeking import sequence_numbers
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import MessageNotFoundError, OutcomeUnknownError, SbMgmtError, ServiceBusError
from spark_sb_mgmt.operations import names, settle
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.receive import receive_by_sequence_number
from spark_sb_mgmt.spark.options.values import merge
from spark_sb_mgmt.spark.reading.message_batches import message_batches
from spark_sb_mgmt.spark.reading.partitioning import request_batches

_LOG: Final = logging.getLogger(__name__)
# Tokens of one request that gives locks back.
_RELEASED_AT_ONCE: Final = 500
# Numbers this near to each other are peeked in one page, with what lies between them; pages are of so many messages.
_NEAR: Final = 8
_LOOKED_AT_ONCE: Final = 250
# Requests of a look before anything is taken: with all of their pages full, at 100,000 messages.
_SHORT_LOOK: Final = 400
# How often the answer to one request may be lost, and what became of it be looked for, before its loss is told. Of one request, not of a
# task: with a connection the answers to all that was in flight are lost at once.
MOST_LOST: Final = 5


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


class Asked(NamedTuple):
    """What one request asks for: messages of one session, where the entity has sessions, and of one partition id. `lost` is how often the
    answer to it was lost before."""

    numbers: Sequence[int]
    session_id: str | None = None
    lost: int = 0


class DeferredMessages:
    """Deferred messages of one entity, for one task, at most `page_size` in a request. `was_killed`: an earlier attempt at this may have
    left locks behind. `or_none`: where a message cannot be taken whoever asks fails, so that no more are deleted then. `refused` is told of
    each request that failed for another reason than that its messages cannot be taken; without it such an error is raised."""

    def __init__(
        self,
        entity: EntityClient,
        *,
        page_size: int,
        delete: bool = False,
        session_id: str | None = None,
        was_killed: bool = False,
        or_none: bool = False,
        patience: Patience | None = None,
        refused: Callable[[Sequence[int], SbMgmtError], None] | None = None,
    ) -> None:
        self._entity = entity
        self._page_size = page_size
        self._mode = names.RECEIVE_AND_DELETE if delete else names.PEEK_LOCK
        self._session_id = session_id
        self._locks_may_be_ours = was_killed
        self._stops_at_refusal = delete and or_none
        self._patience = patience or Patience()
        self._on_refusal = refused
        # The tokens of all locks that were taken, 16 bytes each, by session.
        self._tokens: dict[str | None, bytearray] = {}
        self._answers: Iterator[tuple[Asked, Outcome[Messages]]] = iter(())
        self._stopped = False
        # Numbers that were not taken, with their sessions, and what is known already of some of them.
        self._refused: dict[int, str | None] = {}
        self._seen: dict[int, Status] = {}
        self.not_received: dict[int, Status] = {}

    def receive(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Messages]:
        """Take the messages of these ranges of numbers, their ends exclusive. `not_received` is complete when this ends."""
        yield from self.receive_asked(Asked(numbers, self._session_id) for numbers in request_batches(ranges, self._page_size))

    def receive_asked(self, asked: Iterable[Asked]) -> Iterator[Messages]:
        """As `receive`, for requests that the caller has put together."""
        yield from self._all(asked, split=not self._stops_at_refusal)
        if self._stops_at_refusal and self._refused:
            self.not_received.update(self._in_the_way())
            return
        status = self._seen | look(self._entity, {number: self._refused[number] for number in self._refused.keys() - self._seen.keys()})
        locked = {number: session for number, session in sorted(self._refused.items()) if status[number] is Status.LOCKED}
        if locked and self._locks_may_be_ours and self._mode == names.PEEK_LOCK:
            yield from self._wait_for(locked)
            status = {number: reason for number, reason in status.items() if reason is not Status.LOCKED or number in self._refused}
        self.not_received.update(status)

    def _all(self, batches: Iterable[Asked], *, split: bool) -> Iterator[Messages]:
        """What is refused as a whole is looked at, then halved, down to single numbers; with no `split` it is refused as it is."""
        self._refused, self._seen = {}, {}
        todo: Iterable[Asked] = batches
        was_looked_at = False
        while True:
            again: list[Asked] = []
            doubtful: list[Asked] = []
            self._answers = self._ask(todo)
            for asked, outcome in self._answers:
                numbers, session = asked.numbers, asked.session_id
                if isinstance(outcome, Messages):
                    self._took(outcome, session)
                    got = set(sequence_numbers(outcome))
                    self._refused.update((number, session) for number in numbers if number not in got)
                    yield outcome
                elif isinstance(outcome, MessageNotFoundError):
                    if not split or len(numbers) == 1:
                        self._refused.update(dict.fromkeys(numbers, session))
                        self._stopped = self._stops_at_refusal
                    elif was_looked_at:
                        again += _halves(asked)
                    else:
                        doubtful.append(asked)
                elif self._is_repeatable(asked, outcome):
                    again.append(asked._replace(lost=asked.lost + 1))
                elif self._on_refusal is None:
                    raise outcome
                else:
                    self._on_refusal(numbers, outcome)
            if doubtful:
                again += self._standing(doubtful)
                was_looked_at = True
            if not again:
                return
            todo = again

    def _in_the_way(self) -> dict[int, Status]:
        """What was in the way of requests to delete. A lock shows when the others are locked, which `release` gives back."""
        refused = dict(sorted(self._refused.items()))
        self._mode, self._stopped, self._stops_at_refusal = names.PEEK_LOCK, False, False
        for _ in self._all(self._grouped(refused), split=True):
            pass
        # Where that takes all of them, the lock has ended meanwhile.
        found = self._refused or refused
        return look(self._entity, found)

    def _standing(self, refused: Sequence[Asked]) -> Iterator[Asked]:
        """What is left to ask for of requests that were refused, when those are left out that a peek shows to be no deferred messages."""
        found = look(self._entity, {number: asked.session_id for asked in refused for number in asked.numbers})
        for asked in refused:
            standing = [number for number in asked.numbers if found[number] is Status.LOCKED]
            for number in set(asked.numbers).difference(standing):
                self._refused[number], self._seen[number] = asked.session_id, found[number]
            if len(standing) == len(asked.numbers):
                yield from _halves(asked)
            elif standing:
                yield Asked(standing, asked.session_id)

    def _ask(self, batches: Iterable[Asked]) -> Iterator[tuple[Asked, Outcome[Messages]]]:
        sent: dict[int, Asked] = {}

        def requests() -> Iterator[Request[Messages]]:
            for position, asked in enumerate(batches):
                if self._stopped:
                    return
                sent[position] = asked
                yield receive_by_sequence_number(asked.numbers, self._mode, asked.session_id)

        for position, outcome in self._entity.pipeline(requests()):
            yield sent.pop(position), outcome

    def _is_repeatable(self, asked: Asked, error: SbMgmtError) -> bool:
        """Whether asking again makes it good. It does for a lost answer, where only locks were taken: the message is free, or is locked
        until that lock ends."""
        if not isinstance(error, OutcomeUnknownError) or self._mode != names.PEEK_LOCK or asked.lost == MOST_LOST:
            return False
        self._locks_may_be_ours = True
        return True

    def _took(self, messages: Messages, session: str | None) -> None:
        if self._mode == names.PEEK_LOCK:
            tokens = self._tokens.setdefault(session, bytearray())
            for index in range(len(messages)):
                token = messages.lock_token(index)
                assert token is not None, "an answer without a token was refused when it was read"
                tokens += token.bytes

    def _wait_for(self, numbers: Mapping[int, str | None]) -> Iterator[Messages]:
        patience = self._patience
        end = patience.clock() + patience.seconds
        _LOG.warning(
            "%d deferred messages of %s are locked, perhaps by an earlier attempt of this task that was killed or whose answer was lost: "
            "waiting up to %.0f s for their locks to end (sequence numbers %s)",
            len(numbers),
            self._entity.path,
            patience.seconds,
            shown(list(numbers)),
        )
        left = dict(numbers)
        while left and patience.clock() < end:
            patience.sleep(patience.interval_s)
            # Locks of one request end together, so the first tells of all; once it is free, each of the others is tried.
            first, *others = left
            yield from self._all([Asked([first], left[first])], split=False)
            if not self._refused:
                yield from self._all(self._grouped({number: left[number] for number in others}), split=True)
                left = dict(sorted(self._refused.items()))
            elif (status := look(self._entity, self._refused)[first]) is not Status.LOCKED:
                # Somebody else took it meanwhile.
                self.not_received[first] = status
                del left[first]
        self._refused = left

    def _grouped(self, numbers: Mapping[int, str | None]) -> Iterator[Asked]:
        for session in dict.fromkeys(numbers.values()):
            mine = ((number, number + 1) for number in numbers if numbers[number] == session)
            for batch in request_batches(mine, self._page_size):
                yield Asked(batch, session)

    def stop(self) -> None:
        """Take no more messages. What `receive` gave stays locked; what is asked for at this moment is waited for and given back."""
        given = {session: len(tokens) for session, tokens in self._tokens.items()}
        self._await_answers()
        for session, size in given.items():
            del self._tokens[session][:size]
        self.release()

    def _await_answers(self) -> None:
        """What is asked for at this moment locks messages too: only its answer tells by which tokens."""
        self._stopped = True
        try:
            for asked, outcome in self._answers:
                if isinstance(outcome, Messages):
                    self._took(outcome, asked.session_id)
        except SbMgmtError as error:
            _LOG.info("locks on %s that were just asked for are not known, they end by themselves: %s", self._entity.path, error)

    def release(self, entity: EntityClient | None = None) -> None:
        """Give back every lock that was taken or is being taken, as far as they still hold: the messages are deferred as before. Where
        the client that took them is closed, by another."""
        self._await_answers()
        tokens, self._tokens = self._tokens, {}
        for session, known in tokens.items():
            give_back(entity or self._entity, [UUID(bytes=bytes(known[at : at + 16])) for at in range(0, len(known), 16)], session)


def _halves(asked: Asked) -> list[Asked]:
    numbers, session = asked.numbers, asked.session_id
    middle = len(numbers) // 2
    return [Asked(numbers[:middle], session), Asked(numbers[middle:], session)]


def look(entity: EntityClient, numbers: Mapping[int, str | None]) -> dict[int, Status]:
    """What a peek shows of messages, which are given with their sessions: a deferred one that stands and cannot be taken is locked."""
    found = dict.fromkeys(numbers, Status.MISSING)
    for session in dict.fromkeys(numbers.values()):
        near = _near((number, number + 1) for number in numbers if numbers[number] == session)
        pages = entity.peek_ranges(near, _LOOKED_AT_ONCE, None, session)
        for batch in message_batches(pages, ["sequence_number", "state"], entity.path):
            for number, state in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if number in found:
                    found[number] = Status.LOCKED if state == "deferred" else Status.NOT_DEFERRED
    return found


def look_is_short(ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether a look at all of these numbers takes few requests."""
    return sum(-(-(end - start) // _LOOKED_AT_ONCE) for start, end in _near(ranges)) <= _SHORT_LOOK


def _near(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of numbers, with what lies between those that are near to each other."""
    together = merge((start, end - 1 + _NEAR) for start, end in ranges)
    return [(start, end + 1 - _NEAR) for start, end in together]


def give_back(entity: EntityClient, tokens: Sequence[UUID], session_id: str | None = None) -> None:
    """Give locks on deferred messages back, as far as they still hold: the messages are deferred as before. It is tried as long as the
    service answers: who gives back has often failed because it does not."""
    batches = [tokens[at : at + _RELEASED_AT_ONCE] for at in range(0, len(tokens), _RELEASED_AT_ONCE)]
    refused = _given_back(entity, batches, session_id)
    # All of a request or none: a lock that ended already is in the way of the others.
    _given_back(entity, [[token] for batch in refused if len(batch) > 1 for token in batch], session_id)


def _given_back(entity: EntityClient, batches: Sequence[Sequence[UUID]], session_id: str | None) -> list[Sequence[UUID]]:
    """Those that the service refused."""
    refused: list[Sequence[UUID]] = []
    silent = False

    def requests() -> Iterator[Request[None]]:
        for tokens in batches:
            if silent:
                return
            yield settle.update_disposition("deferred", tokens, session_id=session_id)

    for position, outcome in entity.pipeline(requests()):
        if not isinstance(outcome, SbMgmtError):
            continue
        if isinstance(outcome, ServiceBusError) and not outcome.retryable:
            refused.append(batches[position])
            if len(batches[position]) > 1:
                continue
        else:
            silent = True
        _LOG.info("locks on %s (%d) were not given back, they end by themselves: %s", entity.path, len(batches[position]), outcome)
    return refused


def shown(numbers: Sequence[int], most: int = 20) -> str:
    """Numbers for a person: the first of them, and how many there are."""
    listed = ", ".join(map(str, numbers[:most]))
    return listed if len(numbers) <= most else f"{listed}, ... {len(numbers)} in all"
