"""Whether to try again, and after how long: a decision, not an action.

The one rule: a request that changes something is sent again only if it is certain that the first took no effect. Errors know that
themselves (`may_have_taken_effect`), as they know whether trying again can help (`retryable`) and what the service asked for
(`retry_after`).

Waits grow exponentially and are drawn at random from the whole of each step ("full jitter"), so that many tasks that failed together do not
return together.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_sb_mgmt.connection.timing import number_of_seconds
from spark_sb_mgmt.errors import InvalidArgumentError, OutcomeUnknownError, RemoteProtocolError, SbMgmtError
from spark_sb_mgmt.operations.arguments import integer


@dataclass(frozen=True)
class RetryPolicy:
    """`deadline_s` bounds a request with all its retries and waits; None leaves that to max_retries. A service that asks for a wait longer
    than `max_retry_after_s` is not waited for."""

    max_retries: int = 5
    base_delay_s: float = 0.5
    max_delay_s: float = 30.0
    deadline_s: float | None = None
    # Throttled namespaces ask for seconds; who asks for hours is better told to the user.
    max_retry_after_s: float = 120.0

    def __post_init__(self) -> None:
        retries = integer(self.max_retries)
        if retries is None or retries < 0:
            raise InvalidArgumentError("maxRetries", f"is {self.max_retries!r:.60}: it must be 0 or more")
        for name, seconds in vars(self).items():
            if name.endswith("_s") and seconds != 0 and (seconds is not None or name != "deadline_s"):
                number_of_seconds(name, seconds)


def wait_before_retry(policy: RetryPolicy, error: SbMgmtError, attempt: int, safe: bool, elapsed_s: float, random: float) -> float | None:
    """Seconds to wait before the next attempt, None to give up. `attempt` counts those made, from 1; `random` is in [0, 1)."""
    if not error.retryable or attempt > policy.max_retries:
        return None
    if error.may_have_taken_effect and not safe:
        return None
    step = min(policy.max_delay_s, policy.base_delay_s * 2.0 ** min(attempt - 1, 32))
    wait = step * random
    if error.retry_after is not None:
        if error.retry_after > policy.max_retry_after_s:
            return None
        # Not before the service said; jitter on top keeps the throttled from returning in step.
        wait += error.retry_after
    if policy.deadline_s is not None and elapsed_s + wait >= policy.deadline_s:
        return None
    return wait


def final_error(error: SbMgmtError, safe: bool, summary: str) -> SbMgmtError:
    """What the caller is told when there is no further attempt: for a request that may have changed something, that this is not known.
    A peer that broke the protocol did answer, so that stays what it is; `may_have_taken_effect` says the rest."""
    if safe or not error.may_have_taken_effect or isinstance(error, (OutcomeUnknownError, RemoteProtocolError)):
        return error
    unknown = OutcomeUnknownError(summary, str(error), operation=error.operation, entity=error.entity, tracking_id=error.tracking_id)
    unknown.__cause__ = error
    return unknown
