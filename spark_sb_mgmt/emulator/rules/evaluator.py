"""From productions of the grammar to closures: what a rule does for every message is decided once, when it is compiled.

The one rule: logic is three-valued. `None` is unknown, as a predicate and as the value of a property that is null or does not exist;
a filter lets a message through only where it is true.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import Final, NamedTuple
from unicodedata import category

from lark import Token, Transformer, v_args

from spark_sb_mgmt.amqp.message import Message
from spark_sb_mgmt.amqp.types import Long, Value
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from spark_sb_mgmt.emulator.rules import values
from spark_sb_mgmt.emulator.rules.like import like
from spark_sb_mgmt.emulator.rules.properties import (
    Subject,
    SystemProperty,
    settable_names,
    system_property,
    with_user,
    without_user,
)
from spark_sb_mgmt.emulator.rules.syntax_error import PlacedError

Evaluate = Callable[[Subject], Value]
Statement = Callable[[Subject], Message]

# Of parentheses, NOT, signs and functions in each other. Evaluation takes a few calls for each, of the thousand that Python allows.
MAX_DEPTH: Final = 64


class Node(NamedTuple):
    """A predicate or an expression. `position` is where it starts, `depth` how much is nested in it; a constant has its `value`."""

    evaluate: Evaluate
    position: int
    depth: int = 0
    is_constant: bool = False
    value: Value = None


class Property(NamedTuple):
    name: str
    position: int
    # None for a user property.
    system: SystemProperty | None


def _node(evaluate: Evaluate, children: list[Node], position: int | None = None, *, nested: bool = False) -> Node:
    start = children[0].position if position is None else position
    depth = max((child.depth for child in children), default=0) + nested
    if depth > MAX_DEPTH:
        raise PlacedError(start, f"more than {MAX_DEPTH} levels are nested from here; take some of them out")
    return Node(evaluate, start, depth)


def _constant(value: Value, position: int) -> Node:
    return Node(lambda subject: value, position, 0, True, value)


class Evaluator(Transformer[Token, Value]):
    """Called by the parser for each production that it has found, innermost first; no tree is built, and so none is descended into."""

    # Predicates

    def filter(self, children: list[Node]) -> Evaluate:
        return children[0].evaluate

    def any_of(self, children: list[Node]) -> Node:
        parts = [child.evaluate for child in children]

        def evaluate(subject: Subject) -> bool | None:
            result: bool | None = False
            for part in parts:
                value = part(subject)
                if value:
                    return True
                if value is None:
                    result = None
            return result

        return _node(evaluate, children)

    def all_of(self, children: list[Node]) -> Node:
        parts = [child.evaluate for child in children]

        def evaluate(subject: Subject) -> bool | None:
            result: bool | None = True
            for part in parts:
                value = part(subject)
                if value is False:
                    return False
                if value is None:
                    result = None
            return result

        return _node(evaluate, children)

    def not_(self, children: list[Node]) -> Node:
        return _node(_not(children[0].evaluate), children, nested=True)

    @v_args(inline=True)
    def enclosed(self, inner: Node) -> Node:
        return _node(inner.evaluate, [inner], nested=True)._replace(is_constant=inner.is_constant, value=inner.value)

    @v_args(inline=True)
    def comparison(self, left: Node, sign: Token, right: Node) -> Node:
        compare, operator = values.compare, values.COMPARISONS[sign]
        left_value, right_value = left.evaluate, right.evaluate

        def evaluate(subject: Subject) -> bool | None:
            one = left_value(subject)
            if one is None:
                return None
            other = right_value(subject)
            return None if other is None else compare(operator, one, other)

        return _node(evaluate, [left, right])

    @v_args(inline=True)
    def is_null(self, given: Property, null: Token) -> Node:
        value = _reader(given)
        return Node(lambda subject: value(subject) is None, given.position)

    @v_args(inline=True)
    def is_not_null(self, given: Property, null: Token) -> Node:
        value = _reader(given)
        return Node(lambda subject: value(subject) is not None, given.position)

    @v_args(inline=True)
    def exists(self, given: Property) -> Node:
        if given.system is not None:
            value = given.system.get
            return Node(lambda subject: value(subject.message) is not None, given.position)
        name, folded = given.name, given.name.lower()
        return Node(lambda subject: subject.has_user(name, folded), given.position)

    def is_in(self, children: list[Node]) -> Node:
        compare, equal = values.compare, values.COMPARISONS["="]
        left, *items = (child.evaluate for child in children)

        def evaluate(subject: Subject) -> bool | None:
            one = left(subject)
            if one is None:
                return None
            result: bool | None = False
            for item in items:
                other = item(subject)
                if other is None:
                    result = None
                elif compare(equal, one, other):
                    return True
            return result

        return _node(evaluate, children)

    def is_not_in(self, children: list[Node]) -> Node:
        found = self.is_in(children)
        return found._replace(evaluate=_not(found.evaluate))

    def like(self, children: list[Node]) -> Node:
        text, pattern, *escapes = children
        if all(node.is_constant and node.value is not None for node in (pattern, *escapes)):
            # What is known now is looked at now: a pattern that is none is refused with the rule.
            return _node(_like_constant(text.evaluate, pattern, escapes), children)
        text_value, pattern_value = text.evaluate, pattern.evaluate
        escape_value = escapes[0].evaluate if escapes else None

        def evaluate(subject: Subject) -> bool | None:
            one, other = text_value(subject), pattern_value(subject)
            escape = None if escape_value is None else escape_value(subject)
            if one is None or other is None or (escape is None and escape_value is not None):
                return None
            try:
                return like(_string(other), None if escape is None else _string(escape))(_string(one))
            except ValueError as error:
                raise RuleEvaluationError(str(error)) from None

        return _node(evaluate, children)

    def not_like(self, children: list[Node]) -> Node:
        found = self.like(children)
        return found._replace(evaluate=_not(found.evaluate))

    # Expressions

    def arithmetic(self, children: list[Node | Token]) -> Node:
        nodes = [child for child in children if isinstance(child, Node)]
        first = nodes[0].evaluate
        steps = [(str(sign), node.evaluate) for sign, node in zip(children[1::2], nodes[1:], strict=True)]
        compute = values.arithmetic

        def evaluate(subject: Subject) -> Value:
            result = first(subject)
            for sign, operand in steps:
                value = operand(subject)
                result = None if result is None or value is None else compute(sign, result, value)
            return result

        return _node(evaluate, nodes)

    @v_args(inline=True)
    def positive(self, sign: Token, operand: Node) -> Node:
        return _signed(sign, operand, values.posit)

    @v_args(inline=True)
    def negative(self, sign: Token, operand: Node) -> Node:
        return _signed(sign, operand, values.negate)

    @v_args(inline=True)
    def number(self, token: Token) -> Node:
        if token.isdecimal():
            # No more digits than that are looked at: Python refuses to read thousands of them.
            number = int(token) if len(token.lstrip("0")) <= 19 else Long.maximum + 1
            if number > Long.maximum:
                raise PlacedError(
                    _start(token), f"the integer {token:.40} is larger than {Long.maximum}; with a decimal point it is a double"
                )
            return _constant(Long(number), _start(token))
        double = float(token)
        if isinf(double):
            raise PlacedError(_start(token), f"the number {token:.40} is outside the range of a double")
        return _constant(double, _start(token))

    @v_args(inline=True)
    def string(self, token: Token) -> Node:
        return _constant(token[1:-1].replace("''", "'"), _start(token))

    @v_args(inline=True)
    def true(self, token: Token) -> Node:
        return _constant(True, _start(token))

    @v_args(inline=True)
    def false(self, token: Token) -> Node:
        return _constant(False, _start(token))

    @v_args(inline=True)
    def null(self, token: Token) -> Node:
        return _constant(None, _start(token))

    @v_args(inline=True)
    def value_of(self, given: Property) -> Node:
        return Node(_reader(given), given.position)

    @v_args(inline=True)
    def function(self, name: Token, *arguments: Node) -> Node:
        called = name.lower()
        if called not in _FUNCTIONS:
            raise PlacedError(_start(name), f"there is no function {str(name)!r:.80}; there are: {', '.join(_FUNCTIONS)}")
        if len(arguments) != _FUNCTIONS[called]:
            raise PlacedError(_start(name), f"{called}() takes {_FUNCTIONS[called]} arguments, not {len(arguments)}")
        if called == "newid":
            return _node(lambda subject: subject.new_id(), [], _start(name), nested=True)
        return _node(_property_named(arguments[0]), list(arguments), _start(name), nested=True)

    # Properties

    def property(self, names: list[Token]) -> Property:
        *scopes, token = names
        name, position = _unquoted(token), _start(names[0])
        scope = _unquoted(scopes[0]).lower() if scopes else _USER
        if scope == _SYS:
            return Property(name, position, _system(name, _start(token)))
        if scope != _USER:
            raise PlacedError(
                position, f"the scope of a property is sys or user, not {scope!r:.80}; a name with a dot in it stands in brackets"
            )
        return Property(name, position, None)

    # Statements

    def action(self, statements: list[Statement]) -> list[Statement]:
        return statements

    @v_args(inline=True)
    def set(self, given: Property, equal: Token, expression: Node) -> Statement:
        value, name = expression.evaluate, given.name
        if given.system is not None:
            put = _setter(given)
            return lambda subject: put(subject.message, value(subject))
        return lambda subject: with_user(subject.message, name, value(subject))

    @v_args(inline=True)
    def remove(self, given: Property) -> Statement:
        name = given.name
        if given.system is not None:
            put = _setter(given)
            return lambda subject: put(subject.message, None)
        return lambda subject: without_user(subject.message, name)


# By name, how many arguments each takes.
_FUNCTIONS: Final = {"newid": 0, "property": 1, "p": 1}
_SYS: Final = "sys"
_USER: Final = "user"
_DELIMITERS: Final = {"[": "]", '"': '"'}


def _start(token: Token) -> int:
    return token.start_pos or 0


def _unquoted(token: Token) -> str:
    closing = _DELIMITERS.get(token[0])
    if closing is not None:
        return token[1:-1].replace(closing * 2, closing)
    for at, character in enumerate(token):
        # Python's \w also takes digits that are no decimal ones, such as a superscript.
        if character != "_" and category(character) not in ("Nd", "Lu", "Ll", "Lt", "Lm", "Lo"):
            raise PlacedError(
                _start(token) + at, f"a name has letters, digits and underscores, not {character!r}; others stand in brackets"
            )
    return str(token)


def _system(name: str, position: int) -> SystemProperty:
    try:
        return system_property(name)
    except LookupError as error:
        raise PlacedError(position, str(error.args[0])) from None


def _setter(given: Property) -> Callable[[Message, Value], Message]:
    assert given.system is not None
    if given.system.put is None:
        problem = f"sys.{given.system.name} is the broker's and cannot be changed; what can be are: {settable_names()}"
        raise PlacedError(given.position, problem)
    return given.system.put


def _reader(given: Property) -> Evaluate:
    if given.system is not None:
        get = given.system.get
        return lambda subject: get(subject.message)
    name, folded = given.name, given.name.lower()
    return lambda subject: subject.user(name, folded)


def _property_named(argument: Node) -> Evaluate:
    """`property(name)`: a user property, or with `sys.` before its name one of the system."""
    if argument.is_constant and isinstance(argument.value, str):
        return _reader(_named(argument.value, lambda name: _system(name, argument.position)))
    named = argument.evaluate

    def evaluate(subject: Subject) -> Value:
        name = named(subject)
        return None if name is None else _reader(_named(_string(name), _existing))(subject)

    return evaluate


def _named(name: str, find: Callable[[str], SystemProperty]) -> Property:
    scope, dot, rest = name.partition(".")
    if dot and scope.lower() == _SYS:
        return Property(rest, 0, find(rest))
    return Property(rest if dot and scope.lower() == _USER else name, 0, None)


def _existing(name: str) -> SystemProperty:
    try:
        return system_property(name)
    except LookupError as error:
        raise RuleEvaluationError(str(error.args[0])) from None


def _signed(sign: Token, operand: Node, apply: Callable[[Value], Value]) -> Node:
    value = operand.evaluate

    def evaluate(subject: Subject) -> Value:
        result = value(subject)
        return None if result is None else apply(result)

    return _node(evaluate, [operand], _start(sign), nested=True)


def _not(predicate: Evaluate) -> Evaluate:
    def evaluate(subject: Subject) -> bool | None:
        value = predicate(subject)
        return None if value is None else not value

    return evaluate


def _string(value: Value) -> str:
    if not isinstance(value, str):
        raise RuleEvaluationError(f"a string is needed, not {values.describe(value)}")
    return value


def _like_constant(text: Evaluate, pattern: Node, escapes: list[Node]) -> Evaluate:
    for node in (pattern, *escapes):
        if not isinstance(node.value, str):
            raise PlacedError(node.position, f"LIKE takes strings, not {values.describe(node.value)}")
    try:
        matches = like(pattern.value, escapes[0].value if escapes else None)
    except ValueError as error:
        raise PlacedError(escapes[0].position if escapes else pattern.position, str(error)) from None

    def evaluate(subject: Subject) -> bool | None:
        value = text(subject)
        return None if value is None else matches(_string(value))

    return evaluate
