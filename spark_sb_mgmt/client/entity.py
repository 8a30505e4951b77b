"""`EntityClient`: the management node of one entity, one method for each operation under its wire name.

The one rule: a method says what it asks for and gives what the answer says; how it gets there (links, tokens, retries, deadlines) is
`connection`'s business. An operation that changes something is sent again only if it is certain that it had no effect; where that is
not known, OutcomeUnknownError says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID

from spark_sb_mgmt.amqp.types import Map
from spark_sb_mgmt.client import scheduling
from spark_sb_mgmt.client.peeking import PeekPage, found
from spark_sb_mgmt.client.pipeline import pipeline
from spark_sb_mgmt.client.told import operation, told
from spark_sb_mgmt.client.transaction import Transaction
from spark_sb_mgmt.connection import planning
from spark_sb_mgmt.connection.channel import Channel, Outcome, Window
from spark_sb_mgmt.connection.peek_range import END_OF_NUMBERS, Peek, PeekRange, bounds, check_page
from spark_sb_mgmt.connection.settings import DEEPEST_PIPELINE, pipeline_depth
from spark_sb_mgmt.errors import InvalidArgumentError, RemoteProtocolError, SbMgmtError
from spark_sb_mgmt.model import CorrelationFilter, Rule
from spark_sb_mgmt.operations import arguments, delete, names, peek, receive, rules, schedule, sessions, settle
from spark_sb_mgmt.operations.envelope import Request
from spark_sb_mgmt.operations.message import Messages

T = TypeVar("T")
_PEEK: Final = names.short_name(names.PEEK_MESSAGE)
# Of sessions and rules: more of them than come between two requests.
_MOST_BARREN_PAGES: Final = 3


class EntityClient:
    """A queue, a topic, a subscription, or a sub-queue of one. A context manager; closing it closes its links, not the client."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def path(self) -> str:
        """The entity's, as it was given, without slashes around it."""
        return self._channel.entity

    @property
    def max_message_size(self) -> int | None:
        """The largest request that the entity takes, in bytes, None if it sets no limit. Opens the links if they are not."""
        with told(None, self.path):
            return self._channel.links().max_message_size

    # --- messages -------------------------------------------------------------------------------------------------------

    @operation
    def peek_message(
        self,
        from_sequence_number: int = 0,
        message_count: int = 250,
        session_id: str | None = None,
        omit_message_body: bool | None = None,
    ) -> Messages:
        """The next messages from a sequence number on. The service may give fewer than asked for; only none means that there are none."""
        messages = self.call(peek.peek_message(from_sequence_number, message_count, session_id, omit_message_body))
        check_page(from_sequence_number, messages.sequence_numbers())
        return messages

    @operation
    def receive_by_sequence_number(
        self, sequence_numbers: Iterable[int], receiver_settle_mode: int = names.PEEK_LOCK, session_id: str | None = None
    ) -> Messages:
        """Deferred messages by their numbers, all or none: locked (1, with `lock_token`) or deleted (0)."""
        return self.call(receive.receive_by_sequence_number(sequence_numbers, receiver_settle_mode, session_id))

    @operation
    def update_disposition(
        self,
        disposition_status: str,
        lock_tokens: Iterable[UUID | str],
        deadletter_reason: str | None = None,
        deadletter_description: str | None = None,
        properties_to_modify: Mapping[str, Any] | Map | None = None,
        session_id: str | None = None,
    ) -> None:
        """Settle locked messages: `completed`, `abandoned`, `suspended` (to the dead-letter queue) or `deferred`."""
        self.call(
            settle.update_disposition(
                disposition_status, lock_tokens, deadletter_reason, deadletter_description, properties_to_modify, session_id
            )
        )

    @operation
    def renew_lock(self, lock_tokens: Iterable[UUID | str]) -> list[datetime]:
        """Until when the messages are locked now, in the order of the tokens."""
        return self.call(settle.renew_lock(lock_tokens))

    @operation
    def schedule_message(self, messages: scheduling.ToSchedule) -> list[int]:
        """Schedule one message or several, each a ScheduledMessage or a dict by the names of its columns, which may go without a
        `message_id`. Their sequence numbers, in their order. All are one request: one that is too large is refused before it is sent, and
        names the first message that is too large on its own, if one is."""
        return scheduling.schedule(self.call, messages)

    @operation
    def cancel_scheduled_message(self, sequence_numbers: Iterable[int]) -> None:
        """Take scheduled messages back, by the numbers that scheduling them gave."""
        self.call(schedule.cancel_scheduled_message(sequence_numbers))

    @operation
    def batch_delete_messages(
        self,
        message_count: int = delete.SAFE_MESSAGE_COUNT,
        enqueued_time_utc: datetime | int | None = None,
        session_id: str | None = None,
    ) -> int:
        """Delete messages enqueued before a time, or, if none is given, until now; how many were. Best effort: locked ones stay."""
        # The next millisecond: what was enqueued in this one was enqueued until now.
        before = int(self._channel.connection.timing.now() * 1000) + 1 if enqueued_time_utc is None else enqueued_time_utc
        return self.call(delete.batch_delete_messages(message_count, before, session_id))

    # --- sessions -------------------------------------------------------------------------------------------------------

    @operation
    def renew_session_lock(self, session_id: str) -> datetime:
        """Until when the session is locked now."""
        return self.call(sessions.renew_session_lock(session_id))

    @operation
    def get_session_state(self, session_id: str) -> bytes | None:
        """The state of a session, None where it has none."""
        return self.call(sessions.get_session_state(session_id))

    @operation
    def set_session_state(self, session_id: str, session_state: bytes | None) -> None:
        """Set the state of a session; None clears it."""
        self.call(sessions.set_session_state(session_id, session_state))

    @operation
    def get_message_sessions(
        self, last_updated_time: datetime | int | None = None, top: int = 100, *, skip: int | None = None
    ) -> list[str]:
        """Ids of sessions. Without a time: all that have messages or a state. With one: those whose state was set after it. All of them,
        page by page of `top`; with `skip` the one page after so many."""
        if skip is not None:
            return list(self.call(sessions.get_message_sessions(last_updated_time, skip, top)).sessions_ids)
        return list(self._all(lambda known: self.call(sessions.get_message_sessions(last_updated_time, known, top)).sessions_ids, str))

    # --- rules ----------------------------------------------------------------------------------------------------------

    @operation
    def add_rule(
        self,
        rule: Rule | str | None = None,
        sql_expression: str | None = None,
        correlation_filter: CorrelationFilter | Mapping[str, Any] | None = None,
        action_expression: str | None = None,
        *,
        rule_name: str | None = None,
        filter_type: str | None = None,
        rule_description: Mapping[str, Any] | None = None,
    ) -> None:
        """A whole Rule; or its name, and the expression or the correlation filter that messages must match (without either, all do, or, by
        `filter_type` false, none), and what is then done to them; or its name and all that as the wire has it, in `rule_description`."""
        if rule_name is not None:
            if rule is not None:
                raise InvalidArgumentError("rule_name", "is given twice")
            rule = rule_name
        beside = (sql_expression, correlation_filter, action_expression, filter_type)
        if rule_description is not None and any(given is not None for given in beside):
            raise InvalidArgumentError("rule_description", "says it all: leave out what is given beside it")
        if isinstance(rule, str):
            rule = rules.rule_of(rule, *beside) if rule_description is None else rules.rule_described(rule, rule_description)
        elif any(given is not None for given in (*beside, rule_description)):
            raise InvalidArgumentError("rule", "says it all if it is a Rule: give its name for what is given beside it")
        # What is neither is refused there.
        self.call(rules.add_rule(rule))  # type: ignore[arg-type]

    @operation
    def remove_rule(self, rule_name: str) -> None:
        """Remove a rule by its name."""
        self.call(rules.remove_rule(rule_name))

    @operation
    def enumerate_rules(self, top: int = 100, *, skip: int | None = None) -> list[Rule]:
        """The rules of the subscription. All of them, page by page of `top`; with `skip` the one page after so many."""
        if skip is not None:
            return self.call(rules.enumerate_rules(top, skip))
        return list(self._all(lambda known: self.call(rules.enumerate_rules(top, known)), lambda rule: rule.name).values())

    def _all(self, ask: Callable[[int], Sequence[T]], name: Callable[[T], str]) -> dict[str, T]:
        """What stands on all pages, by name; `ask` for the page after so many. A page may be short: only an empty one is the last. Where
        something comes in front meanwhile, what stood before it is met again, and a page may well have nothing else."""
        found: dict[str, T] = {}
        known = barren = 0
        while page := ask(known):
            known += len(page)
            before = len(found)
            found.update((name(item), item) for item in page)
            barren = 0 if len(found) > before else barren + 1
            if barren == _MOST_BARREN_PAGES:
                raise RemoteProtocolError(
                    f"{barren} pages in a row, up to {known}, had nothing that was not in pages before them: the service does not advance"
                )
        return found

    # --- many at once ---------------------------------------------------------------------------------------------------

    def call(self, request: Request[T]) -> T:
        """Any request of `spark_sb_mgmt.operations`."""
        return self._channel.call(request)

    def pipeline(self, requests: Iterable[Request[T]], depth: int | None = None) -> Iterator[tuple[int, Outcome[T]]]:
        """Many requests, `depth` of them in flight: yields the position of each and its outcome, which is a result or an SbMgmtError, in
        the order of their answers."""
        return pipeline(self._channel, requests, depth)

    def transaction(self) -> Transaction:
        """`with entity.transaction() as txn:` for schedule-message and update-disposition."""
        return Transaction(self._channel)

    def peek_range(
        self,
        from_sequence_number: int = 0,
        until_sequence_number: int | None = None,
        page_size: int = 250,
        depth: int | None = None,
        session_id: str | None = None,
    ) -> Iterator[PeekPage]:
        """Every message of a range, each in exactly one page, pages in any order. `until_sequence_number` is exclusive, None is no end."""
        state = PeekRange(from_sequence_number, until_sequence_number, page_size)
        return self._pages(state, pipeline_depth(depth, self._channel.connection.settings), session_id)

    def peek_ranges(
        self, ranges: Iterable[tuple[int, int]], page_size: int = 250, depth: int | None = None, session_id: str | None = None
    ) -> Iterator[PeekPage]:
        """As `peek_range`, for several ranges: ascending, disjoint, their ends exclusive. Requests are in flight across their ends."""
        state = PeekRange.of_ranges(ranges, page_size)
        return self._pages(state, pipeline_depth(depth, self._channel.connection.settings), session_id)

    def _pages(self, state: PeekRange, depth: int, session_id: str | None) -> Iterator[PeekPage]:
        window: Window[Messages] = Window(self._channel, depth)
        try:
            while not state.finished:
                while window.has_room and (asked := state.next_request()) is not None:
                    window.submit(peek.peek_message(asked.from_sequence_number, asked.message_count, session_id), asked)
                page = self._page(state, *window.next())
                if page.keep:
                    yield page
        except SbMgmtError as problem:
            problem.about(_PEEK, self.path)
            raise
        finally:
            window.abandon()

    def _page(self, state: PeekRange, asked: Peek, outcome: Outcome[Messages]) -> PeekPage:
        if isinstance(outcome, SbMgmtError):
            raise outcome
        keep = state.answer(asked, outcome.sequence_numbers())
        return PeekPage(outcome, tuple(keep), asked.from_sequence_number, asked.until_sequence_number)

    # --- where messages are ---------------------------------------------------------------------------------------------

    def lowest_sequence_number(self, session_id: str | None = None) -> int | None:
        """None if there is no message. One round trip."""
        return self._search(planning.lowest_sequence_number(), session_id)

    def highest_sequence_number(self, start: int = 0, end: int = END_OF_NUMBERS, session_id: str | None = None) -> int | None:
        """The highest in [start, end), which is for one partition of a partitioned entity; None if there is no message."""
        return self._search(planning.highest_sequence_number(*bounds(start, end, ("start", "end"))), session_id)

    def partition_ids(self, session_id: str | None = None) -> list[int]:
        """Of the partitions that have messages; an entity that is not partitioned has one, 0."""
        return self._search(planning.partition_ids(), session_id)

    def extents(self, session_id: str | None = None) -> list[planning.Extent]:
        """Lowest and highest sequence number of each partition that has messages, ascending."""
        return self._search(planning.extents(), session_id)

    def sequence_number_at(
        self, enqueued_time: datetime | int, start: int = 0, end: int = END_OF_NUMBERS, session_id: str | None = None
    ) -> int | None:
        """The lowest number in [start, end) of a message that was enqueued at that time or later, as far as times ascend with numbers."""
        time = int(arguments.timestamp("enqueued_time", enqueued_time))
        return self._search(planning.sequence_number_at(time, *bounds(start, end, ("start", "end"))), session_id)

    def search(self, searches: Sequence[planning.Search[T]], session_id: str | None = None) -> list[T]:
        """Several searches of `connection.planning` in step: the round trips of the longest."""
        return self._search(planning.together(searches), session_id)

    def _search(self, search: planning.Search[T], session_id: str | None) -> T:
        try:
            wanted = next(search)
            while True:
                with told(_PEEK, self.path):
                    answers = self._probe(wanted, session_id)
                wanted = search.send(answers)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _probe(self, wanted: list[int], session_id: str | None) -> list[planning.Found | None]:
        """One round trip, or a few where there are thousands of partitions: the probes of a round are in flight together."""
        answers: list[planning.Found | None] = [None] * len(wanted)
        requests = [peek.peek_message(number, 1, session_id) for number in wanted]
        for position, outcome in self.pipeline(requests, min(len(requests), DEEPEST_PIPELINE)):
            if isinstance(outcome, SbMgmtError):
                raise outcome
            answer = found(outcome)
            if answer is not None and answer.sequence_number < wanted[position]:
                raise RemoteProtocolError(
                    f"a peek from sequence number {wanted[position]} was answered with {answer.sequence_number}: "
                    f"the service does not advance"
                )
            answers[position] = answer
        return answers

    # --- the end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Its links; the client stays open. Prompt, and harmless the second time."""
        self._channel.close()

    def __enter__(self) -> EntityClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an EntityClient does not pickle: open it where it is used")

    def __repr__(self) -> str:
        return f"EntityClient({self.path!r} of {self._channel.connection!r})"
