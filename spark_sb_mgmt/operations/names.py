"""Names and numbers of the request-response protocol that both ends use (wire-facts.md sections 1.0, 1.1 and 1.3).

The one rule: every name that is on the wire stands here once, and nothing else does.
"""

from __future__ import annotations

from typing import Final

# Operations
RENEW_LOCK: Final = "com.microsoft:renew-lock"
PEEK_MESSAGE: Final = "com.microsoft:peek-message"
SCHEDULE_MESSAGE: Final = "com.microsoft:schedule-message"
CANCEL_SCHEDULED_MESSAGE: Final = "com.microsoft:cancel-scheduled-message"
RENEW_SESSION_LOCK: Final = "com.microsoft:renew-session-lock"
GET_SESSION_STATE: Final = "com.microsoft:get-session-state"
SET_SESSION_STATE: Final = "com.microsoft:set-session-state"
GET_MESSAGE_SESSIONS: Final = "com.microsoft:get-message-sessions"
ADD_RULE: Final = "com.microsoft:add-rule"
REMOVE_RULE: Final = "com.microsoft:remove-rule"
ENUMERATE_RULES: Final = "com.microsoft:enumerate-rules"
RECEIVE_BY_SEQUENCE_NUMBER: Final = "com.microsoft:receive-by-sequence-number"
UPDATE_DISPOSITION: Final = "com.microsoft:update-disposition"
BATCH_DELETE_MESSAGES: Final = "com.microsoft:batch-delete-messages"


def short_name(operation: str) -> str:
    """An operation as people name it, in options and errors: without its prefix."""
    return operation.removeprefix("com.microsoft:")


# Nodes
MANAGEMENT_NODE: Final = "$management"
CBS_NODE: Final = "$cbs"

# Application properties of a request
OPERATION: Final = "operation"
SERVER_TIMEOUT: Final = "com.microsoft:server-timeout"
ASSOCIATED_LINK_NAME: Final = "associated-link-name"
TRACKING_ID: Final = "com.microsoft:tracking-id"

# Application properties of a response. `$cbs` spells them with hyphens; some services spell the condition so everywhere.
STATUS_CODE: Final = "statusCode"
STATUS_DESCRIPTION: Final = "statusDescription"
ERROR_CONDITION: Final = "errorCondition"
CBS_STATUS_CODE: Final = "status-code"
CBS_STATUS_DESCRIPTION: Final = "status-description"
LEGACY_ERROR_CONDITION: Final = "error-condition"

# `$cbs`
PUT_TOKEN: Final = "put-token"
TOKEN_TYPE: Final = "type"
TOKEN_NAME: Final = "name"
TOKEN_EXPIRATION: Final = "expiration"
SAS_TOKEN_TYPE: Final = "servicebus.windows.net:sastoken"
JWT_TOKEN_TYPE: Final = "jwt"

# Keys of bodies
FROM_SEQUENCE_NUMBER: Final = "from-sequence-number"
MESSAGE_COUNT: Final = "message-count"
OMIT_MESSAGE_BODY: Final = "omit-message-body"
SESSION_ID: Final = "session-id"
MESSAGES: Final = "messages"
MESSAGE: Final = "message"
MESSAGE_ID: Final = "message-id"
PARTITION_KEY: Final = "partition-key"
VIA_PARTITION_KEY: Final = "via-partition-key"
LOCK_TOKEN: Final = "lock-token"
LOCK_TOKENS: Final = "lock-tokens"
SEQUENCE_NUMBERS: Final = "sequence-numbers"
RECEIVER_SETTLE_MODE: Final = "receiver-settle-mode"
DISPOSITION_STATUS: Final = "disposition-status"
DEADLETTER_REASON: Final = "deadletter-reason"
DEADLETTER_DESCRIPTION: Final = "deadletter-description"
PROPERTIES_TO_MODIFY: Final = "properties-to-modify"
EXPIRATIONS: Final = "expirations"
EXPIRATION: Final = "expiration"
SESSION_STATE: Final = "session-state"
LAST_UPDATED_TIME: Final = "last-updated-time"
SKIP: Final = "skip"
TOP: Final = "top"
# Twice plural: the service's own spelling.
SESSIONS_IDS: Final = "sessions-ids"
RULE_NAME: Final = "rule-name"
RULE_DESCRIPTION: Final = "rule-description"
RULES: Final = "rules"
SQL_FILTER: Final = "sql-filter"
CORRELATION_FILTER: Final = "correlation-filter"
SQL_RULE_ACTION: Final = "sql-rule-action"
# These two and the empty action have no map form, only a described list.
TRUE_FILTER: Final = "true-filter"
FALSE_FILTER: Final = "false-filter"
EMPTY_RULE_ACTION: Final = "empty-rule-action"
EXPRESSION: Final = "expression"
PROPERTIES: Final = "properties"
ENQUEUED_TIME_UTC: Final = "enqueued-time-utc"

# `receiver-settle-mode`
RECEIVE_AND_DELETE: Final = 0
PEEK_LOCK: Final = 1

# `disposition-status`
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
SUSPENDED: Final = "suspended"
# With one r: the service's own spelling.
DEFERED: Final = "defered"

# `last-updated-time` that asks for every session with messages or state: the year 10000. One millisecond less is a filter.
ALL_SESSIONS: Final = 253402300800000

# A correlation filter's fields in the order of its list; `properties` is the ninth. The names are also the keys of its map.
CORRELATION_FIELDS: Final = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
)

# Descriptors of what enumerate-rules answers with. Filters have one hexadecimal digit less than rules and actions: so it is on the wire.
RULE_DESCRIPTION_CODE: Final = 0x0000013700000004
EMPTY_RULE_ACTION_CODE: Final = 0x0000013700000005
SQL_RULE_ACTION_CODE: Final = 0x0000013700000006
SQL_FILTER_CODE: Final = 0x000001370000006
TRUE_FILTER_CODE: Final = 0x000001370000007
FALSE_FILTER_CODE: Final = 0x000001370000008
CORRELATION_FILTER_CODE: Final = 0x000001370000009

# Source filters of a session receiver.
SESSION_FILTER: Final = "com.microsoft:session-filter"
SESSION_FILTER_CODE: Final = 0x00000137000000C
