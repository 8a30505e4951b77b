"""Values that client, Spark side and emulator all speak of, named as the service names them.

The one rule: frozen, and knowing nothing of bytes or sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final


@dataclass(frozen=True)
class SqlFilter:
    """Messages for which an SQL expression is true."""

    expression: str


@dataclass(frozen=True)
class TrueFilter:
    """Every message."""


@dataclass(frozen=True)
class FalseFilter:
    """No message."""


@dataclass(frozen=True)
class CorrelationFilter:
    """Messages whose properties equal all that are given here. Values of `properties` are AMQP values (`spark_sb_mgmt.amqp.types`)."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SqlRuleAction:
    """Statements that change a message on its way into the subscription."""

    expression: str


RuleFilter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter
# As columns call them; an action is an SQL one, or there is none.
SQL: Final = "sql"
FILTER_TYPES: Final[Mapping[type[RuleFilter], str]] = {
    SqlFilter: SQL,
    CorrelationFilter: "correlation",
    TrueFilter: "true",
    FalseFilter: "false",
}


@dataclass(frozen=True)
class Rule:
    """A rule of a subscription. `created_at` is None where it is not known. It can be read by the columns of CONTRACT section 1.2 too."""

    name: str
    filter: RuleFilter
    action: SqlRuleAction | None = None
    created_at: datetime | None = None

    @property
    def rule_name(self) -> str:
        return self.name

    @property
    def filter_type(self) -> str:
        return FILTER_TYPES[type(self.filter)]

    @property
    def sql_expression(self) -> str | None:
        return self.filter.expression if isinstance(self.filter, SqlFilter) else None

    @property
    def correlation_filter(self) -> CorrelationFilter | None:
        return self.filter if isinstance(self.filter, CorrelationFilter) else None

    @property
    def action_type(self) -> str | None:
        return None if self.action is None else SQL

    @property
    def action_expression(self) -> str | None:
        return None if self.action is None else self.action.expression
