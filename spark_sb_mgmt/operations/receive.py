"""receive-by-sequence-number: take deferred messages, locked or for good (wire-facts.md, sections 1.1 and 1.2).

All or nothing: if one of the messages is missing or locked, the service answers 404 and takes none. It is not safe to repeat: the first
attempt may hold the locks that the second is refused for, or have removed the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Map, UInt, Value
from spark_sb_mgmt.errors import RemoteProtocolError
from spark_sb_mgmt.operations import arguments, names
from spark_sb_mgmt.operations.envelope import Request, Response
from spark_sb_mgmt.operations.message import Messages, read_messages

_SETTLE_MODES: Final = {names.RECEIVE_AND_DELETE: "delete", names.PEEK_LOCK: "lock"}


def receive_by_sequence_number(
    sequence_numbers: Iterable[int],
    receiver_settle_mode: int = names.PEEK_LOCK,
    session_id: str | None = None,
) -> Request[Messages]:
    """Deferred messages by their numbers. `receiver_settle_mode` 1 locks them and gives their lock tokens, 0 deletes them. On a partitioned
    entity the numbers must be of one partition."""
    numbers = arguments.int64_array("sequence_numbers", sequence_numbers)
    arguments.one_of("receiver_settle_mode", receiver_settle_mode, _SETTLE_MODES)
    body: list[tuple[str, Value]] = [
        (names.SEQUENCE_NUMBERS, Array("long", numbers.tolist())),
        (names.RECEIVER_SETTLE_MODE, UInt(receiver_settle_mode)),
    ]
    if session_id is not None:
        body.append((names.SESSION_ID, arguments.identifier("session_id", session_id)))
    return Request(
        names.RECEIVE_BY_SEQUENCE_NUMBER,
        encode_value(Map(body)),
        f"receive-by-sequence-number of {len(numbers)} messages, settle mode {receiver_settle_mode}",
        partial(_read, most=len(numbers), locked=receiver_settle_mode == names.PEEK_LOCK),
    )


def _read(response: Response, most: int, locked: bool) -> Messages:
    messages = read_messages(response, names.RECEIVE_BY_SEQUENCE_NUMBER, most)
    if locked:
        # Without its token a message stays locked until the lock runs out, and nobody can settle it.
        for index in range(len(messages)):
            if messages.lock_token(index) is None:
                raise RemoteProtocolError(f"message {index} of the answer has no `{names.LOCK_TOKEN}`, and locks were asked for")
    return messages
