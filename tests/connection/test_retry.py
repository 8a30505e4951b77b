"""Whether to try again: by what the error says, what the request changes, and what is left of tries and time."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.connection.retry import RetryPolicy, final_error, wait_before_retry
from spark_sb_mgmt.errors import (
    ArgumentError,
    ConnectionLostError,
    InvalidArgumentError,
    OutcomeUnknownError,
    RemoteProtocolError,
    SbMgmtError,
    ServerBusyError,
    error_from_response,
)

POLICY = RetryPolicy(max_retries=3, base_delay_s=1.0, max_delay_s=3.0)


def decide(
    error: SbMgmtError, attempt: int = 1, safe: bool = True, elapsed: float = 0.0, random: float = 0.5, policy: RetryPolicy = POLICY
) -> float | None:
    return wait_before_retry(policy, error, attempt, safe, elapsed, random)


LOST = ConnectionLostError("gone")
LOST_AFTER_SENDING = ConnectionLostError("gone", may_have_taken_effect=True)


def test_waits_double_up_to_the_longest_and_are_drawn_from_the_whole_step() -> None:
    assert [decide(LOST, attempt, random=0.999) for attempt in (1, 2, 3)] == pytest.approx([0.999, 1.998, 2.997])
    assert [decide(LOST, attempt, random=0.0) for attempt in (1, 2, 3)] == [0.0, 0.0, 0.0]


def test_after_the_last_retry_it_is_given_up() -> None:
    assert decide(LOST, attempt=3) is not None
    assert decide(LOST, attempt=4) is None
    assert decide(LOST, policy=RetryPolicy(max_retries=0)) is None


def test_a_great_many_attempts_do_not_overflow() -> None:
    assert decide(LOST, attempt=5000, policy=RetryPolicy(max_retries=10_000, max_delay_s=3.0), random=0.5) == 1.5


def test_what_cannot_help_is_not_tried() -> None:
    assert decide(ArgumentError("bad")) is None


def test_the_services_wait_is_a_minimum() -> None:
    busy = error_from_response(503, "com.microsoft:server-busy", "Please wait 4 seconds and try again.")
    assert isinstance(busy, ServerBusyError)
    assert decide(busy, random=0.0) == 4.0
    assert decide(busy, random=0.5) == 4.5


def test_a_request_that_changes_something_is_repeated_only_if_it_certainly_took_no_effect() -> None:
    assert decide(LOST, safe=False) is not None
    assert decide(LOST_AFTER_SENDING, safe=False) is None
    assert decide(LOST_AFTER_SENDING, safe=True) is not None
    assert decide(ServerBusyError("busy", retryable=True), safe=False) is not None
    assert decide(error_from_response(408, "com.microsoft:timeout", "late"), safe=False) is None


def test_nothing_is_waited_for_beyond_the_deadline() -> None:
    policy = RetryPolicy(max_retries=3, base_delay_s=1.0, deadline_s=10.0)
    assert decide(LOST, elapsed=9.4, policy=policy) == 0.5
    assert decide(LOST, elapsed=9.5, policy=policy) is None


def test_an_uncertain_end_is_told_as_such_only_where_something_may_have_changed() -> None:
    assert final_error(LOST_AFTER_SENDING, True, "peek") is LOST_AFTER_SENDING
    assert final_error(LOST, False, "2 messages to schedule") is LOST
    unknown = final_error(LOST_AFTER_SENDING.about("schedule-message", "orders"), False, "2 messages to schedule")
    assert isinstance(unknown, OutcomeUnknownError)
    assert "2 messages to schedule" in str(unknown)
    assert "gone" in str(unknown)
    assert (unknown.operation, unknown.entity, unknown.__cause__) == ("schedule-message", "orders", LOST_AFTER_SENDING)
    assert final_error(unknown, False, "x") is unknown


def test_a_wait_of_hours_is_not_waited_for() -> None:
    assert decide(error_from_response(503, "com.microsoft:server-busy", "Please wait 120 seconds."), random=0.0) == 120.0
    assert decide(error_from_response(503, "com.microsoft:server-busy", "Please wait 7200 seconds.")) is None


def test_an_answer_that_breaks_the_protocol_stays_what_it_is_and_says_that_it_may_have_taken_effect() -> None:
    broken = RemoteProtocolError("no status")
    assert final_error(broken, False, "2 messages to schedule") is broken
    assert broken.may_have_taken_effect
    assert decide(broken, safe=False) is None


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="maxRetries is -1: it must be 0 or more"):
        RetryPolicy(max_retries=-1)
