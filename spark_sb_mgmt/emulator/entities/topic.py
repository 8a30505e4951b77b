"""A topic and its subscriptions: one message in, a copy to every subscription whose rules let it through.

The one rule: a topic keeps nothing but scheduled messages; they are peeked and cancelled at the topic, and reach subscriptions when
their time has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from spark_sb_mgmt.amqp.message import Message, encode_message
from spark_sb_mgmt.emulator.entities import faults
from spark_sb_mgmt.emulator.entities.changes import RulePut, RuleRemoved, RulesCleared
from spark_sb_mgmt.emulator.entities.context import Context
from spark_sb_mgmt.emulator.entities.entity import Entity
from spark_sb_mgmt.emulator.entities.message import IncomingMessage, StoredMessage, read_message
from spark_sb_mgmt.emulator.entities.numbers import SequenceNumbers
from spark_sb_mgmt.emulator.entities.queue import Counts, Queue, QueueKind
from spark_sb_mgmt.emulator.entities.rules import DEFAULT_RULE_NAME, RuleEvaluationError, SubscriptionRule
from spark_sb_mgmt.emulator.entities.settings import QueueSettings, SubscriptionSettings, TopicSettings
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.model import Rule, TrueFilter

# Of rule and subscription names (wire-facts.md section 4).
MAX_NAME_LENGTH = 50


class DefaultRule:
    """`$Default`: every message, as it is. What a subscription has when nothing else was said."""

    name = DEFAULT_RULE_NAME
    description = Rule(DEFAULT_RULE_NAME, TrueFilter())
    has_action = False

    def matches(self, message: Message) -> bool:
        return True

    def apply(self, message: Message) -> Message:
        return message


class Subscription(Queue):
    def __init__(self, topic: str, context: Context, name: str, settings: QueueSettings, rules: Iterable[SubscriptionRule] | None) -> None:
        super().__init__(f"{topic}/Subscriptions/{name}", context, settings, QueueKind.SUBSCRIPTION)
        self.name = name
        self.topic = topic
        # And so were the rules that it came with.
        self.created_at = context.tick()
        given = (DefaultRule(),) if rules is None else rules
        # By lower-case name: the service compares names so.
        self._rules: dict[str, SubscriptionRule] = {rule.name.lower(): rule for rule in given}
        # False as long as the rules are the configuration's, which may be another at the next start.
        self._rules_recorded = False

    # Rules

    def add_rule(self, rule: SubscriptionRule) -> None:
        if not 0 < len(rule.name) <= MAX_NAME_LENGTH:
            raise faults.argument_out_of_range(f"A rule name has 1 to {MAX_NAME_LENGTH} characters, not {len(rule.name)}.")
        if rule.name.lower() in self._rules:
            raise faults.entity_already_exists(f"There is a rule '{rule.name}' on '{self.path}' already.")
        self._record_rules()
        self.restore_rule(rule)
        self._context.record(RulePut, self.path, rule)

    def remove_rule(self, rule_name: str) -> None:
        if rule_name.lower() not in self._rules:
            raise faults.rule_not_found(rule_name, self.path)
        self._record_rules()
        self.restore_rule_removal(rule_name)
        self._context.record(RuleRemoved, self.path, rule_name)

    def _record_rules(self) -> None:
        """Before the first change: all rules as they stand, so that after a restart they do not depend on the configuration."""
        if self._rules_recorded:
            return
        self._rules_recorded = True
        self._context.record(RulesCleared, self.path)
        for rule in self._rules.values():
            self._context.record(RulePut, self.path, rule)

    def rules(self, skip: int = 0, top: int | None = None) -> list[SubscriptionRule]:
        """The rules in the order in which they were added."""
        if skip < 0 or (top is not None and top < 0):
            raise faults.argument_out_of_range(f"skip and top must not be negative, not {skip} and {top}.")
        return list(self._rules.values())[skip : None if top is None else skip + top]

    def restore_no_rules(self) -> None:
        self._rules.clear()
        self._rules_recorded = True

    def restore_rule(self, rule: SubscriptionRule) -> None:
        self._rules[rule.name.lower()] = rule

    def restore_rule_removal(self, rule_name: str) -> None:
        self._rules.pop(rule_name.lower(), None)

    # Messages of the topic

    def offer(self, message: IncomingMessage, view: _View, topic_number: int, hops: int, source: str | None) -> None:
        """Take what the rules let through: one copy for all matching rules without action, and one for each with an action."""
        plain = False
        for rule in self._rules.values():
            try:
                # Most subscriptions have only the default rule, for which nothing need be decoded.
                if not isinstance(rule, DefaultRule) and not rule.matches(view.message):
                    continue
                if not rule.has_action:
                    plain = True
                    continue
                changed = read_message(encode_message(rule.apply(view.message)))
            except (RuleEvaluationError, SbMgmtError) as error:
                self._refuse(message, topic_number, "FilterEvaluationException", f"Rule '{rule.name}': {error}")
                return
            self._offer_copy(changed, topic_number, hops, source)
        if plain:
            self._offer_copy(message, topic_number, hops, source)

    def _offer_copy(self, message: IncomingMessage, topic_number: int, hops: int, source: str | None) -> None:
        try:
            self.accept_forwarded(message, topic_number, hops, source)
        except faults.ServiceBusFault as fault:
            # The topic took the message, so its sender cannot be told any more.
            self._refuse(message, topic_number, fault.condition.rpartition(":")[2], fault.description, always=True)

    def _refuse(self, message: IncomingMessage, topic_number: int, reason: str, description: str, *, always: bool = False) -> None:
        if always or self.settings.dead_lettering_on_filter_evaluation_exceptions:
            self.dead_letter_arrival(message, topic_number, reason, description)


class _View:
    """A message as rules see it, decoded when the first rule asks."""

    def __init__(self, stored: StoredMessage) -> None:
        self._stored = stored

    @cached_property
    def message(self) -> Message:
        return self._stored.read()


class Topic(Entity):
    def __init__(self, path: str, context: Context, settings: TopicSettings) -> None:
        super().__init__(
            path,
            context,
            SequenceNumbers(path, settings.enable_partitioning, context),
            default_message_time_to_live=settings.default_message_time_to_live,
            duplicate_detection_window=settings.duplicate_detection_window,
            max_message_size=settings.max_message_size,
        )
        self.settings = settings
        # By lower-case name.
        self.subscriptions: dict[str, Subscription] = {}
        for subscription in settings.subscriptions:
            self._subscribe(subscription)

    def counts(self) -> Counts:
        """All that stands at a topic is scheduled."""
        return Counts(0, 0, len(self.messages), 0)

    def _subscribe(self, given: SubscriptionSettings) -> None:
        self.subscriptions[given.name.lower()] = Subscription(self.path, self._context, given.name, given.queue, given.rules)

    def _arrive(
        self,
        message: IncomingMessage,
        sequence_number: int,
        enqueued_sequence_number: int,
        hops: int,
        dead_letter_source: str | None,
    ) -> None:
        stored = self._new(message, sequence_number, enqueued_sequence_number, dead_letter_source=dead_letter_source)
        view = _View(stored)
        if stored.ttl != message.ttl:
            message = stored.as_incoming()
        for subscription in self.subscriptions.values():
            subscription.offer(message, view, enqueued_sequence_number, hops, dead_letter_source)
