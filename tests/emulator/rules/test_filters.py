"""SQL filters, as a table of what each means."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from spark_sb_mgmt.amqp.message import Header, Message, Properties
from spark_sb_mgmt.amqp.types import (
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from spark_sb_mgmt.emulator.entities.rules import RuleEvaluationError
from spark_sb_mgmt.model import FalseFilter, TrueFilter
from tests.emulator.rules.evaluation import NEW_ID, START, message, rule, truth, value

UNKNOWN = None
PROPERTIES: dict[str, Any] = {
    "color": "Red",
    "Quantity": Int(10),
    "price": 2.5,
    "urgent": True,
    "nothing": None,
    "due": Timestamp(START),
    "empty": "",
    "Property With Space": "space",
    "odd]name": "bracket",
    'odd"name': "quote",
    "and": "keyword",
    "größe": "umlaut",
    "sys.Label": "the user's own",
}

TRUTHS: list[tuple[str, bool | None]] = [
    # Comparison
    ("color = 'Red'", True),
    ("color = 'red'", False),
    ("color <> 'Blue'", True),
    ("color != 'Red'", False),
    ("color > 'Blue'", True),
    ("color <= 'Red'", True),
    ("Quantity = 10", True),
    ("Quantity=10.0", True),
    ("Quantity < 10", False),
    ("Quantity >= 10", True),
    ("10 <= Quantity", True),
    ("price > 2.08", True),
    ("price = 25e-1", True),
    ("price = .5 + 2.", True),
    ("urgent = TRUE", True),
    ("urgent <> true", False),
    ("TRUE = FALSE", False),
    ("1=1", True),
    ("1=0", False),
    ("9223372036854775807 = 9223372036854775807", True),
    ("'' = empty", True),
    ("'it''s' = 'it''s'", True),
    ("'a\nb' = 'a\nb'", True),
    # Names
    ("COLOR = 'Red'", True),
    ("user.color = 'Red'", True),
    ("USER.Color = 'Red'", True),
    ("[color] = 'Red'", True),
    ("[user].[color] = 'Red'", True),
    ("[Property With Space] = 'space'", True),
    ("user.[property with space] = 'space'", True),
    ("[odd]]name] = 'bracket'", True),
    ('"odd""name" = \'quote\'', True),
    ("\"odd]name\" = 'bracket'", True),
    ("[and] = 'keyword'", True),
    ("größe = 'umlaut'", True),
    ("GRÖSSE = 'umlaut'", UNKNOWN),
    ("[sys.Label] = 'the user''s own'", True),
    # System properties
    ("sys.Label = 'order'", True),
    ("sys.label LIKE 'ord%'", True),
    ("SYS.[Label] = 'order'", True),
    ("sys.Subject = 'order'", True),
    ("sys.MessageId = 'm-1'", True),
    ("sys.SessionId = 's-1'", True),
    ("sys.ContentType = 'text/plain'", True),
    ("sys.PartitionKey = 'key'", True),
    ("sys.SequenceNumber = 7", True),
    ("sys.DeliveryCount = 0", True),
    ("sys.State = 0", True),
    ("sys.Size > 100", True),
    ("sys.To = 'x'", UNKNOWN),
    ("sys.To IS NULL", True),
    ("EXISTS(sys.To)", False),
    ("EXISTS(sys.Label)", True),
    ("sys.CorrelationId IS NOT NULL", False),
    ("sys.EnqueuedTimeUtc = due", True),
    ("sys.EnqueuedTimeUtc >= '2026-01-01T00:00:00Z'", True),
    ("sys.EnqueuedTimeUtc < '2026-01-01T01:00:00.001+01:00'", True),
    ("'2025-12-31' < sys.EnqueuedTimeUtc", True),
    ("sys.TimeToLive = 'PT1M'", True),
    ("sys.TimeToLive > 'PT59.999S'", True),
    ("sys.ExpiresAtUtc = '2026-01-01T00:01:00'", True),
    ("sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive", True),
    ("sys.EnqueuedTimeUtc + sys.TimeToLive = sys.ExpiresAtUtc", True),
    ("sys.LockedUntilUtc IS NULL", True),
    # Null and what does not exist
    ("missing = 1", UNKNOWN),
    ("missing <> 1", UNKNOWN),
    ("nothing = NULL", UNKNOWN),
    ("NULL = NULL", UNKNOWN),
    ("missing + 1 = 2", UNKNOWN),
    ("-missing = 2", UNKNOWN),
    ("missing IS NULL", True),
    ("nothing IS NULL", True),
    ("nothing is not null", False),
    ("color IS NOT NULL", True),
    ("EXISTS(color)", True),
    ("exists ( COLOR )", True),
    ("EXISTS(nothing)", True),
    ("EXISTS(missing)", False),
    ("NOT EXISTS(missing)", True),
    # IN
    ("color IN ('Blue', 'Red')", True),
    ("color IN('Blue')", False),
    ("color NOT IN ('Blue', 'Green')", True),
    ("Quantity IN (1, 2 * 5, 3)", True),
    ("missing IN ('a')", UNKNOWN),
    ("missing NOT IN ('a')", UNKNOWN),
    ("color IN (missing, 'Red')", True),
    ("color IN ('Blue', missing)", UNKNOWN),
    ("color NOT IN ('Blue', missing)", UNKNOWN),
    # LIKE
    ("color LIKE 'Red'", True),
    ("color LIKE 'R%'", True),
    ("color LIKE '%d'", True),
    ("color LIKE '%e%'", True),
    ("color LIKE '%'", True),
    ("empty LIKE '%'", True),
    ("empty LIKE '_'", False),
    ("color LIKE 'R_d'", True),
    ("color LIKE '__'", False),
    ("color LIKE 'r%'", False),
    ("color LIKE 'Re%ed'", False),
    ("color LIKE '%Red%Red%'", False),
    ("color NOT LIKE 'B%'", True),
    ("'ABC%' LIKE 'ABC\\%' ESCAPE '\\'", True),
    ("'ABCD' LIKE 'ABC\\%' ESCAPE '\\'", False),
    ("'A_C' NOT LIKE 'A!_C' ESCAPE '!'", False),
    ("'a!b' LIKE 'a!!b' ESCAPE '!'", True),
    ("'a.c' LIKE 'a.c'", True),
    ("'abc' LIKE 'a.c'", False),
    ("'a\nc' LIKE 'a_c'", True),
    ("'Red' LIKE color", True),
    ("'%' LIKE color + '%' ESCAPE 'd'", False),
    ("missing LIKE '%'", UNKNOWN),
    ("color LIKE missing", UNKNOWN),
    ("color NOT LIKE NULL", UNKNOWN),
    ("color LIKE 'R%' ESCAPE missing", UNKNOWN),
    # Precedence
    ("1=1 OR 1=0 AND 1=0", True),
    ("(1=1 OR 1=0) AND 1=0", False),
    ("NOT 1=0 AND 1=1", True),
    ("NOT (1=0 AND 1=1)", True),
    ("not not 1=1", True),
    ("2 + 3 * 4 = 14", True),
    ("(2 + 3) * 4 = 20", True),
    ("10 - 3 - 2 = 5", True),
    ("100 / 10 / 2 = 5", True),
    ("-2 * -3 = 6", True),
    ("- -2 = +2", True),
    ("((((Quantity)))) = ((10))", True),
    # Functions
    ("property('color') = 'Red'", True),
    ("p('COLOR') = 'Red'", True),
    ("P('col' + 'or') = 'Red'", True),
    ("p('user.color') = 'Red'", True),
    ("p('sys.label') = 'order'", True),
    ("p(missing) = 1", UNKNOWN),
    ("p('missing') = 1", UNKNOWN),
    ("p = 1", UNKNOWN),
    (f"newid() = '{NEW_ID}'", True),
    ("NewId() <> newid()", False),
]


@pytest.mark.parametrize(("predicate", "expected"), TRUTHS, ids=[predicate for predicate, _ in TRUTHS])
def test_what_a_filter_means(predicate: str, expected: bool | None) -> None:
    assert truth(predicate, **PROPERTIES) is expected


T, F, U = "1=1", "1=0", "missing = 1"


@pytest.mark.parametrize(
    ("operator", "table"),
    [
        ("AND", {(T, T): True, (T, F): False, (T, U): UNKNOWN, (F, F): False, (F, U): False, (U, U): UNKNOWN}),
        ("OR", {(T, T): True, (T, F): True, (T, U): True, (F, F): False, (F, U): UNKNOWN, (U, U): UNKNOWN}),
    ],
)
def test_three_valued_logic(operator: str, table: dict[tuple[str, str], bool | None]) -> None:
    for (left, right), expected in table.items():
        assert truth(f"{left} {operator} {right}") is expected, (left, right)
        assert truth(f"{right} {operator} {left}") is expected, (right, left)


def test_not_unknown_is_unknown() -> None:
    assert not rule(f"NOT {U}").matches(message())
    assert not rule(f"NOT NOT {U}").matches(message())


def test_of_names_that_differ_in_case_only_the_exact_one_is_meant_else_the_first() -> None:
    given = {"Color": "first", "color": "second"}
    assert truth("color = 'second'", **given)
    assert truth("COLOR = 'first'", **given)


@pytest.mark.parametrize("kind", [UByte, UShort, UInt, ULong, Byte, Short, Int, Long])
def test_integers_compare_by_value_whatever_their_width(kind: type) -> None:
    assert truth("a = 5 AND a < 6 AND 4.5 < a AND a = b", a=kind(5), b=Long(5))
    assert truth("a > -1", a=kind(5))


def test_a_ulong_beyond_long_compares_with_signed_ones() -> None:
    assert truth("a > 9223372036854775807 AND a > -1", a=ULong(2**64 - 1))


@pytest.mark.parametrize("given", [Symbol("x"), Char(ord("x")), Described(Symbol("com.microsoft:uri"), "x")])
def test_what_counts_as_a_string(given: Any) -> None:
    assert truth("a = 'x' AND a LIKE '_' AND a + 'y' = 'xy'", a=given)


def test_times_and_durations_of_the_dotnet_client() -> None:
    hour = Described(Symbol("com.microsoft:timespan"), Long(36_000_000_000))
    epoch = Described(Symbol("com.microsoft:datetime-offset"), Long(621_355_968_000_000_000))
    assert truth("a = 'PT1H' AND b = '1970-01-01' AND b + a = '1970-01-01T01:00:00Z' AND a - a < a", a=hour, b=epoch)


def test_a_float_is_compared_as_csharp_does() -> None:
    # 0.1f is not 0.1; a long is made a float to be compared with one.
    assert truth("a = 0.1", a=Float(0.1)) is False
    assert truth("a = 16777217", a=Float(16777216.0)) is True
    assert truth("a = 9007199254740993", a=9007199254740992.0) is True


def test_uuids_and_binaries_are_equal_or_not() -> None:
    assert truth(
        "a = b AND a = '00112233-4455-6677-8899-aabbccddeeff' AND c = d AND c <> e",
        a=NEW_ID,
        b=UUID(int=NEW_ID.int),
        c=b"x",
        d=b"x",
        e=b"y",
    )


def test_ids_of_any_amqp_type_are_their_text() -> None:
    given = Message(properties=Properties(message_id=ULong(12), correlation_id=NEW_ID))
    assert rule(f"sys.MessageId = '12' AND sys.CorrelationId = '{NEW_ID}'").matches(given)


def test_a_message_without_sections_has_only_nulls() -> None:
    assert rule("a IS NULL AND sys.Label IS NULL AND sys.EnqueuedTimeUtc IS NULL AND sys.ExpiresAtUtc IS NULL").matches(Message())
    assert rule("sys.TimeToLive > 'P3650D' AND sys.DeliveryCount = 0").matches(Message())


def test_a_time_to_live_that_the_header_cannot_say_is_in_the_properties() -> None:
    properties = Properties(creation_time=Timestamp(START), absolute_expiry_time=Timestamp(START + 100 * 86_400_000))
    assert rule("sys.TimeToLive = 'P100D'").matches(Message(header=Header(), properties=properties))


VALUES: list[tuple[str, Any]] = [
    ("7 / 2", Long(3)),
    ("-7 / 2", Long(-3)),
    ("7 / -2", Long(-3)),
    ("7 % -2", Long(1)),
    ("-7 % 2", Long(-1)),
    ("7 / 2.0", 3.5),
    ("7.5 % 2", 1.5),
    ("-7.5 % 2", -1.5),
    ("1 / 0.0", float("inf")),
    ("-1 / 0.0", float("-inf")),
    ("1e308 * 10", float("inf")),
    ("i + i", Int(20)),
    ("i + 1", Long(11)),
    ("i * 0.5", 5.0),
    ("-i", Int(-10)),
    ("-b", Int(-3)),
    ("b + b", Int(6)),
    ("u + u", UInt(8)),
    ("u - i", Long(-6)),
    ("-u", Long(-4)),
    ("ul + u", ULong(9)),
    ("ul + 1", Long(6)),
    ("ul - 6", Long(-1)),
    ("f + f", Float(1.0)),
    ("f + i", Float(10.5)),
    ("f + 0.5", 1.0),
    ("'a' + 'b'", "ab"),
    ("'a' + 1", "a1"),
    ("1 + 2 + 'a' + 1 + 2", "3a12"),
    ("'a' + 1.0", "a1"),
    ("'a' + 0.25", "a0.25"),
    ("'a' + TRUE", "aTrue"),
    ("'a' + newid()", f"a{NEW_ID}"),
    ("TRUE", True),
    ("NULL", None),
    ("missing", None),
    ("newid()", NEW_ID),
    ("sys.EnqueuedTimeUtc", Timestamp(START)),
    ("sys.TimeToLive", Described(Symbol("com.microsoft:timespan"), Long(600_000_000))),
    ("-9223372036854775807 - 1", Long(-(2**63))),
]


@pytest.mark.parametrize(("expression", "expected"), VALUES, ids=[expression for expression, _ in VALUES])
def test_what_an_expression_is_and_its_type(expression: str, expected: Any) -> None:
    given = value(expression, i=Int(10), b=UByte(3), u=UInt(4), ul=ULong(5), f=Float(0.5))
    assert (given, type(given)) == (expected, type(expected))


FAILURES: list[tuple[str, str]] = [
    ("1 / 0 = 1", "divides an integer by zero"),
    ("Quantity % 0 = 1", "divides an integer by zero"),
    ("9223372036854775807 + 1 > 0", r"the result of \+ is outside"),
    ("color = 1", "= cannot compare a string with an integer"),
    ("Quantity > '5'", "> cannot compare an integer with a string"),
    ("urgent = 1", "= cannot compare a boolean with an integer"),
    ("urgent < TRUE", "< cannot compare a boolean with a boolean"),
    ("color IN (1)", "= cannot compare"),
    ("color * 2 = 1", r"\* cannot be applied to a string and an integer"),
    ("-color = 1", "- cannot be applied to a string"),
    ("+urgent = 1", r"\+ cannot be applied to a boolean"),
    ("-ul = 1", "- cannot be applied to an integer"),
    ("least = -least", "outside the range"),
    ("due = 'soon'", "the string 'soon' cannot be read as a timestamp"),
    ("sys.TimeToLive = '1 minute'", "cannot be read as a duration"),
    ("newid() = 'x'", "cannot be read as a uuid"),
    ("due + due = due", r"\+ cannot be applied to a timestamp and a timestamp"),
    ("Quantity LIKE '1%'", "a string is needed, not an integer"),
    ("color LIKE Quantity", "a string is needed, not an integer"),
    ("color LIKE '%' ESCAPE color", "ESCAPE takes a string of one character"),
    ("color LIKE color + '!' ESCAPE '!'", "ends with its escape character"),
    ("p(Quantity) = 1", "a string is needed, not an integer"),
    ("p('sys.' + color) = 1", "there is no system property 'Red'"),
    ("decimal = 1", "cannot compare an AMQP decimal64 with"),
    ("list = 1", "cannot compare an AMQP list with"),
    ("late + sys.TimeToLive > late", "outside the range"),
]


@pytest.mark.parametrize(("predicate", "text"), FAILURES, ids=[predicate for predicate, _ in FAILURES])
def test_what_cannot_be_computed_is_an_error_and_not_false(predicate: str, text: str) -> None:
    properties = {"ul": ULong(1), "least": Long(-(2**63)), "decimal": Decimal64(bytes(8)), "list": (Int(1),), "late": Timestamp(2**63 - 1)}
    with pytest.raises(RuleEvaluationError, match=text):
        rule(predicate).matches(message(**PROPERTIES, **properties))


def test_what_is_decided_already_is_not_computed() -> None:
    assert rule("1=1 OR 1/0 = 1").matches(message())
    assert not rule("1=0 AND 1/0 = 1").matches(message())
    assert rule("1 IN (1, 1/0)").matches(message())


def test_a_pattern_of_many_percents_takes_no_long_time() -> None:
    pattern = "%a" * 300 + "%b"
    assert not rule(f"text LIKE '{pattern}'").matches(message(text="a" * 20_000))


def test_true_and_false_filters() -> None:
    assert rule(TrueFilter()).matches(Message())
    assert not rule(FalseFilter()).matches(Message())


def test_keys_of_the_map_that_are_no_strings_are_passed_by() -> None:
    assert rule("Missing IS NULL").matches(Message(application_properties=Map([(Int(1), "x"), (None, "y")])))
