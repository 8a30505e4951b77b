"""What a connection is told by its user: refused by name before anything is opened."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.settings import Settings
from spark_sb_mgmt.errors import InvalidArgumentError


@pytest.mark.parametrize("name", [name for name in Settings.__dataclass_fields__ if name.endswith("_s")])
@pytest.mark.parametrize("seconds", [0, -1.0, math.inf, math.nan, 1e12, "30", None, True])
def test_a_time_that_no_wait_can_have(name: str, seconds: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is .*: it must be a number of seconds above 0, at most 4294967"):
        Settings(**{name: seconds})


@pytest.mark.parametrize("name", ["base_delay_s", "max_delay_s", "deadline_s", "max_retry_after_s"])
@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan, "30"])
def test_a_time_that_no_retry_can_have(name: str, seconds: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is "):
        RetryPolicy(**{name: seconds})


def test_retries_need_not_wait() -> None:
    RetryPolicy(base_delay_s=0, max_delay_s=0, deadline_s=0, max_retry_after_s=0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"server_timeout_ms": 0}, "serverTimeoutMs is 0: it must be 1 to 4294967295"),
        ({"server_timeout_ms": 2**32}, "serverTimeoutMs is 4294967296"),
        ({"pipeline_depth": 0}, "pipelineDepth is 0: it must be 1 to 10000"),
        ({"pipeline_depth": "8"}, "pipelineDepth is '8'"),
        ({"transport": "AMQP"}, "transport is 'AMQP': there are amqp, amqpWebSocket"),
        ({"ca_file": 5}, "caFile is 5"),
        ({"retry": 3}, "retry is 3: it must be a RetryPolicy"),
    ],
)
def test_a_setting_that_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        Settings(**given)


def test_our_own_deadline_is_longer_than_the_services_whatever_that_is() -> None:
    for milliseconds in (1, 60_000, 2**32 - 1):
        settings = Settings(server_timeout_ms=milliseconds)
        assert settings.request_timeout_s == milliseconds / 1000 + settings.request_margin_s
