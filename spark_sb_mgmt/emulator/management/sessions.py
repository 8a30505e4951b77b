"""Operations on sessions: their locks, their state, and which there are (wire-facts.md sections 1.1 and 2).

The one rule: a request that names a link speaks for that link's lock on the session; one that names none speaks for nobody.
"""

from __future__ import annotations

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Array, Int, Timestamp
from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.management.call import DONE, Answer, Call, nothing
from spark_sb_mgmt.errors import SESSION_NOT_FOUND
from spark_sb_mgmt.operations import names

_EXPIRATION, _SESSION_STATE, _SKIP, _SESSIONS_IDS = (
    encode_value(key) for key in (names.EXPIRATION, names.SESSION_STATE, names.SKIP, names.SESSIONS_IDS)
)


def renew_session_lock(call: Call) -> Answer:
    until = call.queue.renew_session_lock(call.body.identifier(names.SESSION_ID), call.associated)
    return Answer((_EXPIRATION, encode_value(Timestamp(until))))


def get_session_state(call: Call) -> Answer:
    state = call.queue.get_session_state(call.body.identifier(names.SESSION_ID), call.associated)
    # The key is there with null as well: clients read it without asking.
    return Answer((_SESSION_STATE, encode_value(state)))


def set_session_state(call: Call) -> Answer:
    if names.SESSION_STATE not in call.body:
        # Null clears a state, so that it must be said.
        raise faults.argument_error(f"`{names.SESSION_STATE}` (AMQP binary or null) is missing in {call.body.place}.")
    state: bytes | None = call.body.optional(names.SESSION_STATE, "binary")
    call.queue.set_session_state(call.body.identifier(names.SESSION_ID), state, call.associated)
    return DONE


def get_message_sessions(call: Call) -> Answer:
    skip = call.body.integer(names.SKIP, "int")
    ids = call.queue.get_message_sessions(
        call.body.integer(names.LAST_UPDATED_TIME, "timestamp"), skip, call.body.integer(names.TOP, "int")
    )
    if not ids:
        return nothing("There are no more sessions.", SESSION_NOT_FOUND)
    return Answer((_SKIP, encode_value(Int(skip + len(ids))), _SESSIONS_IDS, encode_value(Array("string", ids))))
