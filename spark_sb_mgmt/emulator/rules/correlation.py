"""Correlation filters: a message matches if every property that is given is equal to its own.

The one rule: what the equivalent SQL would say, but that values which cannot be compared are not equal, instead of an error
(a filter on the string "2" passes by a message with the number 2: Azure/azure-service-bus#401). Strings and symbols are alike and compared
with regard to letter case, numbers by value, names of user properties without regard to letter case.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from spark_sb_mgmt.amqp.types import Value
from spark_sb_mgmt.emulator.rules.evaluator import Evaluate
from spark_sb_mgmt.emulator.rules.properties import Getter, Subject, system_property
from spark_sb_mgmt.emulator.rules.syntax_error import RuleSyntaxError
from spark_sb_mgmt.emulator.rules.values import equal, from_wire
from spark_sb_mgmt.errors import EncodeError
from spark_sb_mgmt.model import CorrelationFilter
from spark_sb_mgmt.operations.arguments import amqp_value

_WHAT: Final = "correlation filter"


def correlation(given: CorrelationFilter) -> Evaluate:
    """The predicate of a correlation filter."""
    system = [(_getter(field.name), text) for field in fields(given) if (text := _text(given, field.name)) is not None]
    user = [(name, name.lower(), _value(name, value)) for name, value in given.properties.items()]
    if not system and not user:
        raise RuleSyntaxError("there is no property to compare; give at least one", what=_WHAT)

    def evaluate(subject: Subject) -> bool:
        for get, text in system:
            if get(subject.message) != text:
                return False
        return all(subject.has_user(name, folded) and equal(subject.user(name, folded), value) for name, folded, value in user)

    return evaluate


def _text(given: CorrelationFilter, attribute: str) -> str | None:
    value = getattr(given, attribute)
    return None if attribute == "properties" else value


def _getter(attribute: str) -> Getter:
    return system_property(attribute.replace("_", "")).get


def _value(name: str, value: Value) -> Value:
    try:
        return from_wire(amqp_value(value))
    except EncodeError as error:
        raise RuleSyntaxError(f"the property {name!r:.80} cannot be compared: {error}", what=_WHAT) from None
