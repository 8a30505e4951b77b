"""Management nodes over entities under a clock that a test moves. Requests are written and answers read by proton, which is not ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, Message, int32, symbol, timestamp

from spark_sb_mgmt.emulator.entities import Holder, QueueSettings, UnitOfWork
from spark_sb_mgmt.emulator.management import Management, read_request
from spark_sb_mgmt.emulator.rules import compile_rule
from tests.emulator.entities.broker import START, Broker, subscription, topic

MAX_BYTES = 1024 * 1024
HOLDER = "management"
LOCK_DURATION = 60_000


@dataclass(frozen=True)
class Reply:
    """An answer as an outsider reads it."""

    message: Message
    size: int

    @property
    def status(self) -> int:
        # .NET and Go take no other type of integer.
        status = self.message.properties["statusCode"]
        assert type(status) is int32
        return int(status)

    @property
    def condition(self) -> str | None:
        condition = self.message.properties.get("errorCondition")
        assert condition is None or type(condition) is symbol
        return None if condition is None else str(condition)

    @property
    def said(self) -> tuple[int, str | None]:
        return self.status, self.condition

    @property
    def description(self) -> str:
        description = self.message.properties["statusDescription"]
        assert type(description) is str
        return description

    @property
    def body(self) -> dict[str, Any]:
        body = self.message.body
        assert isinstance(body, dict)
        # proton shows a binary as a view of the message's own memory, which goes when the message goes.
        return {key: bytes(value) if isinstance(value, memoryview) else value for key, value in body.items()}

    @property
    def messages(self) -> list[Message]:
        assert self.status == 200, self.description
        return [decoded(entry["message"]) for entry in self.body["messages"]]

    @property
    def texts(self) -> list[str]:
        """The bodies of the messages."""
        return [bytes(message.body).decode() for message in self.messages]

    @property
    def numbers(self) -> list[int]:
        return [annotation(message, "x-opt-sequence-number") for message in self.messages]


def decoded(raw: Any) -> Message:
    message = Message()
    message.decode(bytes(raw))
    return message


def annotation(message: Message, name: str) -> Any:
    return message.annotations[symbol(name)]


def wire_name(operation: str) -> str:
    return f"com.microsoft:{operation}"


def request(operation: str, body: Any, **properties: Any) -> bytes:
    message = Message(id="request-1", reply_to="here", properties={"operation": wire_name(operation), **properties}, body=body)
    return bytes(message.encode())


class Service:
    """`q`: a queue. `sessions`: one with sessions. `partitioned`. `small`: takes messages up to 2000 bytes. `t`: a topic with
    subscriptions `all` and `other`."""

    def __init__(self, **q: Any) -> None:
        self.broker = Broker(
            {
                "sessions": QueueSettings(requires_session=True),
                "partitioned": QueueSettings(enable_partitioning=True),
                "small": QueueSettings(max_message_size=2000),
            },
            {"t": topic(subscription("all"), subscription("other"))},
            **q,
        )
        self.management = Management(self.broker.namespace, compile_rule)

    def answer(
        self,
        raw: bytes,
        *,
        at: str = "q",
        associated: Holder | None = None,
        work: UnitOfWork | None = None,
        max_bytes: int = MAX_BYTES,
        page_limit: int | None = None,
    ) -> Reply:
        answer = self.management.answer(
            self.broker.namespace.resolve(at),
            read_request(raw),
            holder=HOLDER,
            associated=associated,
            work=work,
            max_bytes=max_bytes,
            page_limit=page_limit,
        )
        return Reply(decoded(answer), len(answer))

    def ask(self, operation: str, body: Any, **given: Any) -> Reply:
        return self.answer(request(operation, body), **given)

    # Short ways

    def peek(self, start: int = 0, count: int = 100, *, body: dict[str, Any] | None = None, **given: Any) -> Reply:
        return self.ask("peek-message", {"from-sequence-number": start, "message-count": int32(count), **(body or {})}, **given)

    def locked(self, *bodies: str, at: str = "q", holder: Holder = "receiver", **given: Any) -> list[UUID]:
        """Send messages and lock them; their tokens."""
        self.broker.send(*bodies, to=at, **given)
        found = [message.lock_token for message in self.broker.queue(at).receive(holder, len(bodies))]
        assert None not in found
        return [token for token in found if token is not None]

    def held_session(self, session_id: str = "s", holder: Holder = "link") -> None:
        """Accept a session of `sessions`."""
        assert self.broker.queue("sessions").accept_session(holder, session_id) is not None


def longs(*numbers: int) -> Array:
    return Array(UNDESCRIBED, Data.LONG, *numbers)


def uuids(*tokens: UUID) -> Array:
    return Array(UNDESCRIBED, Data.UUID, *tokens)


def scheduled(text: str = "later", *, at: int = START + 3_600_000, session: str | None = None, **given: Any) -> dict[str, Any]:
    """An entry of schedule-message."""
    message = Message(
        id=f"id of {text[:20]}",
        body=text.encode(),
        inferred=True,
        annotations={symbol("x-opt-scheduled-enqueue-time"): timestamp(at)},
        **given,
    )
    if session is not None:
        message.group_id = session
    entry: dict[str, Any] = {"message-id": message.id, "message": bytes(message.encode())}
    if session is not None:
        entry["session-id"] = session
    return entry
