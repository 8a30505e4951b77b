"""Expressions that nobody thought of: they mean what a plain reference says, and no text and no message makes other errors than ours."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_sb_mgmt.amqp.message import encode_message
from spark_sb_mgmt.amqp.types import Long
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from spark_sb_mgmt.emulator.rules import RuleSyntaxError
from spark_sb_mgmt.emulator.rules.like import like
from tests.amqp.strategies import values
from tests.emulator.rules.evaluation import after, message, rule, truth, value

# --- meaning --------------------------------------------------------------------------------------------------------------

INTEGERS: dict[str, int | None] = {"i": 3, "j": -7, "big": 2**62, "nil": None, "missing": None}
TEXTS: dict[str, str | None] = {"s": "ab", "t": "a%b_'", "none": None}
PROPERTIES: dict[str, Any] = {
    **{name: None if number is None else Long(number) for name, number in INTEGERS.items() if name != "missing"},
    **TEXTS,
}


class Refused(Exception):  # noqa: N818 - the reference's word for an evaluation that fails
    pass


@dataclass(frozen=True)
class Generated:
    """An expression or predicate, and what it is: a value, None for unknown, or `Refused`."""

    text: str
    result: Callable[[], Any]


def constant(number: int) -> Generated:
    return Generated(str(number), lambda: number)


def quoted(text: str) -> Generated:
    return Generated("'" + text.replace("'", "''") + "'", lambda: text)


def within(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise Refused
    return number


def divided(left: int, right: int) -> int:
    if right == 0:
        raise Refused
    return math.trunc(left / right) if abs(left) < 2**50 else int(f"{'-' if (left < 0) != (right < 0) else ''}{abs(left) // abs(right)}")


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: within(left + right),
    "-": lambda left, right: within(left - right),
    "*": lambda left, right: within(left * right),
    "/": lambda left, right: within(divided(left, right)),
    "%": lambda left, right: left - right * divided(left, right),
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def computed(left: Generated, sign: str, right: Generated) -> Generated:
    def result() -> int | None:
        one, other = left.result(), right.result()
        return None if one is None or other is None else ARITHMETIC[sign](one, other)

    return Generated(f"({left.text} {sign} {right.text})", result)


def negative(inner: Generated) -> Generated:
    def result() -> int | None:
        one = inner.result()
        return None if one is None else within(-one)

    return Generated(f"- {inner.text}", result)


def compared(left: Generated, sign: str, right: Generated) -> Generated:
    def result() -> bool | None:
        one = left.result()
        if one is None:
            return None
        other = right.result()
        return None if other is None else COMPARISONS[sign](one, other)

    return Generated(f"{left.text} {sign} {right.text}", result)


def contained(left: Generated, items: list[Generated], negated: bool) -> Generated:
    def result() -> bool | None:
        one = left.result()
        if one is None:
            return None
        found: bool | None = False
        for item in items:
            other = item.result()
            if other == one:
                return not negated
            found = None if other is None else found
        return None if found is None else found != negated

    return Generated(f"{left.text} {'NOT ' if negated else ''}IN ({', '.join(item.text for item in items)})", result)


def joined(word: str, parts: list[Generated]) -> Generated:
    decisive = word == "OR"

    def result() -> bool | None:
        unknown = False
        for part in parts:
            one = part.result()
            if one is decisive:
                return decisive
            unknown = unknown or one is None
        return None if unknown else not decisive

    return Generated("(" + f" {word} ".join(part.text for part in parts) + ")", result)


def inverted(inner: Generated) -> Generated:
    def result() -> bool | None:
        one = inner.result()
        return None if one is None else not one

    return Generated(f"NOT {inner.text}", result)


numbers = st.recursive(
    st.integers(0, 12).map(constant) | st.sampled_from(sorted(INTEGERS)).map(lambda name: Generated(name, lambda: INTEGERS[name])),
    lambda inner: st.builds(computed, inner, st.sampled_from(sorted(ARITHMETIC)), inner) | st.builds(negative, inner),
    max_leaves=6,
)
texts = st.text("ab%_'", max_size=4).map(quoted) | st.sampled_from(sorted(TEXTS)).map(lambda name: Generated(name, lambda: TEXTS[name]))
signs = st.sampled_from(sorted(COMPARISONS))
tests = (
    st.builds(compared, numbers, signs, numbers)
    | st.builds(compared, texts, signs, texts)
    | st.builds(contained, numbers, st.lists(numbers, min_size=1, max_size=3), st.booleans())
    | st.sampled_from(["i", "nil", "missing"]).map(lambda name: Generated(f"{name} IS NULL", lambda: INTEGERS[name] is None))
)
predicates = st.recursive(
    tests,
    lambda inner: st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)) | st.builds(inverted, inner),
    max_leaves=6,
).filter(lambda generated: len(generated.text) < 1000)


@given(numbers)
def test_an_expression_has_the_value_that_the_reference_says(generated: Generated) -> None:
    try:
        expected = generated.result()
    except Refused:
        with pytest.raises(RuleEvaluationError):
            value(generated.text, **PROPERTIES)
    else:
        found = value(generated.text, **PROPERTIES)
        assert found == expected
        assert found is None or type(found) is Long


@given(predicates)
def test_a_predicate_is_what_the_reference_says(generated: Generated) -> None:
    try:
        expected = generated.result()
    except Refused:
        with pytest.raises(RuleEvaluationError):
            truth(generated.text, **PROPERTIES)
    else:
        assert truth(generated.text, **PROPERTIES) is expected


@given(st.text("ab%_!.\n", max_size=12), st.text("ab%_!.\n", max_size=8))
def test_like_is_what_a_regular_expression_says(text: str, pattern: str) -> None:
    wildcards = {"%": "[\\s\\S]*", "_": "[\\s\\S]"}
    assert like(pattern)(text) == bool(re.fullmatch("".join(wildcards.get(each, re.escape(each)) for each in pattern), text))
    escaped = "".join("!" + each if each in "%_!" else each for each in pattern)
    assert like(escaped, "!")(text) == (text == pattern)


# --- robustness -----------------------------------------------------------------------------------------------------------

WORDS = [
    *("a", "b", "sys.", "user.", "[a]", "[", "]", '"', "'", "'x'", "'x%'", "1", "0", "2.5", "1e9", ".5", "(", ")", ",", ";", "."),
    *("+", "-", "*", "/", "%", "=", "<>", "!=", "<", ">=", "AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS"),
    *("TRUE", "FALSE", "SET", "REMOVE", "newid()", "p(", "property(", "Label", "sys.Label", "sys.TimeToLive", "sys.EnqueuedTimeUtc"),
    *("@p", "!", "é", "²", "\n"),
]


@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
@example("(" * 1024)
@example("-" * 1023 + "a")
@example("'" * 1023)
@example("\ud800 = 1")
def test_any_text_is_a_rule_or_a_syntax_error(text: str) -> None:
    for arguments in ({"rule_filter": text}, {"action": text}):
        with suppress(RuleSyntaxError, RuleEvaluationError):
            compiled = rule(**arguments)
            assert compiled.matches(message(a="x")) in (True, False)
            assert encode_message(compiled.apply(message(a="x")))


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_the_place_of_a_fault_is_in_the_text(text: str) -> None:
    faults = []
    try:
        rule(text)
    except RuleSyntaxError as error:
        faults.append(error)
    for fault in faults:
        assert 0 <= fault.position <= len(text)
        lines = text.split("\n")
        assert sum(len(line) + 1 for line in lines[: fault.line - 1]) + fault.column - 1 == fault.position


OPERATIONS = [
    *(f"a {sign} b" for sign in ("=", "<>", "<", ">=")),
    *("a LIKE b", "a LIKE 'x' ESCAPE b", "a IN (b, 1)", "-a = 1", "+a = 1", "p(a) = 1", "a IS NULL", "EXISTS(a)"),
    *(f"a {sign} b = 1" for sign in "+-*/%"),
    *(
        f"a {sign} {constant}"
        for sign in ("=", "<")
        for constant in ("1", "0.5", "'x'", "TRUE", "newid()", "sys.EnqueuedTimeUtc", "sys.TimeToLive")
    ),
    *(f"a {sign} {constant} = 1" for sign in "+-/%" for constant in ("1", "0", "0.0", "'x'", "sys.EnqueuedTimeUtc", "sys.TimeToLive")),
]


@given(st.sampled_from(OPERATIONS), values(max_depth=1), values(max_depth=1))
def test_whatever_a_message_holds_a_filter_answers_or_fails_in_one_way(operation: str, a: Any, b: Any) -> None:
    with suppress(RuleEvaluationError):
        assert rule(operation).matches(message(a=a, b=b)) in (True, False)


ACTIONS = [
    *("SET a = b", "SET c = a + b", "SET a = 'x'", "SET a = '5'", "SET a = 5", "SET a = 0.5", "SET a = newid()", "REMOVE a", "SET c = -a"),
    *(f"SET sys.{name} = a" for name in ("Label", "MessageId", "ContentType", "PartitionKey", "TimeToLive", "ScheduledEnqueueTimeUtc")),
]


@given(st.sampled_from(ACTIONS), values(max_depth=1), values(max_depth=1))
def test_whatever_a_message_holds_what_an_action_leaves_can_be_encoded(action: str, a: Any, b: Any) -> None:
    try:
        changed = after(action, a=a, b=b)
    except RuleEvaluationError:
        return
    assert encode_message(changed)
