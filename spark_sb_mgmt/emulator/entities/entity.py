"""What queues and topics have in common: they take messages, keep the scheduled ones until their time, and can be peeked.

The one rule: a request is checked as a whole before anything of it takes effect. Every public method first lets happen what is due, so that
a caller never sees a lock, a schedule or a time-to-live that has run out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence

from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.changes import MessageIdSeen, MessageRemoved, MessageStored
from spark_sb_mgmt.emulator.entities.context import Context
from spark_sb_mgmt.emulator.entities.duplicates import DuplicateHistory
from spark_sb_mgmt.emulator.entities.index import SequenceIndex
from spark_sb_mgmt.emulator.entities.message import IncomingMessage, MessageState, StoredMessage, with_message_id
from spark_sb_mgmt.emulator.entities.numbers import SequenceNumbers
from spark_sb_mgmt.emulator.entities.schedule import ByTime, Schedule

# Of a batch (wire-facts.md section 4).
MAX_BATCH_MESSAGES = 4500


class Entity(ABC):
    def __init__(
        self,
        path: str,
        context: Context,
        numbers: SequenceNumbers,
        *,
        default_message_time_to_live: int | None,
        duplicate_detection_window: int | None,
        max_message_size: int,
    ) -> None:
        self.path = path
        self.max_message_size = max_message_size
        self.messages: SequenceIndex[StoredMessage] = SequenceIndex()
        self._context = context
        self._numbers = numbers
        self._default_ttl = default_message_time_to_live
        self._duplicates = None if duplicate_detection_window is None else DuplicateHistory(duplicate_detection_window)
        self._schedule = Schedule()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}: {len(self.messages)} messages>"

    @property
    def is_partitioned(self) -> bool:
        return self._numbers.partitioned

    # Sending

    def check_send(self, message: IncomingMessage) -> None:
        """A fault if this entity cannot take the message."""
        if message.size > self.max_message_size:
            raise faults.message_size_exceeded(
                f"The message of {message.size} bytes exceeds the limit of {self.max_message_size} bytes of '{self.path}'."
            )
        session_id, partition_key = message.session_id, message.partition_key
        if self._numbers.partitioned and session_id is not None and partition_key is not None and session_id != partition_key:
            raise faults.argument_error("On a partitioned entity partition key and session id must be the same.")

    def send(self, messages: Sequence[IncomingMessage]) -> None:
        """Take messages: all or none. One with a scheduled time in the future is scheduled."""
        self.check_batch(messages)
        self.catch_up()
        for message in messages:
            self._take(message)

    def schedule(self, messages: Sequence[IncomingMessage]) -> list[int]:
        """Take messages that must have a scheduled time; the numbers by which they can be cancelled."""
        self.check_schedule(messages)
        self.catch_up()
        numbers = self.reserve(messages)
        self.schedule_reserved(messages, numbers)
        return numbers

    def check_schedule(self, messages: Sequence[IncomingMessage]) -> None:
        self.check_batch(messages)
        if any(message.scheduled_enqueue_time is None for message in messages):
            raise faults.argument_error("A message to be scheduled needs the annotation x-opt-scheduled-enqueue-time.")

    def reserve(self, messages: Sequence[IncomingMessage]) -> list[int]:
        """Sequence numbers for messages that come later, or never: how a transaction knows them before it is committed."""
        return self._numbers.issue_all(messages)

    def schedule_reserved(self, messages: Sequence[IncomingMessage], numbers: Sequence[int]) -> None:
        now = self._context.time
        scheduled = []
        for message, number in zip(messages, numbers, strict=True):
            if message.message_id is None:
                message = self._identified(message)
            if self._is_duplicate(message):
                continue
            due = message.scheduled_enqueue_time
            if due is not None and due > now:
                scheduled.append(self._new(message, number, number, state=MessageState.SCHEDULED))
            else:
                # Scheduled for a time that is past: activated at once, and so with a new number.
                self._arrive(message, self._numbers.issue(message), number, 0, None)
        self._put_scheduled(scheduled)

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        """Remove scheduled messages: all or none."""
        self.catch_up()
        found = self.messages.find(dict.fromkeys(sequence_numbers))
        scheduled = [m for m in found if m is not None and m.state is MessageState.SCHEDULED]
        if len(scheduled) != len(found):
            there = {message.sequence_number for message in scheduled}
            missing = [number for number in sequence_numbers if number not in there]
            raise faults.message_not_found(f"No scheduled message {_listed(missing)} is in '{self.path}'.")
        self._remove_scheduled(scheduled)

    def accept_forwarded(self, message: IncomingMessage, enqueued_sequence_number: int, hops: int, dead_letter_source: str | None) -> None:
        """Take a message from another entity, which keeps the number that it was first given."""
        self.check_send(message)
        self._run_to(self._context.time)
        if self._is_duplicate(message):
            return
        self._arrive(message, self._numbers.issue(message), enqueued_sequence_number, hops, dead_letter_source)

    # Peeking

    def peek(
        self,
        from_sequence_number: int,
        message_count: int,
        *,
        session_id: str | None = None,
        max_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """Messages in order of sequence number, whatever their state and whoever holds them.

        A page ends at `message_count`, or before the message with which it would exceed `max_bytes`; it has one message at
        least, if any is there.
        """
        self.catch_up()
        page: list[StoredMessage] = []
        if message_count <= 0:
            raise faults.argument_out_of_range(f"message-count must be positive, not {message_count}.")
        index = self._peek_index(session_id)
        if index is None:
            return page
        left = max_bytes
        for message in index.values_from(from_sequence_number):
            if left is not None:
                left -= message.size
                if left < 0 and page:
                    break
            page.append(message)
            if len(page) == message_count:
                break
        return page

    def _peek_index(self, session_id: str | None) -> SequenceIndex[StoredMessage] | None:
        if session_id is None:
            return self.messages
        raise faults.not_allowed(f"'{self.path}' has no sessions; peek it without a session-id.")

    # Time

    def next_due(self) -> int | None:
        """When something happens here by itself."""
        return self._schedule.next_due()

    def run_due(self, now: int) -> None:
        """Let happen what is due at `now`."""
        while (number := self._schedule.pop_due(now)) is not None:
            message = self.messages.get(number)
            if message is not None:
                self._activate(message)

    def catch_up(self) -> int:
        """Let happen what is due here by the clock; the time it is."""
        now = self._context.tick()
        self._run_to(now)
        return now

    def _run_to(self, now: int) -> None:
        due = self.next_due()
        if due is not None and due <= now:
            self.run_due(now)

    def _activate(self, message: StoredMessage) -> None:
        """A scheduled message is enqueued as if it came now, with a new number; the old one stays its enqueued sequence number."""
        self._remove(message)
        incoming = message.as_incoming()
        number = self._numbers.issue(incoming)
        self._arrive(incoming, number, message.enqueued_sequence_number, 0, message.dead_letter_source)

    # Within

    @abstractmethod
    def _arrive(
        self,
        message: IncomingMessage,
        sequence_number: int,
        enqueued_sequence_number: int,
        hops: int,
        dead_letter_source: str | None,
    ) -> None:
        """A message is enqueued now."""

    def check_batch(self, messages: Sequence[IncomingMessage]) -> None:
        """A fault if this entity cannot take all of them."""
        if not messages:
            raise faults.argument_error("There is no message in the request.")
        if len(messages) > MAX_BATCH_MESSAGES:
            raise faults.resource_limit_exceeded(f"A batch has at most {MAX_BATCH_MESSAGES} messages, not {len(messages)}.")
        for message in messages:
            self.check_send(message)

    def _is_duplicate(self, message: IncomingMessage) -> bool:
        if self._duplicates is None or message.message_id is None:
            return False
        now = self._context.time
        if self._duplicates.seen(message.message_id, now):
            return True
        self._duplicates.remember(message.message_id, now)
        self._context.record(MessageIdSeen, self.path, message.message_id, now)
        return False

    def _take(self, message: IncomingMessage) -> None:
        if message.message_id is None:
            message = self._identified(message)
        if self._is_duplicate(message):
            return
        number = self._numbers.issue(message)
        due = message.scheduled_enqueue_time
        if due is not None and due > self._context.time:
            self._put_scheduled([self._new(message, number, number, state=MessageState.SCHEDULED)])
        else:
            self._arrive(message, number, number, 0, None)

    def _identified(self, message: IncomingMessage) -> IncomingMessage:
        return with_message_id(message, self._context.new_lock_token().hex)

    def _new(
        self,
        message: IncomingMessage,
        sequence_number: int,
        enqueued_sequence_number: int,
        *,
        state: MessageState = MessageState.ACTIVE,
        dead_letter_source: str | None = None,
    ) -> StoredMessage:
        now = self._context.time
        ttl, default = message.ttl, self._default_ttl
        if ttl is None or (default is not None and default < ttl):
            ttl = default
        return StoredMessage(
            sequence_number,
            enqueued_sequence_number,
            now,
            bare=message.bare,
            state=state,
            ttl=ttl,
            expires_at=None if ttl is None or state is MessageState.SCHEDULED else now + ttl,
            scheduled_enqueue_time=message.scheduled_enqueue_time,
            session_id=message.session_id,
            dead_letter_source=dead_letter_source,
            header=message.header,
            delivery_annotations=message.delivery_annotations,
            annotations=message.annotations,
            annotation_items=message.annotation_items,
        )

    def _put(self, message: StoredMessage) -> None:
        """The message stands here from now on."""
        self._place(message)
        self._context.record(MessageStored, self.path, message)

    def _put_scheduled(self, messages: Sequence[StoredMessage]) -> None:
        """These stand here from now on."""
        self._place_scheduled(messages)
        if self._context.records:
            for message in messages:
                self._context.record(MessageStored, self.path, message)

    def _place(self, message: StoredMessage) -> None:
        self.messages.add(message.sequence_number, message)
        if message.state is MessageState.SCHEDULED:
            self._put_on_schedule((message,))

    def _place_scheduled(self, messages: Sequence[StoredMessage]) -> None:
        self.messages.add_all({message.sequence_number: message for message in messages})
        self._put_on_schedule(messages)

    def _put_on_schedule(self, messages: Sequence[StoredMessage]) -> None:
        if messages:
            self._schedule.add(_by_time(messages))
            self._context.watch(self)

    def _remove(self, message: StoredMessage) -> None:
        self._displace(message)
        self._context.record(MessageRemoved, self.path, message.sequence_number)

    def _remove_scheduled(self, messages: Sequence[StoredMessage]) -> None:
        self.messages.pop_all([message.sequence_number for message in messages])
        self._schedule.discard(_by_time(messages))
        if self._context.records:
            for message in messages:
                self._context.record(MessageRemoved, self.path, message.sequence_number)

    def _displace(self, message: StoredMessage) -> None:
        """It does not stand here any more."""
        self.messages.pop(message.sequence_number)
        if message.state is MessageState.SCHEDULED:
            self._schedule.discard(_by_time((message,)))

    # Recovery: the records of `changes`, applied without recording them again.

    def restore_message(self, message: StoredMessage) -> None:
        """The message stands here, instead of an earlier form of it; whoever held a lock on it is gone."""
        self.restore_removal(message.sequence_number)
        message.lock_token, message.holder, message.locked_until = None, None, 0
        message.changed()
        self._place(message)

    def restore_update(self, sequence_number: int, state: int, delivery_count: int) -> None:
        message = self.messages.get(sequence_number)
        if message is not None:
            message.state, message.delivery_count = MessageState(state), delivery_count
            message.changed()

    def restore_removal(self, sequence_number: int) -> None:
        message = self.messages.get(sequence_number)
        if message is not None:
            self._displace(message)

    def restore_numbers(self, partition_id: int, last: int) -> None:
        self._numbers.restore(partition_id, last)

    def restore_message_id(self, message_id: str, time: int) -> None:
        if self._duplicates is not None:
            self._duplicates.remember(message_id, time)


def _by_time(scheduled: Iterable[StoredMessage]) -> ByTime:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for message in scheduled:
        if message.scheduled_enqueue_time is not None:
            found[message.scheduled_enqueue_time].append(message.sequence_number)
    return found


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
