"""What a subscription needs of a rule; the language behind it is the `rules` package's business.

The one rule: a rule is compiled before it gets here. Evaluating it may still fail on a message, with `RuleEvaluationError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spark_sb_mgmt.amqp.message import Message
from spark_sb_mgmt.model import Rule

DEFAULT_RULE_NAME = "$Default"


class RuleEvaluationError(Exception):
    """The filter or action of a rule cannot be computed for this message."""


class SubscriptionRule(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> Any:
        """What enumerate-rules tells of it, and what the journal keeps."""

    @property
    def has_action(self) -> bool: ...

    def matches(self, message: Message) -> bool: ...

    def apply(self, message: Message) -> Message:
        """The message after the action."""


# From what the configuration, a request or the journal says of a rule to what a subscription evaluates. It may raise an SbMgmtError.
RuleCompiler = Callable[[Rule], SubscriptionRule]
