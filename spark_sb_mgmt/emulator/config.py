"""The configuration file: the official emulator's `Config.json` (CONTRACT.md section 5), read into settings of the core.

The one rule: a file is right or it is one `ConfigError` that names the place in it, what is wrong, and what would be right. Nothing is
guessed and nothing unknown is skipped: a misspelt `RequiresSesion` must not give a queue without sessions.

Beyond the official format: `EnablePartitioning`, `MaxMessageSizeInKilobytes`, `DeadLetteringOnFilterEvaluationExceptions`, and the
namespace's `AuthorizationRules`, a list of SAS policies: `{"KeyName": ..., "PrimaryKey": ..., "Rights": ["Listen", "Send", "Manage"]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from spark_sb_mgmt.amqp.types import Value
from spark_sb_mgmt.emulator.config_reader import ConfigError, Node
from spark_sb_mgmt.emulator.entities.rules import RuleCompiler, SubscriptionRule
from spark_sb_mgmt.emulator.entities.settings import (
    DEFAULT_DUPLICATE_DETECTION_WINDOW,
    DEFAULT_LOCK_DURATION,
    DEFAULT_MAX_DELIVERY_COUNT,
    DEFAULT_MAX_MESSAGE_SIZE,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from spark_sb_mgmt.errors import EncodeError, SbMgmtError
from spark_sb_mgmt.model import CorrelationFilter, FalseFilter, Rule, RuleFilter, SqlFilter, SqlRuleAction, TrueFilter
from spark_sb_mgmt.operations.arguments import amqp_value

__all__ = ["AuthorizationRule", "ConfigError", "EmulatorConfig", "load_config", "parse_config"]

MAX_LOCK_DURATION = 5 * 60_000
MAX_DUPLICATE_DETECTION_WINDOW = 7 * 24 * 3_600_000
MAX_DELIVERY_COUNT = 2000
MAX_PATH_LENGTH = 260
MAX_NAME_LENGTH = 50
MAX_MESSAGE_KILOBYTES = 100 * 1024

Right = Literal["Listen", "Send", "Manage"]
RIGHTS: tuple[Right, ...] = ("Listen", "Send", "Manage")


@dataclass(frozen=True)
class AuthorizationRule:
    """A SAS policy: whoever signs with its key has its rights in the whole namespace."""

    key_name: str
    primary_key: str = field(repr=False)
    rights: frozenset[Right] = frozenset(RIGHTS)


# What the official emulator has, and every sample connection string says.
DEFAULT_POLICY = AuthorizationRule("RootManageSharedAccessKey", "SAS_KEY_VALUE")


@dataclass(frozen=True)
class EmulatorConfig:
    namespace: str
    queues: Mapping[str, QueueSettings]
    topics: Mapping[str, TopicSettings]
    authorization_rules: tuple[AuthorizationRule, ...] = (DEFAULT_POLICY,)


def load_config(path: str | Path, compile_rule: RuleCompiler) -> EmulatorConfig:
    """The configuration in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError("", f"the file {path} cannot be read: {error.strerror}") from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("", f"{path} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    return parse_config(document, compile_rule)


def parse_config(document: object, compile_rule: RuleCompiler) -> EmulatorConfig:
    """The configuration in a JSON document."""
    root = Node(document, "")
    # Where an editor looks up what may stand in the file.
    root.only("UserConfig", "$schema")
    user = root.required("UserConfig")
    user.only("Namespaces", "Logging")
    logging = user.optional("Logging")
    if logging is not None:
        logging.only("Type")
    namespaces = user.required("Namespaces").items()
    if len(namespaces) != 1:
        raise ConfigError("UserConfig.Namespaces", f"there must be exactly one namespace, not {len(namespaces)}")
    return _namespace(namespaces[0], compile_rule)


def _namespace(node: Node, compile_rule: RuleCompiler) -> EmulatorConfig:
    node.only("Name", "Queues", "Topics", "AuthorizationRules")
    taken: dict[str, str] = {}
    queues: dict[str, QueueSettings] = {}
    topics: dict[str, TopicSettings] = {}
    forwards: list[tuple[Node, str, str]] = []
    for queue in node.list_of("Queues"):
        queue.only("Name", "Properties")
        name = _entity_name(queue, taken)
        queues[name] = _queue(queue.optional("Properties"), forwards, name, _QUEUE_KEYS)
    for topic in node.list_of("Topics"):
        topic.only("Name", "Properties", "Subscriptions")
        name = _entity_name(topic, taken)
        topics[name] = _topic(topic, name, forwards, compile_rule)
    _check_forwards(forwards, [*queues, *topics])
    given_name = node.optional("Name")
    return EmulatorConfig(
        namespace="sbemulatorns" if given_name is None else given_name.text(),
        queues=queues,
        topics=topics,
        authorization_rules=_policies(node.list_of("AuthorizationRules")) or (DEFAULT_POLICY,),
    )


def _entity_name(node: Node, taken: dict[str, str]) -> str:
    name = _name(node, MAX_PATH_LENGTH)
    place = node.required("Name").path
    segments = name.lower().split("/")
    if "" in segments:
        raise ConfigError(place, f"{name!r} starts or ends with a slash, or has two in a row")
    if any(segment.startswith("$") for segment in segments) or "subscriptions" in segments[1:]:
        raise ConfigError(place, f"{name!r} cannot be told from an address: '$...' and '/Subscriptions/' are the service's own")
    if name.lower() in taken:
        raise ConfigError(place, f"{name!r} is the name of {taken[name.lower()]} already (letter case makes no difference)")
    taken[name.lower()] = node.path
    return name


def _name(node: Node, limit: int) -> str:
    given = node.required("Name")
    name = given.text()
    if not 0 < len(name) <= limit:
        raise ConfigError(given.path, f"a name has 1 to {limit} characters, not {len(name)}")
    return name


_COMMON_KEYS = (
    "DefaultMessageTimeToLive",
    "DuplicateDetectionHistoryTimeWindow",
    "RequiresDuplicateDetection",
    "EnablePartitioning",
    "MaxMessageSizeInKilobytes",
)
_RECEIVING_KEYS = (
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresSession",
)
_QUEUE_KEYS = tuple(dict.fromkeys((*_RECEIVING_KEYS, *_COMMON_KEYS)))
_SUBSCRIPTION_KEYS = (*_RECEIVING_KEYS, "DeadLetteringOnFilterEvaluationExceptions")


def _queue(
    properties: Node | None,
    forwards: list[tuple[Node, str, str]],
    path: str,
    keys: tuple[str, ...],
    *,
    partitioned: bool = False,
    max_message_size: int | None = None,
) -> QueueSettings:
    node = properties or Node({}, f"{path}.Properties")
    node.only(*keys)
    forward_to = _forward(node, "ForwardTo", forwards, path)
    forward_dead = _forward(node, "ForwardDeadLetteredMessagesTo", forwards, path)
    requires_session = node.boolean("RequiresSession", False)
    if requires_session and forward_to is not None:
        raise ConfigError(f"{node.path}.ForwardTo", "an entity with RequiresSession cannot forward its messages; drop one of both")
    return QueueSettings(
        lock_duration=node.duration("LockDuration", DEFAULT_LOCK_DURATION, at_most=MAX_LOCK_DURATION) or DEFAULT_LOCK_DURATION,
        max_delivery_count=node.integer("MaxDeliveryCount", DEFAULT_MAX_DELIVERY_COUNT, 1, MAX_DELIVERY_COUNT),
        default_message_time_to_live=node.duration("DefaultMessageTimeToLive", None),
        dead_lettering_on_message_expiration=node.boolean("DeadLetteringOnMessageExpiration", False),
        dead_lettering_on_filter_evaluation_exceptions=node.boolean("DeadLetteringOnFilterEvaluationExceptions", True),
        duplicate_detection_window=_duplicate_window(node),
        requires_session=requires_session,
        forward_to=forward_to,
        forward_dead_lettered_messages_to=forward_dead,
        enable_partitioning=node.boolean("EnablePartitioning", partitioned),
        max_message_size=_max_message_size(node) if max_message_size is None else max_message_size,
    )


def _duplicate_window(node: Node) -> int | None:
    window = node.duration(
        "DuplicateDetectionHistoryTimeWindow", DEFAULT_DUPLICATE_DETECTION_WINDOW, at_most=MAX_DUPLICATE_DETECTION_WINDOW
    )
    return window if node.boolean("RequiresDuplicateDetection", False) else None


def _max_message_size(node: Node) -> int:
    return node.integer("MaxMessageSizeInKilobytes", DEFAULT_MAX_MESSAGE_SIZE // 1024, 1, MAX_MESSAGE_KILOBYTES) * 1024


def _forward(node: Node, key: str, forwards: list[tuple[Node, str, str]], path: str) -> str | None:
    given = node.optional(key)
    # The official samples write "" for none.
    if given is None or given.text() == "":
        return None
    forwards.append((given, given.text(), path))
    return given.text()


def _check_forwards(forwards: Iterable[tuple[Node, str, str]], names: list[str]) -> None:
    known = {name.lower(): name for name in names}
    for node, target, source in forwards:
        if target.lower() == source.lower():
            raise ConfigError(node.path, f"{target!r} would forward to itself")
        if target.lower() not in known:
            raise ConfigError(node.path, f"there is no queue or topic {target!r}; there are: {', '.join(sorted(names)[:20])}")


def _topic(node: Node, name: str, forwards: list[tuple[Node, str, str]], compile_rule: RuleCompiler) -> TopicSettings:
    properties = node.optional("Properties") or Node({}, f"{node.path}.Properties")
    properties.only(*_COMMON_KEYS)
    partitioned = properties.boolean("EnablePartitioning", False)
    max_message_size = _max_message_size(properties)
    subscriptions: list[SubscriptionSettings] = []
    taken: set[str] = set()
    for subscription in node.list_of("Subscriptions"):
        subscription.only("Name", "Properties", "Rules")
        own = _name(subscription, MAX_NAME_LENGTH)
        if own.lower() in taken or "/" in own or own.startswith("$"):
            raise ConfigError(f"{subscription.path}.Name", f"{own!r} must be the topic's only such name, without '/' or a leading '$'")
        taken.add(own.lower())
        settings = _queue(
            subscription.optional("Properties"),
            forwards,
            f"{name}/Subscriptions/{own}",
            _SUBSCRIPTION_KEYS,
            partitioned=partitioned,
            max_message_size=max_message_size,
        )
        rules = _rules(subscription.list_of("Rules"), compile_rule)
        # The official emulator gives a subscription without rules the default one.
        subscriptions.append(SubscriptionSettings(own, settings, tuple(rules) or None))
    return TopicSettings(
        default_message_time_to_live=properties.duration("DefaultMessageTimeToLive", None),
        duplicate_detection_window=_duplicate_window(properties),
        enable_partitioning=partitioned,
        max_message_size=max_message_size,
        subscriptions=tuple(subscriptions),
    )


def _rules(nodes: Iterable[Node], compile_rule: RuleCompiler) -> list[SubscriptionRule]:
    rules: dict[str, SubscriptionRule] = {}
    for node in nodes:
        node.only("Name", "Properties")
        name = _name(node, MAX_NAME_LENGTH)
        if name.lower() in rules:
            raise ConfigError(f"{node.path}.Name", f"there is a rule {name!r} already")
        properties = node.required("Properties")
        properties.only("FilterType", "SqlFilter", "CorrelationFilter", "Action")
        action = properties.optional("Action")
        # Templates say `"Action": {}` for none.
        rule = Rule(name, _filter(properties), None if action is None or not action.names() else SqlRuleAction(_sql(action)))
        try:
            rules[name.lower()] = compile_rule(rule)
        except SbMgmtError as error:
            raise ConfigError(properties.path, str(error)) from error
    return list(rules.values())


def _sql(node: Node) -> str:
    # ARM templates, from which this format comes, carry a level that has had one value for many years, and whether parameters are left
    # to be filled in, which there are none of here.
    node.only("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")
    return node.required("SqlExpression").text()


def _filter(properties: Node) -> RuleFilter:
    kinds = {"sql": "SqlFilter", "sqlfilter": "SqlFilter", "correlation": "CorrelationFilter", "correlationfilter": "CorrelationFilter"}
    constants: dict[str, RuleFilter] = {
        **dict.fromkeys(("true", "truefilter"), TrueFilter()),
        **dict.fromkeys(("false", "falsefilter"), FalseFilter()),
    }
    given = properties.required("FilterType")
    kind = given.text().lower()
    expected = kinds.get(kind)
    if expected is None and kind not in constants:
        raise ConfigError(given.path, f"{given.text()!r} is not one of Sql, Correlation, True, False")
    for key in ("SqlFilter", "CorrelationFilter"):
        if key != expected and properties.optional(key) is not None:
            raise ConfigError(f"{properties.path}.{key}", f"FilterType {given.text()!r} has no {key}")
    if expected is None:
        return constants[kind]
    node = properties.required(expected)
    return SqlFilter(_sql(node)) if expected == "SqlFilter" else _correlation(node)


_CORRELATION_KEYS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


def _correlation(node: Node) -> CorrelationFilter:
    node.only(*_CORRELATION_KEYS, "Properties", "RequiresPreprocessing")
    values = {name: found.text() for key, name in _CORRELATION_KEYS.items() if (found := node.optional(key)) is not None}
    properties = node.optional("Properties")
    user = {} if properties is None else {key: _amqp(properties.required(key)) for key in properties.names()}
    if not values and not user:
        raise ConfigError(node.path, "a correlation filter needs at least one property to compare")
    return CorrelationFilter(**values, properties=user)


def _amqp(node: Node) -> Value:
    try:
        return amqp_value(node.scalar())
    except EncodeError as error:
        raise ConfigError(node.path, str(error)) from None


def _policies(nodes: Iterable[Node]) -> tuple[AuthorizationRule, ...]:
    policies: dict[str, AuthorizationRule] = {}
    for node in nodes:
        node.only("KeyName", "PrimaryKey", "Rights")
        name, key = node.required("KeyName").text(), node.required("PrimaryKey").text()
        if not name or not key or name in policies:
            raise ConfigError(node.path, "KeyName and PrimaryKey must not be empty, and each KeyName stands once")
        rights: set[Right] = set()
        for given in node.required("Rights").items():
            right = next((right for right in RIGHTS if right == given.text()), None)
            if right is None:
                raise ConfigError(given.path, f"{given.text()!r} is not one of {', '.join(RIGHTS)}")
            rights.add(right)
        if not rights:
            raise ConfigError(f"{node.path}.Rights", f"a policy needs at least one of {', '.join(RIGHTS)}")
        # As in the service: who may manage may do all.
        policies[name] = AuthorizationRule(name, key, frozenset(RIGHTS) if "Manage" in rights else frozenset(rights))
    return tuple(policies.values())
