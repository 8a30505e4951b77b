"""Nodes that answer requests, `$management` of every entity and `$cbs`: the link that requests come in on, and the one answers leave by.

The one rule: an answer goes to a link of the same session (wire-facts.md section 3.3). Clients name no address to reply to, or one that
others name too; nothing is ever routed by address across sessions.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from proton import Delivery
from proton import Link as ProtonLink

from spark_sb_mgmt.amqp.message import AmqpValue, Message, Properties, decode_message, encode_message
from spark_sb_mgmt.amqp.types import Int, Map, Symbol, Value
from spark_sb_mgmt.emulator.entities import AnyEntity, Queue, ServiceBusFault, UnitOfWork
from spark_sb_mgmt.emulator.entities.faults import argument_error, entity_not_found, resource_limit_exceeded
from spark_sb_mgmt.emulator.fault_script import Plan, corrupted
from spark_sb_mgmt.emulator.management import Management, ManagementRequest, encode_fault, read_request, required_right
from spark_sb_mgmt.emulator.management.envelope import is_utf8
from spark_sb_mgmt.emulator.server.link import IncomingLink, Link, put_delivery
from spark_sb_mgmt.emulator.server.loop import Callback
from spark_sb_mgmt.operations import names

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.config import Right
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

# What an answer may hold: a page of messages ends where it would be passed.
MAX_ANSWER: Final = 1024 * 1024
# Bytes of requests that wait because the client takes no answers.
MAX_WAITING: Final = 8 * 1024 * 1024


class Request(Protocol):
    """A request as far as the link must know it."""

    @property
    def message_id(self) -> Value: ...
    @property
    def reply_to(self) -> str | None: ...
    @property
    def server_timeout_ms(self) -> int | None: ...


R = TypeVar("R", bound=Request)


class Node(Protocol[R]):
    """What stands at an address and answers. Nothing that a client sends makes it raise anything but a fault from `read`."""

    # Requests and answers of one node have the same key.
    key: str
    # For scripted faults.
    entity: str

    def read(self, raw: bytes) -> R: ...
    def operation(self, request: R) -> str: ...
    def answer(self, request: R, work: UnitOfWork | None, page_limit: int | None) -> bytes: ...
    def refuse(self, request: R, fault: ServiceBusFault) -> bytes: ...


class ReplyLink(Link):
    """The client receives a node's answers here."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, key: str, *rights: Right) -> None:
        super().__init__(connection, link, address, *rights)
        self.key = key
        self._answers: deque[bytes] = deque()
        self._held: list[bytes] = []
        self._sent = 0

    @property
    def has_room(self) -> bool:
        return not self._answers and not self.connection.is_congested(self)

    def open(self) -> None:
        super().open()
        for sibling in list(self.connection.siblings(self)):
            sibling.pump()

    def send(self, answer: bytes) -> None:
        if self.is_gone:
            return
        self._answers.append(answer)
        self.pump()

    def send_out_of_order(self, answer: bytes, limit: int, seconds: float) -> None:
        """Hold answers until there are `limit` or that long has passed, then send them the other way round."""
        self._held.append(answer)
        if len(self._held) >= limit:
            self._release()
        elif len(self._held) == 1:
            self.broker.loop.call_later(seconds, lambda: self.connection.guard(self._release))

    def _release(self) -> None:
        held, self._held = self._held, []
        for answer in reversed(held):
            self.send(answer)

    def pump(self) -> None:
        if self.is_gone:
            return
        link = self.link
        while self._answers and link.credit > 0:
            self._sent += 1
            put_delivery(link, self._sent.to_bytes(8, "big"), self._answers.popleft()).settle()
            self.broker.touch(self.connection)
        if link.drain_mode and not self._answers:
            link.drained()
            self.broker.touch(self.connection)
        if not self._answers:
            for sibling in list(self.connection.siblings(self)):
                if isinstance(sibling, RequestLink):
                    sibling.pump()


class RequestLink(IncomingLink, Generic[R]):
    """The client sends requests to a node here. They are answered as far as the client takes the answers."""

    def __init__(self, connection: AmqpConnection, link: ProtonLink, address: str, node: Node[R], *rights: Right) -> None:
        super().__init__(connection, link, address, *rights, max_message_size=MAX_ANSWER)
        self._node = node
        self._waiting: deque[tuple[bytes, Delivery]] = deque()
        self._waiting_bytes = 0
        self._pumping = False

    def message(self, delivery: Delivery, raw: bytes, message_format: int) -> None:
        if self._waiting and self._waiting_bytes + len(raw) > MAX_WAITING:
            self.reject(delivery, resource_limit_exceeded("Too many requests wait: take the answers to earlier ones first."))
            return
        self._waiting.append((raw, delivery))
        self._waiting_bytes += len(raw)
        self.pump()

    def pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._waiting and not self.is_gone:
                raw, delivery = self._waiting[0]
                try:
                    request = self._node.read(raw)
                except ServiceBusFault as fault:
                    # No answer can say whose it is, so it is said as the outcome.
                    self._take()
                    self.reject(delivery, fault)
                    continue
                reply = self._reply_link(request.reply_to)
                if reply is None or not reply.has_room:
                    return
                self._take()
                self._handle(request, delivery, reply)
        finally:
            self._pumping = False
            if not self.is_gone:
                self.replenish(len(self._waiting))

    def _take(self) -> None:
        raw, _ = self._waiting.popleft()
        self._waiting_bytes -= len(raw)

    def _reply_link(self, reply_to: str | None) -> ReplyLink | None:
        candidates = [link for link in self.connection.siblings(self) if isinstance(link, ReplyLink) and link.key == self._node.key]
        if reply_to is not None:
            for link in candidates:
                if reply_to in (link.link.remote_target.address, link.link.name):
                    return link
        return candidates[-1] if candidates else None

    def _handle(self, request: R, delivery: Delivery, reply: ReplyLink) -> None:
        operation = self._node.operation(request)
        self.broker.count_request(operation)
        plan = self.broker.faults.plan(operation, self._node.entity)
        try:
            work = self.work(delivery)
        except ServiceBusFault as fault:
            self.accept(delivery)
            reply.send(self._node.refuse(request, fault))
            return
        self.accept(delivery)

        def act() -> Callback:
            answer = self._node.answer(request, work, plan.page_limit)
            return lambda: _send(reply, plan, answer)

        timeout = request.server_timeout_ms
        self.broker.perform(
            self, plan, act, lambda fault: reply.send(self._node.refuse(request, fault)), None if timeout is None else timeout / 1000
        )


