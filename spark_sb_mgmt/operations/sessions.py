"""Sessions: their locks, their state, and which there are (wire-facts.md, sections 1.1, 1.2 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Map, type_name
from spark_sb_mgmt.errors import SESSION_NOT_FOUND, InvalidArgumentError, RemoteProtocolError
from spark_sb_mgmt.operations import arguments, names, results
from spark_sb_mgmt.operations.envelope import Request, Response


@dataclass(frozen=True)
class MessageSessions:
    """One page of session ids; `skip` is what the next page is asked with. A page may be short: only an empty one is the last."""

    sessions_ids: tuple[str, ...]
    skip: int


def renew_session_lock(session_id: str) -> Request[datetime]:
    """Keep a session locked; answers until when."""
    return Request(
        names.RENEW_SESSION_LOCK,
        _session(session_id),
        "renew-session-lock of one session",
        _read_expiration,
        safe=True,
    )


def get_session_state(session_id: str) -> Request[bytes | None]:
    """The state of a session, None where it has none."""
    return Request(names.GET_SESSION_STATE, _session(session_id), "get-session-state of one session", _read_state, safe=True)


def set_session_state(session_id: str, session_state: bytes | None) -> Request[None]:
    """Set the state of a session; None clears it."""
    if session_state is not None and not isinstance(session_state, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError("session_state", f"must be bytes or None, not a {type(session_state).__name__}")
    state = None if session_state is None else bytes(session_state)
    body = Map([(names.SESSION_ID, arguments.identifier("session_id", session_id)), (names.SESSION_STATE, state)])
    return Request(
        names.SET_SESSION_STATE,
        encode_value(body),
        "set-session-state of one session" if state is not None else "set-session-state of one session to nothing",
        results.nothing,
    )


def get_message_sessions(last_updated_time: datetime | int | None = None, skip: int = 0, top: int = 100) -> Request[MessageSessions]:
    """Ids of sessions. Without a time: all that have messages or a state. With one: those whose state was set after it."""
    since = names.ALL_SESSIONS if last_updated_time is None else last_updated_time
    body = Map(
        [
            (names.LAST_UPDATED_TIME, arguments.timestamp("last_updated_time", since)),
            (names.SKIP, arguments.int32("skip", skip, 0)),
            (names.TOP, arguments.int32("top", top, 1)),
        ]
    )
    return Request(
        names.GET_MESSAGE_SESSIONS,
        encode_value(body),
        f"get-message-sessions of up to {top} sessions after the first {skip}",
        partial(_read_sessions, skip=skip, top=top),
        safe=True,
        empty_condition=SESSION_NOT_FOUND,
    )


def _session(session_id: str) -> bytes:
    return encode_value(Map([(names.SESSION_ID, arguments.identifier("session_id", session_id))]))


def _read_expiration(response: Response) -> datetime:
    return results.moment(names.EXPIRATION, results.one(response.body(), names.EXPIRATION, "timestamp"))


def _read_state(response: Response) -> bytes | None:
    state = results.required(response.body(), names.SESSION_STATE)
    if state is not None and not isinstance(state, bytes):
        raise RemoteProtocolError(f"`{names.SESSION_STATE}` of the answer is an AMQP {type_name(state)}, not a binary or null")
    return state


def _read_sessions(response: Response, skip: int, top: int) -> MessageSessions:
    if not response.is_success or response.is_empty:
        return MessageSessions((), skip)
    body = response.body()
    ids = results.several(body, names.SESSIONS_IDS, "string")
    if len(ids) > top:
        raise RemoteProtocolError(f"`{names.SESSIONS_IDS}` of the answer has {len(ids)} items where {top} at most were asked for")
    return MessageSessions(ids, int(results.one(body, names.SKIP, "int")))
