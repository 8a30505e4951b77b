"""The shop: which entities it has, what its orders are, and what becomes of each.

The one rule: pure and repeatable. The same orders every time, and what becomes of an order is told by the order, so that whoever counts
messages afterwards knows what must come out without asking the service.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

ORDERS: Final = "orders"
DEAD_LETTERS: Final = f"{ORDERS}/$DeadLetterQueue"
BASKETS: Final = "baskets"
EVENTS: Final = "events"
AUDIT, LARGE, EU = "audit", "large", "eu"

CREDIT_LIMIT: Final = 400.0
ADDRESS_INVALID: Final = "AddressInvalid"
CREDIT_EXCEEDED: Final = "CreditLimitExceeded"
# What the service itself writes.
EXPIRED: Final = "TTLExpiredException"
COMPLETED, DEFERRED, DEAD, WAITING, LATE = "completed", "deferred", "dead", "waiting", "expired"

COUNTRIES: Final = ("DE", "FR", "NL", "PL", "SE", "US")
EU_COUNTRIES: Final = COUNTRIES[:-1]
# Customers with a basket, and what the shop has noted of some of them.
BASKET_STATES: Final = {"customer-01": {"step": "payment"}, "customer-02": {"step": "address"}, "customer-03": {"step": "payment"}}
BASKET_CUSTOMERS: Final = tuple(f"customer-{number:02}" for number in range(1, 9))

CONFIG: Final[dict[str, Any]] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "shop",
                "Queues": [
                    {"Name": ORDERS, "Properties": {"DeadLetteringOnMessageExpiration": True, "LockDuration": "PT5M"}},
                    {"Name": BASKETS, "Properties": {"RequiresSession": True}},
                ],
                "Topics": [
                    {
                        "Name": EVENTS,
                        "Subscriptions": [
                            {"Name": AUDIT},
                            {
                                "Name": LARGE,
                                "Rules": [
                                    {
                                        "Name": "at-least-500",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "total >= 500"},
                                            "Action": {"SqlExpression": "SET priority = 'high'"},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": EU,
                                "Rules": [
                                    {
                                        "Name": "json-of-the-eu",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"ContentType": "application/json", "Properties": {"region": "eu"}},
                                        },
                                    }
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    }
}


@dataclass(frozen=True)
class Order:
    """An order as it came in."""

    number: int
    customer: str
    country: str
    total: float
    payment: str
    street: str | None

    @property
    def message_id(self) -> str:
        return f"order-{self.number:05}"

    @property
    def region(self) -> str:
        return "eu" if self.country in EU_COUNTRIES else "us"

    @property
    def body(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Day:
    """How much there is to do in the shop. The worker takes the first `handled` orders, the others wait in the queue; `late` orders wait
    too long."""

    handled: int = 600
    waiting: int = 4_000
    late: int = 40
    scheduled: int = 250

    def orders(self) -> list[Order]:
        """Those that are handled first, then those that wait, then the late ones."""
        dice = random.Random(1)
        return [_order(number, dice) for number in range(1, self.handled + self.waiting + self.late + 1)]

    def fate(self, order: Order) -> tuple[str, str | None]:
        """What becomes of an order of this day, and the reason of a dead letter."""
        if order.number > self.handled + self.waiting:
            return LATE, EXPIRED
        if order.number > self.handled:
            return WAITING, None
        if order.payment == "pending":
            return DEFERRED, None
        if order.street is None:
            return DEAD, ADDRESS_INVALID
        if order.total > CREDIT_LIMIT:
            return DEAD, CREDIT_EXCEEDED
        return COMPLETED, None

    def fates(self) -> Counter[str]:
        return Counter(self.fate(order)[0] for order in self.orders())

    @property
    def states(self) -> dict[str, int]:
        """Messages in the queue of orders, by state."""
        fates = self.fates()
        return {"active": fates[WAITING], "deferred": fates[DEFERRED], "scheduled": self.scheduled}

    @property
    def reasons(self) -> dict[str, int]:
        """Dead letters, by reason."""
        return dict(Counter(reason for order in self.orders() if (reason := self.fate(order)[1]) is not None))


def _order(number: int, dice: random.Random) -> Order:
    return Order(
        number=number,
        customer=f"customer-{dice.randrange(1, 90):02}",
        country=dice.choices(COUNTRIES, (30, 20, 18, 12, 8, 12))[0],
        total=round(dice.lognormvariate(4.6, 1.0), 2),
        payment="pending" if dice.random() < 0.2 else "card",
        street=None if dice.random() < 0.12 else f"Market Street {dice.randrange(1, 200)}",
    )
