"""Faults on purpose: what the emulator does wrong when it is told to, so that reliability can be tested.

    emulator.faults.add(Fault("throttle", operation="peek-message", count=3, seconds=0.1))
    emulator.faults.add(Fault("drop-connection", operation="schedule-message", when="after"))

The one rule: a fault is a value that says when it applies; what it does to a request is done by the server, in one place.

Operations are those of the management node by their short names (`peek-message`), `put-token`, and on links of entities `send` and
`settle`. A fault that names none applies to all of them; one that names no entity to every entity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from spark_sb_mgmt.emulator.entities.addresses import parse_address
from spark_sb_mgmt.emulator.entities.faults import ServiceBusFault
from spark_sb_mgmt.errors import SbMgmtError

Action = Literal[
    # 503 server-busy with a wait of `seconds` in its text; the operation does not happen.
    "throttle",
    # `status` and `condition`; the operation does not happen.
    "fail",
    # Detach the link by force, or close the socket without a word: `when` before or after the operation took effect.
    "drop-link",
    "drop-connection",
    # Wait `seconds`: before the operation takes effect, or, the answer being late, after it.
    "delay",
    # The operation happens, the answer is never sent.
    "lose-reply",
    # A peek answers with at most `limit` messages.
    "cap-page",
    # Answers are gathered until there are `limit` of them, or `seconds` have passed, and leave in reverse order.
    "reorder",
    # The answer is cut off in the middle.
    "corrupt",
    # New connections are closed as they come.
    "refuse-connections",
    # Links on which nothing happens for `seconds` are detached by force.
    "detach-idle",
]
When = Literal["before", "after"]
# Faults that no request triggers: they hold until they are removed, or for `count` times.
STANDING = ("refuse-connections", "detach-idle")
_DEFAULT_SECONDS: Mapping[str, float] = {"throttle": 1.0, "delay": 0.1, "reorder": 1.0, "detach-idle": 1.0}


MAX_SECONDS = 86_400.0
_TYPES: Mapping[str, tuple[type, ...]] = {
    "operation": (str, type(None)),
    "entity": (str, type(None)),
    "count": (int, type(None)),
    "skip": (int,),
    "seconds": (int, float, type(None)),
    "limit": (int,),
    "status": (int,),
    "condition": (str,),
}


class FaultError(SbMgmtError):
    """A fault that cannot be scripted as it was said."""


@dataclass(frozen=True)
class Fault:
    """`count`: how many requests it hits, None for all until it is removed. `skip`: how many it lets pass first."""

    action: Action
    operation: str | None = None
    entity: str | None = None
    count: int | None = 1
    skip: int = 0
    when: When = "before"
    seconds: float | None = None
    limit: int = 1
    status: int = 500
    condition: str = "amqp:internal-error"

    def __post_init__(self) -> None:
        for name, allowed in (("action", get_args(Action)), ("when", get_args(When))):
            if getattr(self, name) not in allowed:
                raise FaultError(f"`{name}` of a fault is one of {', '.join(allowed)}, not {getattr(self, name)!r:.80}.")
        # It may come from another process, as JSON.
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise FaultError(f"`{name}` of a fault cannot be {value!r:.80}, a {type(value).__name__}.")
        if self.count is not None and self.count < 1:
            raise FaultError(f"`count` of a fault is at least 1, or None for ever, not {self.count}.")
        if self.skip < 0 or self.limit < 1:
            raise FaultError("`skip` of a fault is not negative, and `limit` is at least 1.")
        if self.seconds is not None and not 0 <= self.seconds <= MAX_SECONDS:
            raise FaultError(f"`seconds` of a fault are from 0 to {MAX_SECONDS:g}, not {self.seconds}.")
        if not 100 <= self.status < 1000 or not self.condition.isascii():
            raise FaultError("`status` of a fault has three digits, and `condition` is ASCII.")

    @property
    def wait(self) -> float:
        return _DEFAULT_SECONDS.get(self.action, 0.0) if self.seconds is None else self.seconds

    def applies_to(self, operation: str, entity: str) -> bool:
        return (self.operation is None or self.operation.removeprefix("com.microsoft:") == operation) and (
            self.entity is None or parse_address(self.entity).key == entity.lower()
        )

    def refusal(self) -> ServiceBusFault | None:
        """What a request is answered with instead of being done, if that is what this fault does."""
        if self.action == "throttle":
            return ServiceBusFault(
                503,
                "com.microsoft:server-busy",
                f"The request was terminated because the namespace is being throttled. Please wait {self.wait:g} seconds and try again.",
            )
        if self.action == "fail":
            return ServiceBusFault(self.status, self.condition, "The request failed because a fault was scripted.")
        return None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Fault:
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(document) - known)
        if unknown:
            raise FaultError(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(known))}.")
        try:
            return cls(**document)
        except TypeError as error:
            raise FaultError(f"a fault cannot be made of {dict(document)!r:.200}: {error}.") from error


@dataclass(frozen=True)
class Plan:
    """What is done wrong to one request."""

    refusal: ServiceBusFault | None = None
    # "drop-link" or "drop-connection".
    drop_before: Action | None = None
    drop_after: Action | None = None
    lose_reply: bool = False
    delay_before: float = 0.0
    delay_after: float = 0.0
    page_limit: int | None = None
    corrupt: bool = False
    reorder: Fault | None = None

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> Plan:
        given: dict[str, Any] = {}
        for fault in faults:
            if (refusal := fault.refusal()) is not None:
                given["refusal"] = refusal
            elif fault.action in ("drop-link", "drop-connection"):
                given[f"drop_{fault.when}"] = fault.action
            elif fault.action == "delay":
                given[f"delay_{fault.when}"] = given.get(f"delay_{fault.when}", 0.0) + fault.wait
            elif fault.action == "lose-reply":
                given["lose_reply"] = True
            elif fault.action == "cap-page":
                given["page_limit"] = fault.limit
            elif fault.action == "corrupt":
                given["corrupt"] = True
            elif fault.action == "reorder":
                given["reorder"] = fault
        return cls(**given)


# Nothing is done wrong, as nearly always.
NO_FAULTS = Plan()


class _Active:
    __slots__ = ("fault", "hits", "key", "passed")

    def __init__(self, key: int, fault: Fault) -> None:
        self.key = key
        self.fault = fault
        self.passed = 0
        self.hits = 0

    @property
    def is_spent(self) -> bool:
        return self.fault.count is not None and self.hits >= self.fault.count

    def hit(self) -> bool:
        if self.passed < self.fault.skip:
            self.passed += 1
            return False
        self.hits += 1
        return True


class FaultScript:
    """The faults that are set, in the order in which they were."""

    def __init__(self) -> None:
        self._active: dict[int, _Active] = {}
        self._keys = 0
        self._hits: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._active)

    def add(self, fault: Fault) -> int:
        """A key by which it can be removed and its hits be asked for."""
        self._keys += 1
        self._active[self._keys] = _Active(self._keys, fault)
        self._hits[self._keys] = 0
        return self._keys

    def remove(self, key: int) -> None:
        """It applies no more; removing what is spent is harmless."""
        self._active.pop(key, None)

    def clear(self) -> None:
        self._active.clear()

    def hits(self, key: int) -> int:
        """How often a fault has struck."""
        return self._hits[key]

    def plan(self, operation: str, entity: str) -> Plan:
        """What the faults that strike this request make of it, each of them counted."""
        if not self._active:
            return NO_FAULTS
        return Plan.of(
            self._strike(active)
            for active in list(self._active.values())
            if active.fault.action not in STANDING and active.fault.applies_to(operation, entity) and active.hit()
        )

    def take_refusal(self) -> bool:
        """Whether a new connection is refused."""
        refusing = [key for key, active in self._active.items() if active.fault.action == "refuse-connections"]
        return any(self.strikes(key) for key in refusing)

    def idle_limits(self) -> Iterator[tuple[int, Fault]]:
        """The faults that detach idle links; ask at each link by `strikes`."""
        return iter([(key, active.fault) for key, active in self._active.items() if active.fault.action == "detach-idle"])

    def strikes(self, key: int) -> bool:
        """Whether a fault that applies does strike this time; it is counted."""
        active = self._active.get(key)
        if active is None or not active.hit():
            return False
        self._strike(active)
        return True

    def _strike(self, active: _Active) -> Fault:
        self._hits[active.key] += 1
        if active.is_spent:
            self._active.pop(active.key, None)
        return active.fault


def corrupted(answer: bytes) -> bytes:
    """The first half: its correlation-id can still be read, its body not."""
    return answer[: len(answer) // 2]
