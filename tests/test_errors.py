"""Errors: one tree as drawn, all of it pickles, none of it shows a secret, and the service's words mean what wire-facts.md says."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_sb_mgmt
import spark_sb_mgmt.client
from spark_sb_mgmt import errors
from spark_sb_mgmt.errors import (
    ArgumentError,
    AuthenticationError,
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DecodeError,
    EncodeError,
    EntityAlreadyExistsError,
    EntityDisabledError,
    EntityNotFoundError,
    InvalidArgumentError,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    NotSupportedError,
    OperationTimeoutError,
    OutcomeUnknownError,
    QuotaExceededError,
    RemoteProtocolError,
    RequestTooLargeError,
    RowsFailedError,
    SbMgmtError,
    ServerBusyError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
    TransactionError,
    error_from_condition,
    error_from_response,
    retry_after,
    scrub,
)

# --- the tree -----------------------------------------------------------------------------------------------------------


def descendants(kind: type[SbMgmtError]) -> Iterator[type[SbMgmtError]]:
    for child in kind.__subclasses__():
        # The emulator has errors of its own, which are there if a test before this one has imported it.
        if child.__module__ == errors.__name__:
            yield child
            yield from descendants(child)


ALL = [SbMgmtError, *descendants(SbMgmtError)]


def drawn_tree() -> dict[str, str | None]:
    """Parent of each class, by how deep it is drawn at the head of the module."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            parents[found[2]] = above[depth - 1] if depth else None
            above[depth:] = [found[2]]
    return parents


def test_the_tree_is_as_drawn() -> None:
    real = {kind.__name__: next((base.__name__ for base in kind.__bases__ if issubclass(base, SbMgmtError)), None) for kind in ALL}
    assert drawn_tree() == real


def test_the_root_is_among_the_public_names_of_what_raises_it() -> None:
    assert spark_sb_mgmt.SbMgmtError is spark_sb_mgmt.client.SbMgmtError is SbMgmtError


def test_what_a_caller_got_wrong_is_also_a_value_error() -> None:
    assert {kind for kind in ALL if issubclass(kind, ValueError)} == {EncodeError, InvalidArgumentError, DecodeError}


# --- fields -------------------------------------------------------------------------------------------------------------

FIELDS: dict[str, Any] = {
    "operation": "peek-message",
    "entity": "orders",
    "status": 503,
    "condition": "com.microsoft:server-busy",
    "description": "busy",
    "tracking_id": "t-1",
    "retryable": True,
    "retry_after": 4.0,
    "may_have_taken_effect": True,
}


def test_what_is_not_known_is_none() -> None:
    error = SbMgmtError("x")
    assert {name: getattr(error, name) for name in FIELDS} == dict.fromkeys(FIELDS) | {"retryable": False, "may_have_taken_effect": False}
    assert str(error) == "x"


def test_the_status_goes_by_the_name_that_receipts_have_for_it_too() -> None:
    assert (ServerBusyError("busy", **FIELDS).status_code, SbMgmtError("x").status_code) == (503, None)


def test_the_text_says_what_it_is_about_and_what_the_service_said() -> None:
    assert str(ServerBusyError("busy", **FIELDS)) == (
        "busy (peek-message on orders, status 503, com.microsoft:server-busy, tracking id t-1)"
    )
    assert str(SbMgmtError("x", entity="orders")) == "x (orders)"


def test_an_error_is_told_what_it_is_about_once() -> None:
    error = SbMgmtError("x", operation="renew-lock")
    assert error.about("peek-message", "orders") is error
    assert (error.operation, error.entity) == ("renew-lock", "orders")
    assert error.about(entity="others").entity == "orders"


