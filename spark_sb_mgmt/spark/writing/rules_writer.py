"""add-rule and remove-rule: the rules of a subscription from rows (wire-facts.md, section 1.3).

The one rule: a row of add-rule is ok if its rule stands because of this job, one of remove-rule if its rule stood and does not any more. A
rule that is there already fails its row, and is left as it is: to replace one, remove it first.

A request whose answer was lost is looked into: a rule that is equal was added, one that is not there was removed, and else it is sent
again. A repeated task takes an equal rule for its own, and a rule that is gone for removed, as far as anybody can know.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_sb_mgmt.client import EntityClient
from spark_sb_mgmt.connection.channel import Outcome
from spark_sb_mgmt.errors import EntityAlreadyExistsError, EntityNotFoundError, LocalProtocolError, SbMgmtError
from spark_sb_mgmt.model import FalseFilter, Rule, RuleFilter, SqlFilter, TrueFilter
from spark_sb_mgmt.operations.rules import FALSE_EXPRESSION, TRUE_EXPRESSION, add_rule, remove_rule
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.rule_rows import rules_of
from spark_sb_mgmt.spark.writing.row_groups import one_for_each_row, pieces, repeated
from spark_sb_mgmt.spark.writing.write_operation import FAILED, UNKNOWN, Receipt, Result, Step, TaskAttempt, WriteOperation, WriteTask
from spark_sb_mgmt.spark.writing.write_rows import RowProblem, row_problems

_LOST: Final = "the answer was lost, and a look shows that it was done"


class AddRules(WriteOperation):
    """Adds rules to a subscription."""

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return AddRuleTask(entity, attempt)


class RemoveRules(WriteOperation):
    """Removes rules of a subscription by their names."""

    def task(self, entity: EntityClient, attempt: TaskAttempt) -> WriteTask:
        return RemoveRuleTask(entity, attempt)


class _RuleTask(WriteTask):
    operation: str

    def __init__(self, entity: EntityClient, attempt: TaskAttempt) -> None:
        self._entity = entity
        self._attempt = attempt

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        names = rows.column("rule_name")
        # The service does not tell names apart by their case.
        twice = repeated(rows, "rule_name", pc.utf8_lower(names), "keep one row for each rule")
        return one_for_each_row(row_problems(rows, self.operation), twice)

    def requests(self, rows: pa.RecordBatch) -> Iterator[Result]:
        return map(self.step, pieces(rows, 1))

    @abstractmethod
    def step(self, row: pa.RecordBatch) -> Step[None]: ...

    @abstractmethod
    def is_done(self, row: pa.RecordBatch) -> bool:
        """Whether what the row asks for is so now."""

    @abstractmethod
    def refused(self, step: Step[None], error: SbMgmtError) -> Receipt: ...

    def answered(self, step: Step[None], outcome: Outcome[None]) -> Iterator[Result]:
        if not isinstance(outcome, SbMgmtError):
            yield Receipt(step.rows)
        elif step.is_to_be_looked_for(outcome):
            yield Receipt(step.rows, status_description=_LOST) if self.is_done(step.rows) else replace(step, lost=step.lost + 1)
        else:
            yield self.refused(step, outcome)

    def standing(self, name: str) -> Rule | None:
        """The rule of this name. Raises EntityNotFoundError where there is no subscription."""
        return next((rule for rule in self._entity.enumerate_rules() if rule.name.lower() == name.lower()), None)


class AddRuleTask(_RuleTask):
    operation = table.ADD_RULE

    def problems(self, rows: pa.RecordBatch) -> list[RowProblem]:
        return one_for_each_row(super().problems(rows), _not_rules(rows))

    def step(self, row: pa.RecordBatch) -> Step[None]:
        return Step(add_rule(_rule(row)), row)

    def is_done(self, row: pa.RecordBatch) -> bool:
        rule = _rule(row)
        found = self.standing(rule.name)
        return found is not None and is_same(found, rule)

    def refused(self, step: Step[None], error: SbMgmtError) -> Receipt:
        receipt = self.failed(step, error)
        if not isinstance(error, EntityAlreadyExistsError):
            return receipt
        if step.lost and self.is_done(step.rows):
            return Receipt(step.rows, status_description=_LOST)
        if self._attempt.may_not_be_first and self.is_done(step.rows):
            return Receipt(step.rows, status_description="another attempt of this task added it, as a look shows: an equal rule is there")
        text = f"there is a rule {_name(step.rows)!r} already, and it is left as it is: remove it by operation remove-rule before"
        return Receipt(step.rows, FAILED, error.status, error.condition, text)


class RemoveRuleTask(_RuleTask):
    operation = table.REMOVE_RULE

    def step(self, row: pa.RecordBatch) -> Step[None]:
        return Step(remove_rule(_name(row)), row)

    def is_done(self, row: pa.RecordBatch) -> bool:
        return self.standing(_name(row)) is None

    def refused(self, step: Step[None], error: SbMgmtError) -> Receipt:
        # The service says the same of a rule and of a subscription that is not there; of the latter the look says so too, by an error.
        if not isinstance(error, EntityNotFoundError) or not self.is_done(step.rows):
            return self.failed(step, error)
        if step.lost:
            # It stood when it was looked for.
            return Receipt(step.rows, status_description=_LOST)
        if self._attempt.may_not_be_first:
            text = f"there is no rule {_name(step.rows)!r}: another attempt of this task removed it, or it was not there before"
            return Receipt(step.rows, UNKNOWN, error.status, error.condition, text, fails=False)
        text = f"there is no rule {_name(step.rows)!r}: it was removed before, or never there"
        return Receipt(step.rows, FAILED, error.status, error.condition, text)


def is_same(one: Rule, other: Rule) -> bool:
    """Whether two rules of one name do the same. A filter that is always true or false is told as the expression that it was sent as."""
    return _filter(one.filter) == _filter(other.filter) and one.action == other.action


def _filter(given: RuleFilter) -> RuleFilter:
    plain = given.expression.replace(" ", "") if isinstance(given, SqlFilter) else ""
    always: dict[str, RuleFilter] = {TRUE_EXPRESSION: TrueFilter(), FALSE_EXPRESSION: FalseFilter()}
    return always.get(plain, given)


def _not_rules(rows: pa.RecordBatch) -> list[RowProblem]:
    found = []
    for row, rule in enumerate(rules_of(rows)):
        if isinstance(rule, RowProblem):
            found.append(rule)
            continue
        try:
            add_rule(rule)
        except LocalProtocolError as problem:
            found.append(RowProblem(row, f"its rule cannot be sent: {problem}"))
    return found


def _rule(row: pa.RecordBatch) -> Rule:
    [rule] = rules_of(row)
    assert isinstance(rule, Rule), "rows that are no rules were told before"
    return rule


def _name(row: pa.RecordBatch) -> str:
    return str(row.column("rule_name")[0].as_py())
