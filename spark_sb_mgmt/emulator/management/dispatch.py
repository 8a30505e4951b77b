"""From the name of an operation to what does it, and from whatever happens there to an answer.

The one rule: every request is answered, at once. What the entities refuse becomes their fault's status, condition and description; a
defect of ours becomes a 500 that says no more than that, and its traceback goes to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from spark_sb_mgmt.emulator.config import Right
from spark_sb_mgmt.emulator.entities import AnyEntity, Holder, Namespace, ServiceBusFault, UnitOfWork, faults
from spark_sb_mgmt.emulator.entities.rules import RuleCompiler
from spark_sb_mgmt.emulator.management import messages, rules, scheduling, sessions
from spark_sb_mgmt.emulator.management.bodies import Body
from spark_sb_mgmt.emulator.management.call import Answer, Call
from spark_sb_mgmt.emulator.management.envelope import ManagementRequest, encode_fault, encode_response
from spark_sb_mgmt.operations import names

_log = logging.getLogger(__name__)
_INTERNAL_ERROR: Final = ServiceBusFault(500, "amqp:internal-error", "The service was unable to process the request; its log says why.")


class Operation(NamedTuple):
    perform: Callable[[Call], Answer]
    # Rules too are a listener's: the clients' rule managers say that they need no more.
    right: Right = "Listen"
    transactional: bool = False


OPERATIONS: Final[Mapping[str, Operation]] = {
    names.PEEK_MESSAGE: Operation(messages.peek_message),
    names.RECEIVE_BY_SEQUENCE_NUMBER: Operation(messages.receive_by_sequence_number),
    names.UPDATE_DISPOSITION: Operation(messages.update_disposition, transactional=True),
    names.RENEW_LOCK: Operation(messages.renew_lock),
    names.BATCH_DELETE_MESSAGES: Operation(messages.batch_delete_messages),
    names.SCHEDULE_MESSAGE: Operation(scheduling.schedule_message, "Send", transactional=True),
    names.CANCEL_SCHEDULED_MESSAGE: Operation(scheduling.cancel_scheduled_message, "Send"),
    names.RENEW_SESSION_LOCK: Operation(sessions.renew_session_lock),
    names.GET_SESSION_STATE: Operation(sessions.get_session_state),
    names.SET_SESSION_STATE: Operation(sessions.set_session_state),
    names.GET_MESSAGE_SESSIONS: Operation(sessions.get_message_sessions),
    names.ADD_RULE: Operation(rules.add_rule),
    names.REMOVE_RULE: Operation(rules.remove_rule),
    names.ENUMERATE_RULES: Operation(rules.enumerate_rules),
}


def required_right(operation: str) -> Right:
    """What a client must be granted for an operation. For one that there is not, the least, so that it can be told so."""
    found = OPERATIONS.get(operation)
    return "Listen" if found is None else found.right


class Management:
    def __init__(self, namespace: Namespace, compile_rule: RuleCompiler) -> None:
        self._namespace = namespace
        self._compile_rule = compile_rule

    def answer(
        self,
        entity: AnyEntity,
        request: ManagementRequest,
        *,
        holder: Holder,
        associated: Holder | None = None,
        work: UnitOfWork | None = None,
        max_bytes: int,
        page_limit: int | None = None,
    ) -> bytes:
        """The answer to a request at the management node of `entity`; never raises.

        `holder` owns the locks that are taken. `associated` is the link that the request names, None where it names none that is there.
        `work` is the transaction that the request is part of. `max_bytes` is how large a page of messages may be, `page_limit` how
        many messages it may have.
        """
        try:
            try:
                operation, body = self._find(request, work)
                answer = operation.perform(
                    Call(self._namespace, self._compile_rule, entity, body, holder, associated, work, max_bytes, page_limit)
                )
                return encode_response(
                    request.message_id,
                    answer.status,
                    answer.description,
                    answer.condition,
                    answer.body,
                    request.tracking_id,
                    items=answer.items,
                )
            except ServiceBusFault as fault:
                return encode_fault(request.message_id, fault, request.tracking_id)
        except Exception:
            _log.exception("%s at '%s' failed", request.operation[:80], entity.path)
            return encode_fault(request.message_id, _INTERNAL_ERROR, request.tracking_id)

    def _find(self, request: ManagementRequest, work: UnitOfWork | None) -> tuple[Operation, Body]:
        if request.problem is not None:
            raise faults.argument_error(request.problem)
        operation = OPERATIONS.get(request.operation)
        if operation is None:
            raise ServiceBusFault(
                501,
                "amqp:not-implemented",
                f"'{request.operation:.80}' is not an operation of {names.MANAGEMENT_NODE}; there are {', '.join(OPERATIONS)}.",
            )
        name = names.short_name(request.operation)
        if work is not None and not operation.transactional:
            able = " and ".join(names.short_name(each) for each, found in OPERATIONS.items() if found.transactional)
            raise faults.not_allowed(f"{name} cannot be part of a transaction; {able} can.")
        return operation, Body(request.body, f"the body of {name}")