@pytest.mark.parametrize(
    ("error", "text", "own"),
    [
        (EncodeError("no int", row=3), "row 3: no int", {"problem": "no int", "row": 3}),
        (EncodeError("no int").at_row(4), "row 4: no int", {"problem": "no int", "row": 4}),
        (InvalidArgumentError("top", "must be 1"), "top must be 1", {"argument": "top", "row": None}),
        (InvalidArgumentError("ids", "is long", row=2), "ids[2] is long", {"argument": "ids", "row": 2}),
        (DecodeError("cut off", 7), "cut off (at byte 7)", {"offset": 7, "message": None}),
        (DecodeError("cut off", 7).at_message(2), "cut off (at message 2, byte 7)", {"offset": 7, "message": 2}),
        (DeadlineExceededError("attach", 2.5), "no answer within the attach deadline of 2.5 s", {"deadline": "attach", "seconds": 2.5}),
    ],
)
def test_errors_with_fields_of_their_own(error: SbMgmtError, text: str, own: dict[str, Any]) -> None:
    assert str(error) == text
    assert {name: getattr(error, name) for name in own} == own


def test_a_request_too_large_names_the_sizes_the_row_and_the_way_out() -> None:
    error = RequestTooLargeError(300_000, 262_144, row=5, operation="schedule-message", entity="orders")
    assert str(error) == (
        "row 5: its request alone has 300000 bytes, the link takes 262144 at most: send fewer messages at once, or smaller ones"
        " (schedule-message on orders)"
    )
    assert (error.size, error.limit, error.row) == (300_000, 262_144, 5)
    assert "the request has 9 bytes" in str(RequestTooLargeError(9, 8))


def test_an_unknown_outcome_says_what_was_sent_and_that_it_was_not_sent_again() -> None:
    error = OutcomeUnknownError("2 messages to schedule", "the connection was lost", operation="schedule-message", entity="orders")
    assert "sent 2 messages to schedule, and it is not known whether it took effect: the connection was lost" in str(error)
    assert "It was not sent again" in str(error)
    assert (error.may_have_taken_effect, error.retryable) == (True, False)


def test_only_a_failed_way_or_a_deadline_is_retryable_by_itself() -> None:
    kinds = {kind for kind in ALL if kind.retryable}
    assert kinds == {errors.TransportError, ConnectionFailedError, ConnectionLostError, DeadlineExceededError}
    assert ConnectionFailedError("untrusted certificate", retryable=False).retryable is False


# --- pickling -----------------------------------------------------------------------------------------------------------

