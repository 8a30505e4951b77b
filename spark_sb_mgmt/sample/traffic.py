"""The shop's traffic, made by the official SDK as any application would: orders come in, a worker handles some, others go wrong.

The one rule: nothing here is known to the connector; what it finds was put there by azure-servicebus.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender

from spark_sb_mgmt.emulator import EmulatorControl
from spark_sb_mgmt.sample import shop
from spark_sb_mgmt.sample.shop import Day, Order

_AT_ONCE: Final = 500
_EVENTS: Final = 120
# What is late waits so long; it must have been sent by then.
_LATE_LIFE: Final = timedelta(seconds=1)
_DEADLINE_S: Final = 60.0

Tell = Callable[[str], None]


class TrafficError(Exception):
    """The service did not take or give what it should have."""


def fill(connection_string: str, day: Day, tell: Tell = lambda what: None) -> None:
    """One day in the shop, on an emulator with `shop.CONFIG`. The parts are independent, so they run side by side."""
    parts = (_orders, _scheduled, _baskets, _events)
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(part, connection_string, day, tell) for part in parts]:
            done.result()
    _wait_for_the_late(connection_string, day)


def message(order: Order, time_to_live: timedelta | None = None) -> ServiceBusMessage:
    return ServiceBusMessage(
        order.body,
        message_id=order.message_id,
        subject="order.created",
        content_type="application/json",
        correlation_id=order.customer,
        application_properties={"country": order.country, "region": order.region, "total": order.total},
        time_to_live=time_to_live,
    )


def _orders(connection_string: str, day: Day, tell: Tell) -> None:
    orders = day.orders()
    late = day.handled + day.waiting
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(shop.ORDERS) as sender:
        _send(sender, [message(order) for order in orders[: day.handled]])
        with client.get_queue_receiver(shop.ORDERS) as receiver:
            _work(receiver, day, {order.message_id: order for order in orders[: day.handled]})
        tell(f"{day.handled:,} orders handled: done, deferred until they are paid, or dead-lettered with a reason")
        _send(sender, [message(order) for order in orders[day.handled : late]])
        _send(sender, [message(order, _LATE_LIFE) for order in orders[late:]])
    tell(f"{day.waiting:,} more orders waiting, and {day.late} that waited too long")


def _work(receiver: ServiceBusReceiver, day: Day, orders: dict[str, Order]) -> None:
    left = dict(orders)
    while left:
        received = receiver.receive_messages(_AT_ONCE, max_wait_time=5)
        if not received:
            raise TrafficError(f"{len(left)} orders were sent and did not come")
        for one in received:
            order = left.pop(str(one.message_id))
            what, reason = day.fate(order)
            if what == shop.DEFERRED:
                receiver.defer_message(one)
            elif what == shop.DEAD:
                receiver.dead_letter_message(one, reason=reason, error_description=_description(order, reason))
            else:
                receiver.complete_message(one)


def _description(order: Order, reason: str | None) -> str:
    if reason == shop.ADDRESS_INVALID:
        return f"{order.message_id} has no street"
    return f"{order.customer} may owe {shop.CREDIT_LIMIT:.0f}, {order.message_id} is {order.total:.2f}"


def _scheduled(connection_string: str, day: Day, tell: Tell) -> None:
    tomorrow = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=1)
    invoices = [
        ServiceBusMessage(json.dumps({"invoice": number}), message_id=f"invoice-{number:04}", subject="invoice.due")
        for number in range(day.scheduled)
    ]
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(shop.ORDERS) as sender:
        sender.schedule_messages(invoices, tomorrow)
    tell(f"{day.scheduled} invoices scheduled for tomorrow")


def _baskets(connection_string: str, day: Day, tell: Tell) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(shop.BASKETS) as sender:
            for customer in shop.BASKET_CUSTOMERS:
                _send(sender, [ServiceBusMessage(json.dumps({"item": item}), session_id=customer) for item in range(3)])
        for customer, state in shop.BASKET_STATES.items():
            with client.get_queue_receiver(shop.BASKETS, session_id=customer) as receiver:
                receiver.session.set_state(json.dumps(state))
    tell(f"{len(shop.BASKET_CUSTOMERS)} baskets, each a session, {len(shop.BASKET_STATES)} with a state")


def _events(connection_string: str, day: Day, tell: Tell) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_topic_sender(shop.EVENTS) as sender:
        _send(sender, [message(order) for order in day.orders()[:_EVENTS]])
    tell(f"{_EVENTS} events for {shop.AUDIT}, {shop.LARGE} and {shop.EU} to choose from by their rules")


def _send(sender: ServiceBusSender, messages: Sequence[ServiceBusMessage]) -> None:
    for chunk in _chunks(messages):
        sender.send_messages(list(chunk))


def _chunks(messages: Sequence[ServiceBusMessage]) -> Iterator[Sequence[ServiceBusMessage]]:
    return (messages[at : at + _AT_ONCE] for at in range(0, len(messages), _AT_ONCE))


def _wait_for_the_late(connection_string: str, day: Day) -> None:
    control, end = EmulatorControl.connect(connection_string), time.monotonic() + _DEADLINE_S
    wanted = sum(day.reasons.values())
    while (found := control.counts(shop.DEAD_LETTERS)["active"]) != wanted:
        if time.monotonic() > end:
            raise TrafficError(f"{found} dead letters, and there must be {wanted}")
        time.sleep(0.05)
