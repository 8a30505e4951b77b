"""The sample shop: what it says of itself is what the official SDK leaves on the service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from azure.servicebus import ServiceBusClient

from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import notebook, shop
from spark_sb_mgmt.sample.notebook import service_bus
from spark_sb_mgmt.sample.shop import Day
from tests.docs.conftest import DAY


class LocalSpark:
    """What is asked of a session here."""

    conf: Mapping[str, str] = MappingProxyType({"spark.master": "local[2]"})


class Secrets:
    """`dbutils`, as far as it is used."""

    def __init__(self, scopes: dict[str, dict[str, str]]) -> None:
        self._scopes = scopes
        self.secrets = self

    def listScopes(self) -> list[Secrets]:  # noqa: N802 - Databricks' name
        return [Scope(name) for name in self._scopes]  # type: ignore[misc]

    def get(self, scope: str, key: str) -> str:
        return self._scopes[scope][key]


class Scope:
    def __init__(self, name: str) -> None:
        self.name = name


def test_a_day_is_the_same_every_time_and_every_order_has_one_fate() -> None:
    assert Day().orders() == Day().orders()
    assert sum(DAY.fates().values()) == len(DAY.orders()) == 505
    assert set(DAY.reasons) == {shop.ADDRESS_INVALID, shop.CREDIT_EXCEEDED, shop.EXPIRED}


def test_the_service_holds_what_the_day_says(filled: Emulator) -> None:
    counts = filled.counts(shop.ORDERS)
    assert {state: counts[state] for state in DAY.states} == DAY.states
    with (
        ServiceBusClient.from_connection_string(filled.connection_string) as sdk,
        sdk.get_queue_receiver(shop.ORDERS, sub_queue="deadletter") as receiver,  # type: ignore[arg-type]
    ):
        reasons = [message.dead_letter_reason for message in receiver.peek_messages(250)]
    assert {reason: reasons.count(reason) for reason in set(reasons)} == DAY.reasons


def test_baskets_have_their_states_and_the_rules_choose_their_events(filled: Emulator) -> None:
    with (
        ServiceBusClient.from_connection_string(filled.connection_string) as sdk,
        sdk.get_queue_receiver(shop.BASKETS, session_id="customer-02") as receiver,
    ):
        assert json.loads(receiver.session.get_state()) == shop.BASKET_STATES["customer-02"]  # type: ignore[union-attr]
    orders = DAY.orders()[:120]
    chosen = {name: filled.counts(f"{shop.EVENTS}/Subscriptions/{name}")["active"] for name in (shop.AUDIT, shop.LARGE, shop.EU)}
    assert chosen == {
        shop.AUDIT: 120,
        shop.LARGE: sum(order.total >= 500 for order in orders),
        shop.EU: sum(order.region == "eu" for order in orders),
    }


def test_a_notebook_without_a_connection_string_has_a_shop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(notebook.CONNECTION_STRING, raising=False)
    day = Day(handled=10, waiting=5, late=0, scheduled=2)
    bus = service_bus(LocalSpark(), day=day)
    assert bus.emulator is not None
    with bus.emulator as emulator:
        assert emulator.counts(shop.ORDERS)["active"] == 5
        monkeypatch.setenv("SBMGMT_QUEUE", "mine")
        assert bus.name("SBMGMT_QUEUE", shop.ORDERS) == shop.ORDERS
        assert "SAS_KEY_VALUE" not in repr(bus)


def test_a_connection_string_of_the_environment_comes_before_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(notebook.CONNECTION_STRING, "Endpoint=sb://theirs")
    monkeypatch.setenv("SBMGMT_QUEUE", "mine")
    bus = service_bus(LocalSpark(), Secrets({"sbmgmt": {"connection-string": "Endpoint=sb://secret"}}))
    assert (bus.connection_string, bus.day, bus.emulator) == ("Endpoint=sb://theirs", None, None)
    assert bus.name("SBMGMT_QUEUE", shop.ORDERS) == "mine"
    assert "theirs" not in repr(bus)


def test_a_secret_of_databricks_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(notebook.CONNECTION_STRING, raising=False)
    bus = service_bus(LocalSpark(), Secrets({"other": {}, "sbmgmt": {"connection-string": "Endpoint=sb://secret"}}))
    assert (bus.connection_string, bus.emulator) == ("Endpoint=sb://secret", None)