OWN_ARGUMENTS: dict[type[SbMgmtError], tuple[Any, ...]] = {
    InvalidArgumentError: ("top", "must be 1"),
    RequestTooLargeError: (9, 8),
    DecodeError: ("cut off", 7),
    DeadlineExceededError: ("attach", 2.5),
    OutcomeUnknownError: ("one message", "the link was lost"),
    RowsFailedError: (2, ["row with k=1: too late"]),
}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("carry", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_every_error_pickles_with_all_it_knows(kind: type[SbMgmtError], carry: Any) -> None:
    error = kind(*OWN_ARGUMENTS.get(kind, ("some problem",)))
    for name, value in FIELDS.items():
        setattr(error, name, value)
    again = carry(error)
    assert type(again) is kind
    assert (str(again), repr(again), again.args, again.__dict__) == (str(error), repr(error), error.args, error.__dict__)


def test_rows_that_failed_are_told_in_sentences_that_end_once() -> None:
    error = RowsFailedError(3, ["row with k=1: The lock is lost.", "row with k=2: too late"], 4)
    assert str(error).startswith("3 rows failed: row with k=1: The lock is lost; row with k=2: too late, and 1 more. 4 others were done")
    assert RowsFailedError(1, ["row with k=1: The lock is lost."]).args[0].startswith("1 row failed: row with k=1: The lock is lost. With ")


def test_what_is_given_to_an_error_and_does_not_pickle_becomes_text() -> None:
    error = SbMgmtError("why:", ValueError("x"), (line for line in "ab"), 5, None)
    again = pickle.loads(pickle.dumps(error))
    assert again.args[0:2] == ("why:", "x")
    assert again.args[3:] == (5, None)


# --- secrets ------------------------------------------------------------------------------------------------------------

KEY = "c2VjcmV0K2tleS9ub2JvZHk="
SIGNATURE = "SharedAccessSignature sr=sb%3A%2F%2Fns&sig=S3cr3t%2BSig%3D&se=1900000000&skn=Root"
TOKEN = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJzYiJ9.c2lnbmF0dXJl"
SECRETS = (KEY, KEY.rstrip("="), "S3cr3t", TOKEN, "c2lnbmF0dXJl")

LEAKS = [
    f"Endpoint=sb://ns/;SharedAccessKeyName=Root;SharedAccessKey={KEY};EntityPath=q",
    f"sharedaccesskey = {KEY}",
    f"SharedAccessKey={KEY}\nnext line",
    f"SharedAccessKey='{KEY}'",
    f'{{"SharedAccessKey": "{KEY}", "other": 1}}',
    f"{{'shared_access_key': '{KEY}'}}",
    f"SharedAccessKey: {KEY}",
    f"clientSecret={KEY}",
    f"client_secret='{KEY}'",
    f"option clientSecret: {KEY}, tenantId: x",
    f"password={KEY}",
    f"Endpoint=sb://ns/;SharedAccessSignature={SIGNATURE}",
    f"token {SIGNATURE} was refused",
    f"'{SIGNATURE}'",
    "https://ns/q?sr=x&sig=S3cr3t%2BSig%3D&se=1",
    "sr%3Dx%26sig%3DS3cr3t%252BSig",
    f"Authorization: Bearer {TOKEN}",
    "authorization: bearer S3cr3t-opaque-token",
    f"put-token with {TOKEN} failed",
]


@pytest.mark.parametrize("text", LEAKS)
def test_no_secret_passes_into_any_text_of_any_error(text: str) -> None:
    made: list[SbMgmtError] = [
        SbMgmtError(text),
        SbMgmtError("x", ValueError(text)),
        SbMgmtError({"given": text}),
        SbMgmtError("x", operation=text, entity=text, condition=text, description=text, tracking_id=text),
        SbMgmtError("x").about(text, text),
        EncodeError(text, row=1),
        InvalidArgumentError("connectionString", text),
        InvalidArgumentError(text, "is wrong", operation=text),
        RequestTooLargeError(9, 8, operation=text, entity=text),
        DeadlineExceededError(text, 1, operation=text, entity=text),
        DecodeError(text, 0),
        OutcomeUnknownError(text, text, operation=text, entity=text, tracking_id=text),
        RowsFailedError(1, [text], operation=text, entity=text),
        error_from_response(401, "com.microsoft:auth-failed", text, text, entity=text),
        error_from_response(777, text, text),
        error_from_condition("amqp:unauthorized-access", text, entity=text),
    ]
    for error in made:
        shown = "\n".join((str(error), repr(error), repr(error.args), repr(vars(error)), repr(pickle.loads(pickle.dumps(error)))))
        assert not [secret for secret in SECRETS if secret in shown], shown
        assert "***" in shown


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_that_is_set_later_or_cut_off_does_not_show_either(text: str) -> None:
    error = RemoteProtocolError("x")
    error.correlation_id = text
    # So long that the end of what is kept falls into the secret.
    answers = [error_from_response(status, None, "x" * (1990 - at) + text) for at in range(0, 60, 3) for status in (400, 777)]
    for each in (error, *answers):
        shown = f"{each} {vars(each)}"
        assert not [secret[:6] for secret in SECRETS if secret[:6] in shown], shown


@pytest.mark.parametrize("text", LEAKS)
def test_what_is_scrubbed_stays_as_it_is(text: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        (f"SharedAccessKeyName=Root;SharedAccessKey={KEY};EntityPath=q", "SharedAccessKeyName=Root;SharedAccessKey=***;EntityPath=q"),
        (f"'{SIGNATURE}' ended", "'SharedAccessSignature ***' ended"),
        ("?sig=abc&se=1", "?sig=***&se=1"),
        (f'{{"SharedAccessKey": "{KEY}", "other": 1}}', '{"SharedAccessKey": "***", "other": 1}'),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, scrubbed: str) -> None:
    assert scrub(text) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "connectionString lacks SharedAccessKey: give SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature",
        "the SharedAccessSignature ended at 2027-01-15T09:00:00+00:00: give a new one",
        "SharedAccessSignature must have `sig` once: it is sr, sig, se and skn, divided by `&`",
        "clientSecret needs tenantId, clientSecret too",
        "the bearer of bad news",
        "design=big; redesign=bigger",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert scrub(text) == text


KEYS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", min_size=8, max_size=64).map(lambda text: f"{text}Zq9=")


@given(KEYS, st.text(max_size=20), st.text(max_size=20))
def test_any_key_in_any_surroundings_is_gone(key: str, before: str, after: str) -> None:
    assert key not in scrub(f"{before} SharedAccessKey={key};{after}")
    assert key not in scrub(f"{before}?sr=a&sig={key}&se=1{after}")


# --- what the service's words mean --------------------------------------------------------------------------------------

# wire-facts.md, section 1.4: status, condition, the error, whether sending the same again can help, whether it may have been done.
TABLE = [
    (400, "amqp:not-allowed", ArgumentError, False, False),
    (400, "com.microsoft:argument-error", ArgumentError, False, False),
    (400, "com.microsoft:argument-out-of-range", ArgumentError, False, False),
    (400, "com.microsoft:entity-disabled", EntityDisabledError, False, False),
    (401, "amqp:unauthorized-access", AuthenticationError, False, False),
    (401, "com.microsoft:auth-failed", AuthenticationError, False, False),
    (401, "com.microsoft:publisher-revoked", AuthenticationError, False, False),
    (403, "amqp:resource-limit-exceeded", QuotaExceededError, False, False),
    (403, "amqp:link:message-size-exceeded", MessageSizeExceededError, False, False),
    (404, "amqp:not-found", EntityNotFoundError, False, False),
    (404, "com.microsoft:message-not-found", MessageNotFoundError, False, False),
    (408, "com.microsoft:timeout", OperationTimeoutError, True, True),
    (409, "com.microsoft:entity-already-exists", EntityAlreadyExistsError, False, False),
    (410, "com.microsoft:message-lock-lost", MessageLockLostError, False, False),
    (410, "com.microsoft:session-lock-lost", SessionLockLostError, False, False),
    (410, "com.microsoft:session-cannot-be-locked", SessionCannotBeLockedError, False, False),
    (410, "com.microsoft:store-lock-lost", ServiceBusError, False, False),
    (410, "com.microsoft:partition-not-owned", ServiceBusError, False, False),
    (410, "amqp:link:stolen", ServiceBusError, False, True),
    (500, "com.microsoft:no-matching-subscription", ServiceBusError, False, False),
    (500, "amqp:internal-error", ServiceBusError, True, True),
    (501, "amqp:not-implemented", NotSupportedError, False, False),
    (503, "com.microsoft:server-busy", ServerBusyError, True, False),
    # Without a condition, or with one that nobody knows: by the status alone.
    (400, None, ArgumentError, False, False),
    (401, None, AuthenticationError, False, False),
    (403, None, ServiceBusError, False, False),
    (404, None, EntityNotFoundError, False, False),
    (408, None, OperationTimeoutError, True, True),
    (409, None, EntityAlreadyExistsError, False, False),
    (410, None, ServiceBusError, False, False),
    (418, None, ServiceBusError, False, False),
    (429, None, ServerBusyError, True, False),
    (500, None, ServiceBusError, True, True),
    (501, None, NotSupportedError, False, False),
    (503, None, ServerBusyError, True, False),
    (504, None, OperationTimeoutError, True, True),
    (599, None, ServiceBusError, True, True),
    (404, "com.example:new", EntityNotFoundError, False, False),
    # The condition says more than the status.
    (500, "com.microsoft:server-busy", ServerBusyError, True, False),
]


@pytest.mark.parametrize(("status", "condition", "kind", "retryable", "uncertain"), TABLE)
def test_the_error_of_an_answer(status: int, condition: str | None, kind: type, retryable: bool, uncertain: bool) -> None:
    error = error_from_response(status, condition, "why", "t-1", "renew-lock", "orders")
    assert type(error) is kind
    assert (error.retryable, error.may_have_taken_effect) == (retryable, uncertain)
    assert (error.status, error.condition, error.description, error.tracking_id) == (status, condition, "why", "t-1")
    assert (error.operation, error.entity) == ("renew-lock", "orders")
    assert str(error).startswith("why (renew-lock on orders, status")


@pytest.mark.parametrize("status", [1, 100, 201, 203, 299, 302, 600, 2**31 - 1])
def test_a_status_that_no_operation_has_is_a_breach_of_the_protocol(status: int) -> None:
    error = error_from_response(status, None, "what?", operation="renew-lock", entity="orders")
    assert type(error) is RemoteProtocolError
    assert f"status {status}, which no management operation has: what?" in str(error)
    assert error.may_have_taken_effect


@pytest.mark.parametrize(
    ("condition", "kind", "retryable"),
    [
        (None, ConnectionLostError, True),
        ("com.example:new", ConnectionLostError, True),
        ("amqp:link:detach-forced", ConnectionLostError, True),
        ("amqp:connection:forced", ConnectionLostError, True),
        ("amqp:link:stolen", ConnectionLostError, False),
        ("amqp:connection:framing-error", ConnectionLostError, False),
        ("amqp:not-found", EntityNotFoundError, False),
        ("amqp:unauthorized-access", AuthenticationError, False),
        ("com.microsoft:server-busy", ServerBusyError, True),
        ("amqp:transaction:rollback", TransactionError, False),
    ],
)
def test_the_error_of_a_link_that_ended(condition: str | None, kind: type, retryable: bool) -> None:
    error = error_from_condition(condition, "why", "peek-message", "orders", ended="session")
    assert type(error) is kind
    assert error.retryable is retryable
    assert "the service closed the session: why" in str(error)


def test_a_peers_endless_text_is_cut() -> None:
    error = error_from_response(400, None, "x" * 100_000)
    assert len(str(error)) < 2100
    assert len(error.description) == 2000
    assert "the service gave no description" in str(error_from_response(400, None, "  "))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("The request was terminated because the entity is being throttled. Please wait 4 seconds and try again.", 4.0),
        ("please WAIT 2 Seconds", 2.0),
        ("wait for 10 seconds", 10.0),
        ("wait at least 1 second", 1.0),
        ("Retry after 1.5 s", 1.5),
        ("retry in 3 seconds", 3.0),
        ("wait 250 ms", 0.25),
        ("wait 250 milliseconds", 0.25),
        ("wait 2 minutes", 120.0),
        ("wait 1 minute", 60.0),
        ("wait 0 seconds", 0.0),
        ("wait a few seconds", None),
        ("await 4 seconds", None),
        ("wait 4 sessions", None),
        ("wait 99999999999999 seconds", None),
        ("4 seconds", None),
        ("", None),
        (None, None),
    ],
)
def test_the_wait_that_a_text_asks_for(text: str | None, seconds: float | None) -> None:
    assert retry_after(text) == seconds


def test_a_wait_is_only_for_what_passes_by_itself() -> None:
    assert error_from_response(503, "com.microsoft:server-busy", "Please wait 4 seconds").retry_after == 4.0
    assert error_from_response(400, "com.microsoft:argument-error", "you must wait 4 seconds").retry_after is None


def test_closed_is_the_callers_mistake() -> None:
    assert issubclass(ClosedError, errors.LocalProtocolError)
