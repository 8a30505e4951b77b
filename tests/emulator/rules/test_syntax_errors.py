"""What is wrong with an expression is said when the rule is made, with the place."""

from __future__ import annotations

import pickle

import pytest

from spark_sb_mgmt.emulator.rules import RuleSyntaxError
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.model import CorrelationFilter
from tests.emulator.rules.evaluation import message, rule

# Expression, offset of the fault, what is said about it.
FILTERS: list[tuple[str, int, str]] = [
    ("", 0, "the expression ends here; expected is '('"),
    ("  ", 2, "the expression ends here"),
    ("a", 1, "expected is '%', '*', '+', '-', '/', '=', IN, IS, LIKE, NOT or a comparison"),
    ("a =", 3, "a name, a number or a string"),
    ("a = 1 AND", 9, "EXISTS"),
    ("a = 1 b = 2", 6, "'b' is not expected here; expected is '%', '*', '+', '-', '/', AND, OR or the end"),
    ("a = 1)", 5, "')' is not expected here"),
    ("((a = 1)", 8, "expected is ')'"),
    ("a == 1", 3, "'=' is not expected"),
    ("TRUE", 4, "the expression ends here"),
    ("(a = 1) = TRUE", 8, "'=' is not expected here; expected is AND, OR or the end"),
    ("and = 1", 0, "'and' is not expected"),
    ("a = 1 AND like = 2", 10, "'like' is not expected"),
    ("a IS 5", 5, "expected is NOT or NULL"),
    ("5 IS NULL", 2, "'IS' is not expected"),
    ("EXISTS color", 7, "expected is '('"),
    ("EXISTS('color')", 7, "expected is a name"),
    ("a IN ()", 6, "')' is not expected"),
    ("a IN 5", 5, "expected is '('"),
    ("a NOT = 5", 6, "expected is IN or LIKE"),
    ("a = 'b", 4, "the string that starts here is empty or has no closing '"),
    ("a = 'b''", 4, "no closing '"),
    ("[a = 1", 0, "the name that starts here is empty or has no closing ]"),
    ("[] = 1", 0, "is empty"),
    ('"a = 1', 0, 'no closing "'),
    ("a = @p", 4, "parameters are not supported"),
    ("a # 1", 2, "the character '#' means nothing here"),
    ("a²= 1", 1, "not '²'"),
    ("_a = 1", 0, "the character '_' means nothing here"),
    ("a = 0x1F", 5, "'x1F' is not expected"),
    ("a = 9223372036854775808", 4, "the integer 9223372036854775808 is larger than 9223372036854775807"),
    ("a = " + "9" * 1000, 4, "is larger than"),
    ("a = 1e999", 4, "outside the range of a double"),
    ("sys.Colour = 1", 4, "there is no system property 'Colour'; there are: ContentType"),
    ("a = 1 AND NOT EXISTS(sys.x)", 25, "there is no system property 'x'"),
    ("p('sys.x') = 1", 2, "there is no system property 'x'"),
    ("other.color = 1", 0, "the scope of a property is sys or user, not 'other'"),
    ("a.b.c = 1", 3, "'.' is not expected"),
    ("a = now()", 4, "there is no function 'now'; there are: newid, property, p"),
    ("a = newid(1)", 4, "newid() takes 0 arguments, not 1"),
    ("a = p()", 4, "p() takes 1 arguments, not 0"),
    ("a LIKE 5", 7, "LIKE takes strings, not an integer"),
    ("a LIKE 'x' ESCAPE 'ab'", 18, "ESCAPE takes a string of one character"),
    ("a LIKE 'x!' ESCAPE '!'", 19, "ends with its escape character"),
    ("a = 1 AND\n  b = * 2", 16, "'*' is not expected"),
    ("SET a = 1", 4, "'a' is not expected"),
    ("a = 1;", 5, "the character ';' means nothing here"),
    ("a = '" + "x" * 1020 + "'", 1024, "1026 characters are too many, 1024 are allowed"),
]


@pytest.mark.parametrize(("expression", "position", "text"), FILTERS, ids=[f"{expression:.30}" for expression, _, _ in FILTERS])
def test_a_bad_filter_is_refused_with_its_place(expression: str, position: int, text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        rule(expression)
    assert caught.value.position == position
    assert text in str(caught.value)
    assert isinstance(caught.value, SbMgmtError)


ACTIONS: list[tuple[str, int, str]] = [
    ("", 0, "expected is REMOVE or SET"),
    ("a = 1", 0, "'a' is not expected here; expected is REMOVE or SET"),
    ("SET a", 5, "expected is '='"),
    ("SET a = 1 b = 2", 10, "REMOVE, SET or the end"),
    ("SET a > 1", 6, "'>' is not expected"),
    ("SET a = b = 1", 10, "'=' is not expected"),
    ("SET 'a' = 1", 4, "expected is a name"),
    ("SET a = 1;;", 10, "';' is not expected"),
    ("REMOVE", 6, "expected is a name"),
    ("SET sys.SequenceNumber = 1", 4, "sys.SequenceNumber is the broker's and cannot be changed; what can be are: ContentType"),
    ("REMOVE sys.EnqueuedTimeUtc", 7, "is the broker's"),
    ("SET sys.x = 1", 8, "there is no system property 'x'"),
    ("SET set = 1", 4, "'set' is not expected"),
]


@pytest.mark.parametrize(("expression", "position", "text"), ACTIONS, ids=[expression for expression, _, _ in ACTIONS])
def test_a_bad_action_is_refused_with_its_place(expression: str, position: int, text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        rule(action=expression)
    assert caught.value.position == position
    assert text in str(caught.value)


def test_the_place_is_told_by_line_and_column() -> None:
    with pytest.raises(RuleSyntaxError, match="the filter expression, line 2, column 7: '\\*' is not expected") as caught:
        rule("a = 1 AND\n  b = * 2")
    assert (caught.value.line, caught.value.column) == (2, 7)


def test_the_error_travels() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        rule("a = 1 AND")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.position) == (str(caught.value), 9)


def test_an_empty_correlation_filter_is_refused() -> None:
    with pytest.raises(RuleSyntaxError, match="the correlation filter: there is no property to compare"):
        rule(CorrelationFilter())


NESTED = {
    "parentheses": lambda depth: "(" * depth + "a = 1" + ")" * depth,
    "parentheses in an expression": lambda depth: "(" * depth + "a" + ")" * depth + " = 1",
    "not": lambda depth: "NOT " * depth + "a = 1",
    "signs": lambda depth: "-" * depth + "a = 1",
    "functions": lambda depth: "p(" * depth + "a" + ")" * depth + " = 1",
    "all that one level can have": lambda depth: "(1=0 OR 1=1 AND " * depth + "a = 1" + ")" * depth,
}


@pytest.mark.parametrize("kind", NESTED)
def test_nesting_is_bounded(kind: str) -> None:
    depth = 55 if kind.startswith("all") else 64
    rule(NESTED[kind](depth)).matches(message())
    with pytest.raises(RuleSyntaxError, match="more than 64 levels are nested" if not kind.startswith("all") else "too many"):
        rule(NESTED[kind](65))


@pytest.mark.parametrize("chain", ["a" + "+a" * 500 + "=1", " OR ".join(["a=1"] * 120), f"a IN ({','.join('1' * 500)})"])
def test_a_long_chain_is_not_deep(chain: str) -> None:
    assert not rule(chain).matches(message())
