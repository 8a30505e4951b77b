"""The options that Spark hands over, as one frozen object for each kind of work (CONTRACT sections 1.1 to 1.4).

The one rule: what comes out of here is right. Whatever is unknown, missing, doubled or out of range is one InvalidArgumentError on the
driver, before any connection, naming the option as it is documented, its value unless that may be a secret, and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from spark_sb_mgmt.connection.connection_string import parse_connection_string
from spark_sb_mgmt.connection.credentials import credential_of
from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.operations.names import short_name
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.options.checks import check_connection, check_own, wrong
from spark_sb_mgmt.spark.options.entity_names import check_entities, entity_names
from spark_sb_mgmt.spark.options.objects import (
    BatchedWriteOptions,
    ConnectionOptions,
    OperationOptions,
    PeekOptions,
    PurgeOptions,
    ReadOptions,
    ReceiveOptions,
    RulesOptions,
    ScheduleOptions,
    SessionsOptions,
    SettleOptions,
    StreamOptions,
    WriteOptions,
)
from spark_sb_mgmt.spark.options.table import BATCH, BY_KEY, SPARKS_OWN, STREAM, Option, options_of
from spark_sb_mgmt.spark.options.values import ANY_TEXT
from spark_sb_mgmt.spark.suggestions import did_you_mean

T = TypeVar("T", bound=OperationOptions)

# The objects are told apart by their classes, so they belong to what this module offers.
__all__ = [
    "BatchedWriteOptions",
    "ConnectionOptions",
    "OperationOptions",
    "PeekOptions",
    "PurgeOptions",
    "ReadOptions",
    "ReceiveOptions",
    "RulesOptions",
    "ScheduleOptions",
    "SessionsOptions",
    "SettleOptions",
    "StreamOptions",
    "WriteOptions",
    "is_for_streams",
    "read_options",
    "stream_read_options",
    "write_options",
]


_READS: dict[str, type[ReadOptions]] = {
    table.PEEK: PeekOptions,
    table.RECEIVE: ReceiveOptions,
    table.SESSIONS: SessionsOptions,
    table.RULES: RulesOptions,
}
_WRITES: dict[str, type[WriteOptions]] = {
    table.SCHEDULE: ScheduleOptions,
    table.SETTLE: SettleOptions,
    table.PURGE: PurgeOptions,
    table.CANCEL: BatchedWriteOptions,
    table.RENEW_LOCK: BatchedWriteOptions,
}


def read_options(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> ReadOptions:
    """The options of `spark.read`."""
    options = {key.lower(): value for key, value in given.items()}
    operation = _operation(options, table.READ_OPERATIONS)
    return _made(_READS[operation], operation, BATCH, options, environment)


def is_for_streams(given: Mapping[str, str]) -> bool:
    """Whether there is an option that only `spark.readStream` has."""
    return bool(_only_for_streams(given))


def _only_for_streams(given: Mapping[str, str]) -> list[str]:
    known = (BY_KEY.get(key.lower()) for key in given)
    return [option.name for option in known if option is not None and option.modes == (STREAM,)]


def stream_read_options(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> StreamOptions:
    """The options of `spark.readStream`."""
    options = {key.lower(): value for key, value in given.items()}
    operation = _operation(options, table.READ_OPERATIONS)
    if operation != table.PEEK:
        # It may be no stream: its schema is asked for before that is known.
        leave = "".join(f"; for spark.read leave {name} out" for name in _only_for_streams(given)[:1])
        raise wrong("operation", f"is {operation}, which is for spark.read: a stream reads {table.PEEK}{leave}")
    return _made(StreamOptions, operation, STREAM, options, environment)


def write_options(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> WriteOptions:
    """The options of `df.write` and `df.writeStream`, which are the same."""
    options = {key.lower(): value for key, value in given.items() if key.lower() not in SPARKS_OWN}
    operation = _operation(options, table.WRITE_OPERATIONS)
    return _made(_WRITES.get(operation, WriteOptions), operation, BATCH, options, environment)


def _operation(options: Mapping[str, str], allowed: tuple[str, ...]) -> str:
    given = options.get("operation", allowed[0]).strip()
    # In any case, as all words are that an option may be; the protocol has them all small.
    operation = given.lower()
    if operation in allowed:
        return operation
    reads = allowed is table.READ_OPERATIONS
    if operation in table.EVERY_OPERATION:
        here, there = ("writes", "df.write") if reads else ("reads", "spark.read")
        raise wrong("operation", f"is {operation}, which {here}: use it with {there}; here there are {', '.join(allowed)}")
    # The wire's own name is not taken, but it shows what was meant.
    hint = did_you_mean(short_name(operation), allowed)
    raise wrong("operation", f"is {given!r:.80}{hint}? There are {', '.join(allowed)}" if hint else _none_of(given, allowed))


def _none_of(operation: str, allowed: tuple[str, ...]) -> str:
    return f"is {operation!r:.80}: it must be one of {', '.join(allowed)}"


def _made(kind: type[T], operation: str, mode: str, given: Mapping[str, str], environment: Mapping[str, str]) -> T:
    _check_known(operation, mode, given)
    values: dict[str, Any] = {option.field: _value(option, given) for option in options_of(operation, mode)}
    if values["connection_string"] is None and values["fully_qualified_namespace"] is None:
        values["connection_string"] = environment.get(table.CONNECTION_STRING_VARIABLE) or None
    check_connection(values)
    check_own(operation, values)
    entity_path = None
    if values["connection_string"] is not None:
        parsed = parse_connection_string(values["connection_string"])
        credential_of(parsed)
        entity_path = parsed.entity_path
    named = {name: values[name] for name in ("queue", "topic", "subscription", "entity_path", "sub_queue")}
    entities = entity_names(**named, connection_entity_path=entity_path)
    check_entities(operation, entities, several=operation in table.READ_OPERATIONS and values.get("sequence_numbers") is None)
    values["operation"] = operation
    values["entities"] = tuple(entity.address for entity in entities)
    values["connection"] = ConnectionOptions(**{one.name: values[one.name] for one in fields(ConnectionOptions)})
    return kind(**{one.name: values[one.name] for one in fields(kind)})


def _check_known(operation: str, mode: str, given: Mapping[str, str]) -> None:
    if "provider" in given:
        raise wrong("provider", "is what CREATE TABLE adds: a table would forget its options, so CREATE TEMPORARY VIEW instead")
    here = list(options_of(operation, mode))
    for key in given:
        option = BY_KEY.get(key)
        if option is None:
            raise _unknown(key, operation, here)
        if operation not in option.operations:
            raise wrong(option.name, f"is not for operation {operation}: it is for {', '.join(option.operations)}")
        if mode not in option.modes:
            use = "spark.readStream" if mode == BATCH else "spark.read"
            instead = "; where a stream starts is startingSequenceNumber" if option.name == "fromSequenceNumber" else ""
            raise wrong(option.name, f"is only for {use}: leave it out here{instead}")


def _unknown(key: str, operation: str, here: list[Option]) -> InvalidArgumentError:
    names = [option.name for option in here]
    if key in ("path", "paths"):
        return wrong(key, "is what load(...) and save(...) were given: leave that empty, and name the entity by option queue or topic")
    # What a stream has is meant to be found too: its schema is asked for before it is known to be one.
    related = [option.name for option in BY_KEY.values() if operation in option.operations]
    hint = did_you_mean(key, related) or did_you_mean(key, [option.name for option in BY_KEY.values()])
    return wrong(f"{key:.80}", f"is unknown{hint}{'?' if hint else ':'} There are {', '.join(names)}")


def _value(option: Option, given: Mapping[str, str]) -> Any:
    text = given.get(option.name.lower())
    if text is None:
        return option.default
    text = text if option.kind is ANY_TEXT else text.strip()
    try:
        return option.kind.read(text)
    except ValueError as problem:
        shown = "has a value that is not shown, because it may be a secret" if option.secret else f"is {text!r:.80}"
        reason = f" ({problem})" if str(problem) else ""
        # Not chained: the cause may quote the value.
        raise wrong(option.name, f"{shown}: it must be {option.kind.allowed}{reason}") from None
