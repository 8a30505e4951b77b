"""The rule language of subscriptions: SQL and correlation filters, SQL actions.

rule = compile_rule(Rule("large", SqlFilter("amount >= 1000"), SqlRuleAction("SET priority = 'high'")))
if rule.matches(message):
    message = rule.apply(message)
"""

from spark_sb_mgmt.emulator.rules.compile import RULE_NAME_PROPERTY, compile_rule
from spark_sb_mgmt.emulator.rules.syntax_error import RuleSyntaxError

__all__ = ["RULE_NAME_PROPERTY", "RuleSyntaxError", "compile_rule"]
