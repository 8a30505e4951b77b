"""What a connection is told by its user, checked before anything is opened (CONTRACT section 1.1).

The one rule: every wait has a bound, and it stands here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from spark_sb_mgmt.connection.retry import RetryPolicy
from spark_sb_mgmt.connection.timing import number_of_seconds
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations.arguments import integer

Transport = Literal["amqp", "amqpWebSocket"]
# An AMQP uint.
_LONGEST_SERVER_TIMEOUT_MS: Final = 2**32 - 1
DEEPEST_PIPELINE: Final = 10_000


@dataclass(frozen=True)
class Settings:
    """Times in seconds but for `server_timeout_ms`, which is sent with every request; our own deadline for one is longer by
    `request_margin_s`, so that the service's own word about it arrives."""

    transport: Transport = "amqp"
    ca_file: str | os.PathLike[str] | None = None
    server_timeout_ms: int = 60_000
    pipeline_depth: int = 8
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    request_margin_s: float = 5.0
    connect_timeout_s: float = 30.0
    open_timeout_s: float = 30.0
    attach_timeout_s: float = 30.0
    # Entra ID may have to be asked in several ways.
    token_timeout_s: float = 60.0
    put_token_timeout_s: float = 30.0
    close_timeout_s: float = 1.0
    # A peer from which nothing, not even a heartbeat, came for so long is gone.
    idle_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.transport not in get_args(Transport):
            raise InvalidArgumentError("transport", f"is {self.transport!r:.60}: there are {', '.join(get_args(Transport))}")
        if self.ca_file is not None and not isinstance(self.ca_file, (str, os.PathLike)):
            raise InvalidArgumentError("caFile", f"is {self.ca_file!r:.60}: it must be the path of a PEM file")
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidArgumentError("retry", f"is {self.retry!r:.60}: it must be a RetryPolicy of spark_sb_mgmt.connection.retry")
        whole_number("serverTimeoutMs", self.server_timeout_ms, 1, _LONGEST_SERVER_TIMEOUT_MS)
        whole_number("pipelineDepth", self.pipeline_depth, 1, DEEPEST_PIPELINE)
        for name, seconds in vars(self).items():
            if name.endswith("_s"):
                number_of_seconds(name, seconds)

    @property
    def request_timeout_s(self) -> float:
        return self.server_timeout_ms / 1000 + self.request_margin_s


def whole_number(name: str, value: int, least: int, most: int) -> int:
    number = integer(value)
    if number is None or not least <= number <= most:
        raise InvalidArgumentError(name, f"is {value!r:.60}: it must be {least} to {most}")
    return number


def pipeline_depth(given: int | None, settings: Settings) -> int:
    """The depth that was given for one call, or that of the settings."""
    return settings.pipeline_depth if given is None else whole_number("depth", given, 1, DEEPEST_PIPELINE)
