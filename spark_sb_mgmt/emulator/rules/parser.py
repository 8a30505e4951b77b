"""Text to what evaluates it, by the grammar beside this file.

The one rule: a text gives something that can be evaluated or a `RuleSyntaxError` with the place and what was expected there, and nothing
else. All of lark that is not typed stays in here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, cast

from lark import Lark, UnexpectedCharacters, UnexpectedToken

from spark_sb_mgmt.emulator.rules.evaluator import Evaluate, Evaluator, Statement
from spark_sb_mgmt.emulator.rules.syntax_error import PlacedError, RuleSyntaxError
from spark_sb_mgmt.operations.arguments import LONGEST_EXPRESSION

_Start = Literal["filter", "action"]

# What the grammar's terminals are to people; a keyword is its own name.
_TERMINALS: Final = {
    "NAME": "a name",
    "DELIMITED_NAME": "a name",
    "QUOTED_NAME": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "EQUAL": "'='",
    "COMPARISON": "a comparison",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "STAR": "'*'",
    "SLASH": "'/'",
    "PERCENT": "'%'",
    "_OPEN": "'('",
    "_CLOSE": "')'",
    "_COMMA": "','",
    "_DOT": "'.'",
    "_SEMICOLON": "';'",
    "$END": "the end",
}
_OPENED: Final = {"'": ("string", "'"), '"': ("name", '"'), "[": ("name", "]")}


def parse_filter(expression: str) -> Evaluate:
    """The predicate of an SQL filter."""
    predicate: Evaluate = _parse("filter", expression)
    return predicate


def parse_action(expression: str) -> list[Statement]:
    """The statements of an SQL rule action, in their order."""
    statements: list[Statement] = _parse("action", expression)
    return statements


@cache
def _parser(start: _Start) -> Lark:
    grammar = files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    # The basic lexer: with lark's own, a keyword would be a name wherever the keyword itself cannot stand.
    return Lark(grammar, start=start, parser="lalr", lexer="basic", transformer=Evaluator(), maybe_placeholders=False)


def _parse(start: _Start, expression: str) -> Any:
    what = f"{start} expression"
    if len(expression) > LONGEST_EXPRESSION:
        problem = f"{len(expression)} characters are too many, {LONGEST_EXPRESSION} are allowed"
        raise RuleSyntaxError(problem, what=what, expression=expression, position=LONGEST_EXPRESSION)
    try:
        return _parser(start).parse(expression)
    except PlacedError as fault:
        position, problem = fault.position, fault.problem
    except UnexpectedCharacters as error:
        # Typed as None by lark, because it is set only in subclasses.
        position = cast(int, error.pos_in_stream)
        problem = _unexpected_character(expression, position)
    except UnexpectedToken as error:
        ended = error.token.type == "$END"
        position = len(expression) if ended else error.token.start_pos or 0
        found = "the expression ends" if ended else f"{str(error.token)!r:.60} is not expected"
        problem = f"{found} here; expected is {_listed(error.accepts or error.expected)}"
    raise RuleSyntaxError(problem, what=what, expression=expression, position=position)


def _unexpected_character(expression: str, position: int) -> str:
    character = expression[position]
    if character in _OPENED:
        kind, closing = _OPENED[character]
        return f"the {kind} that starts here is empty or has no closing {closing}; within it, {closing} is written twice"
    if character == "@":
        return "parameters are not supported: a rule that comes over AMQP carries no values for them. Write the constant itself"
    return f"the character {character!r} means nothing here"


def _listed(terminals: Iterable[str]) -> str:
    names = sorted({_TERMINALS.get(name, name.lstrip("_")) for name in terminals})
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
