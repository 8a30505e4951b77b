"""A purge by its answers: when it is over, when it asks for fewer, what it says."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.errors import ArgumentError, OutcomeUnknownError, ServerBusyError
from spark_sb_mgmt.operations.delete import batch_delete_messages
from spark_sb_mgmt.spark.writing.purge import Limit, Purge

BEFORE = 1_767_323_045_123
OUT_OF_RANGE = ArgumentError("too many", condition="com.microsoft:argument-out-of-range")
NOT_ALLOWED = ArgumentError("not here", condition="amqp:not-allowed")
LOST = OutcomeUnknownError("batch-delete-messages", "the connection was lost")


def test_only_none_is_the_end_and_not_a_short_answer() -> None:
    purge = Purge(Limit(500), BEFORE)
    for count in (500, 3, 1):
        purge.answered(500, count)
        assert not purge.is_over
    purge.answered(500, 0)
    assert purge.is_over
    assert str(purge) == (
        "deleted 504 messages that were enqueued before 2026-01-02T03:04:05.123+00:00; locked and scheduled messages are not deleted"
    )


def test_every_request_has_the_same_time() -> None:
    purge = Purge(Limit(7), BEFORE, "s")
    assert purge.next_request()[1].body == batch_delete_messages(7, BEFORE, "s").body


def test_it_asks_for_fewer_down_to_one_and_all_purges_of_a_task_learn_it() -> None:
    limit = Limit(4000)
    first, second = Purge(limit, BEFORE, "a"), Purge(limit, BEFORE, "b")
    asked = []
    for _ in range(9):
        most = first.next_request()[0]
        asked.append(most)
        first.answered(most, OUT_OF_RANGE)
    assert asked == [4000, 500, 250, 125, 62, 31, 15, 7, 3]
    assert second.next_request()[0] == 1


def test_what_is_refused_otherwise_is_the_end() -> None:
    purge = Purge(Limit(500), BEFORE)
    with pytest.raises(ArgumentError, match="not here"):
        purge.answered(500, NOT_ALLOWED)
    with pytest.raises(ServerBusyError):
        purge.answered(500, ServerBusyError("busy"))
    with pytest.raises(ArgumentError):
        purge.answered(1, OUT_OF_RANGE)


def test_what_may_be_about_the_number_is_tried_with_the_safe_one() -> None:
    purge = Purge(Limit(4000), BEFORE)
    purge.answered(4000, NOT_ALLOWED)
    assert purge.next_request()[0] == 500


def test_lost_answers_make_the_count_a_least_and_are_not_without_end() -> None:
    purge = Purge(Limit(500), BEFORE)
    purge.answered(500, 10)
    for _ in range(5):
        purge.answered(500, LOST)
    assert str(purge).startswith("deleted at least 10 messages")
    with pytest.raises(OutcomeUnknownError):
        purge.answered(500, LOST)