def _send(reply: ReplyLink, plan: Plan, answer: bytes) -> None:
    if plan.corrupt:
        answer = corrupted(answer)
    if plan.reorder is not None:
        reply.send_out_of_order(answer, plan.reorder.limit, plan.reorder.wait)
    else:
        reply.send(answer)


class ManagementNode:
    """`<entity>/$management`."""

    def __init__(self, connection: AmqpConnection, entity: AnyEntity, address: str) -> None:
        self._connection = connection
        self._entity = entity
        self._address = address
        self._management: Management = connection.broker.management
        self.key = f"{entity.path.lower()}/{names.MANAGEMENT_NODE}"
        self.entity = entity.path

    def read(self, raw: bytes) -> ManagementRequest:
        return read_request(raw)

    def operation(self, request: ManagementRequest) -> str:
        return str(request.operation).removeprefix("com.microsoft:")

    def answer(self, request: ManagementRequest, work: UnitOfWork | None, page_limit: int | None) -> bytes:
        broker = self._connection.broker
        try:
            self._connection.authorization.check(self._address, broker.now(), required_right(request.operation))
        except ServiceBusFault as fault:
            return self.refuse(request, fault)
        associated = None
        if isinstance(self._entity, Queue) and request.associated_link_name is not None:
            link = self._connection.find_link(request.associated_link_name)
            associated = link if getattr(link, "queue", None) is self._entity else None
        # Locks of deferred messages belong to nobody's link: they last until they are settled or expire, whoever goes.
        return self._management.answer(
            self._entity,
            request,
            holder="management",
            associated=associated,
            work=work,
            max_bytes=MAX_ANSWER,
            page_limit=page_limit,
        )

    def refuse(self, request: ManagementRequest, fault: ServiceBusFault) -> bytes:
        return encode_fault(request.message_id, fault, request.tracking_id)


class CbsRequest:
    server_timeout_ms = None

    def __init__(self, request: ManagementRequest, message: Message) -> None:
        self.message_id = request.message_id
        self.reply_to = request.reply_to
        self.operation = request.operation
        given = message.application_properties or Map()
        body = message.body.value if isinstance(message.body, AmqpValue) else None
        # None where they are not what they should be.
        self.audience = _text(given.get(names.TOKEN_NAME))
        self.token = _text(body)


class CbsNode:
    """`$cbs`: a client shows a token, the connection has its rights from then on (wire-facts.md section 3.3)."""

    key = entity = names.CBS_NODE

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection

    def read(self, raw: bytes) -> CbsRequest:
        return CbsRequest(read_request(raw), decode_message(raw))

    def operation(self, request: CbsRequest) -> str:
        return request.operation

    def answer(self, request: CbsRequest, work: UnitOfWork | None, page_limit: int | None) -> bytes:
        try:
            self._put_token(request)
        except ServiceBusFault as fault:
            return self.refuse(request, fault)
        return _cbs_answer(request, 202, "Accepted")

    def _put_token(self, request: CbsRequest) -> None:
        if request.operation != names.PUT_TOKEN:
            raise ServiceBusFault(501, "amqp:not-implemented", f"'{request.operation:.64}' is no operation of $cbs; put-token is.")
        # By what it looks like: some clients call every token a JSON web token.
        if request.audience is None or request.token is None:
            raise argument_error("put-token has the audience in `name` and the token as a string in its body.")
        broker = self._connection.broker
        grant = broker.policies.verify_token(request.token, request.audience, broker.now())
        if grant.path and not any(grant.covers(entity.path.lower()) for entity in broker.namespace):
            # Told here and not at the attach: azure-servicebus' own tests expect a failed token for an entity that is not there.
            raise entity_not_found(grant.path)
        self._connection.authorization.add(grant)
        self._connection.watch_tokens()

    def refuse(self, request: CbsRequest, fault: ServiceBusFault) -> bytes:
        return _cbs_answer(request, fault.status, fault.description, fault.condition)


def _text(value: Value) -> str | None:
    return str(value) if isinstance(value, str) and is_utf8(value) else None


def _cbs_answer(request: CbsRequest, status: int, description: str, condition: str | None = None) -> bytes:
    properties: list[tuple[Value, Value]] = [(names.CBS_STATUS_CODE, Int(status)), (names.CBS_STATUS_DESCRIPTION, description)]
    if condition is not None:
        properties.append((names.LEGACY_ERROR_CONDITION, Symbol(condition)))
    return encode_message(
        Message(
            properties=Properties(correlation_id=request.message_id),
            application_properties=Map(properties),
            body=AmqpValue(None),
        )
    )
