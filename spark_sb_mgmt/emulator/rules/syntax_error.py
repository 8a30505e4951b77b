"""What is wrong with a rule that is refused, and where in its text.

The one rule: a place is said in the way an editor counts, line and column from 1; `position` is the offset from 0.
"""

from __future__ import annotations

from spark_sb_mgmt.errors import SbMgmtError


class RuleSyntaxError(SbMgmtError, ValueError):
    """A rule that cannot be compiled. `position`, `line` and `column` tell where in `expression` the fault is.

    A correlation filter has no text: there `expression` is empty and the error says which of its properties is wrong.
    """

    def __init__(self, problem: str, *, what: str, expression: str = "", position: int = 0) -> None:
        self.problem = problem
        self.expression = expression
        self.position = position
        self.line = expression.count("\n", 0, position) + 1
        self.column = position - (expression.rfind("\n", 0, position) + 1) + 1
        place = f", line {self.line}, column {self.column}" if what != "correlation filter" else ""
        super().__init__(f"the {what}{place}: {problem}")


class PlacedError(Exception):
    """A fault at a place, on its way to whoever knows the whole text and makes a `RuleSyntaxError` of it."""

    def __init__(self, position: int, problem: str) -> None:
        self.position = position
        self.problem = problem
        super().__init__(problem)
