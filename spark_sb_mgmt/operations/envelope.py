"""The message around every request and every answer (request-response document; wire-facts.md, section 1.0).

The one rule: the envelope is read, the body is found. An answer may carry megabytes of messages; only properties and
application-properties are decoded here, and whoever knows the operation decides how the body is read.

What is sent: properties with message-id (a string, as .NET, JavaScript and Go send it) and reply-to; application-properties with
`operation`, `com.microsoft:server-timeout` (uint) and, where given, `associated-link-name` and `com.microsoft:tracking-id`; the body an
amqp-value map with string keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Generic, TypeVar

from spark_sb_mgmt.amqp import constructors as c
from spark_sb_mgmt.amqp.decode import decode_value, skip_value
from spark_sb_mgmt.amqp.encode import encode_list, encode_map, encode_value
from spark_sb_mgmt.amqp.message import AMQP_VALUE, APPLICATION_PROPERTIES, PROPERTIES, read_descriptor
from spark_sb_mgmt.amqp.types import Map, UInt, Value, type_name
from spark_sb_mgmt.errors import DecodeError, RemoteProtocolError, SbMgmtError, error_from_response
from spark_sb_mgmt.operations import names

T = TypeVar("T")

OK: Final = 200
ACCEPTED: Final = 202
NO_CONTENT: Final = 204
NOT_FOUND: Final = 404
# What `Response.status` is where the answer has none, or one that is no integer.
NO_STATUS: Final = 0


@dataclass(frozen=True)
class Response:
    """An answer, its body not decoded. `body_offset` is where the value of the amqp-value section starts in `raw`; None where there is no
    body or it is null."""

    raw: bytes = field(repr=False)
    correlation_id: Value
    status: int
    # Whatever the service wrote; an error shows it, without secrets.
    description: str | None = field(default=None, repr=False)
    condition: str | None = None
    tracking_id: str | None = None
    body_offset: int | None = None
    application_properties: Map = field(default_factory=Map, repr=False)
    # Whose answer it is, where the one who asked has said so.
    entity: str | None = None

    @property
    def is_success(self) -> bool:
        return self.status in (OK, ACCEPTED, NO_CONTENT)

    @property
    def is_empty(self) -> bool:
        """There is nothing to answer with, and that is no error."""
        return self.status in (ACCEPTED, NO_CONTENT)

    def body(self) -> Map:
        """The body, decoded whole: for answers that carry no messages. An empty map where there is none."""
        if self.body_offset is None:
            return Map()
        value, _ = decode_value(self.raw, self.body_offset)
        if not isinstance(value, Map):
            raise RemoteProtocolError(f"the body of the answer is an AMQP {type_name(value)}, not a map")
        return value


@dataclass(frozen=True)
class Request(Generic[T]):
    """One management request, complete but for its envelope, and how its answer is read.

    `safe`: sending it again changes nothing more. `transactional`: it may be part of a transaction. `summary` says what it asks for, in
    words that may stand in an error or a log. `empty_condition`: a 404 with this condition means that nothing is there, no error.
    """

    operation: str
    body: bytes = field(repr=False)
    summary: str
    reader: Callable[[Response], T] = field(repr=False)
    safe: bool = False
    transactional: bool = False
    empty_condition: str | None = None

    @property
    def name(self) -> str:
        """The operation as people name it: the wire name without its prefix."""
        return names.short_name(self.operation)

    def error(self, response: Response, entity: str | None = None) -> SbMgmtError | None:
        """The error that this answer stands for, None if it is a success. What the body holds is not looked at."""
        if response.is_success or (response.status == NOT_FOUND and response.condition == self.empty_condition is not None):
            return None
        if response.status == NO_STATUS:
            return _no_status(response).about(self.name, entity)
        return error_from_response(response.status, response.condition, response.description, response.tracking_id, self.name, entity)

    def read(self, response: Response, entity: str | None = None) -> T:
        """What the answer says; raises what `error` gives, and RemoteProtocolError where the body is not what it must be."""
        error = self.error(response, entity)
        if error is not None:
            raise error
        try:
            return self.reader(response if entity is None else replace(response, entity=entity))
        except SbMgmtError as problem:
            raise problem.about(self.name, entity) from None


def _no_status(response: Response) -> RemoteProtocolError:
    for key in (names.STATUS_CODE, names.CBS_STATUS_CODE):
        if key in response.application_properties:
            found = response.application_properties[key]
            return RemoteProtocolError(f"`{key}` of the answer is {found!r:.80}, which is no integer above zero")
    return RemoteProtocolError(f"the answer has no `{names.STATUS_CODE}`")


# --- requests -----------------------------------------------------------------------------------------------------------

_PROPERTIES_START = bytes((c.DESCRIBED, c.SMALL_ULONG, PROPERTIES))
_APPLICATION_PROPERTIES_START = bytes((c.DESCRIBED, c.SMALL_ULONG, APPLICATION_PROPERTIES))
_AMQP_VALUE_START = bytes((c.DESCRIBED, c.SMALL_ULONG, AMQP_VALUE))
_NULL = b"\x40"


def encode_request(
    request: Request[T],
    message_id: str,
    reply_to: str,
    server_timeout_ms: int,
    associated_link_name: str | None = None,
    tracking_id: str | None = None,
) -> bytes:
    """The whole message, as it goes on the wire."""
    return b"".join(
        (
            _PROPERTIES_START,
            # user-id, to and subject stand between message-id and reply-to.
            encode_list((encode_value(message_id), _NULL, _NULL, _NULL, _text(reply_to))),
            _APPLICATION_PROPERTIES_START,
            _application_properties(request.operation, server_timeout_ms, associated_link_name, tracking_id),
            _AMQP_VALUE_START,
            request.body,
        )
    )


def _application_properties(operation: str, server_timeout_ms: int, link: str | None, tracking_id: str | None) -> bytes:
    pairs = [_text(names.OPERATION), _text(operation), _text(names.SERVER_TIMEOUT), encode_value(UInt(server_timeout_ms))]
    if link is not None:
        pairs += (_text(names.ASSOCIATED_LINK_NAME), _text(link))
    if tracking_id is not None:
        pairs += (_text(names.TRACKING_ID), encode_value(tracking_id))
    return encode_map(pairs)


@lru_cache(maxsize=256)
def _text(text: str) -> bytes:
    """Names that come again with every request: encoded once."""
    return encode_value(text)


# --- answers ------------------------------------------------------------------------------------------------------------

_CORRELATION_ID_FIELD: Final = 5
# A peer may send a text of any length, and it may end up in an error.
_LONGEST_TEXT: Final = 4096


def read_response(raw: bytes | bytearray | memoryview) -> Response:
    """The envelope of an answer, of `$management` or `$cbs`. What is wrong with its status is told by `Request.error`, so that it fails the
    request it belongs to; bytes that are no message at all raise DecodeError, with `correlation_id` if that much could be read."""
    # proton hands out a bytearray; the decoders slice what they are given, and a uuid wants bytes.
    raw = raw if isinstance(raw, bytes) else bytes(raw)
    correlation_id: Value = None
    properties = Map()
    at, end = 0, len(raw)
    try:
        while at < end:
            code, at = read_descriptor(raw, at, end)
            if code == AMQP_VALUE:
                # The last that matters. A footer may follow, but to find it the whole body would have to be right.
                break
            if code == PROPERTIES:
                fields, at = decode_value(raw, at, end)
                correlation_id = _correlation_id(fields)
            elif code == APPLICATION_PROPERTIES:
                properties, at = _map(raw, at, end)
            else:
                at = skip_value(raw, at, end)
    except DecodeError as problem:
        problem.correlation_id = correlation_id
        raise
    body = None if at >= end or raw[at] == c.NULL else at
    get = properties.get
    return Response(
        raw,
        correlation_id,
        _status(get(names.STATUS_CODE, get(names.CBS_STATUS_CODE))),
        _said(get(names.STATUS_DESCRIPTION, get(names.CBS_STATUS_DESCRIPTION))),
        _said(get(names.ERROR_CONDITION, get(names.LEGACY_ERROR_CONDITION))),
        _said(get(names.TRACKING_ID)),
        body,
        properties,
    )


def _map(raw: bytes, at: int, end: int) -> tuple[Map, int]:
    value, after = decode_value(raw, at, end)
    if not isinstance(value, Map):
        raise DecodeError(f"section application-properties is a map, not a {type_name(value)}", at)
    return value, after


def _correlation_id(fields: Value) -> Value:
    return fields[_CORRELATION_ID_FIELD] if isinstance(fields, tuple) and len(fields) > _CORRELATION_ID_FIELD else None


def _status(value: Value) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else NO_STATUS


def _said(value: Value) -> str | None:
    """Text as the service meant it, whatever type it gave it; some send the condition as symbol, some as string."""
    return None if value is None else str(value)[:_LONGEST_TEXT]
