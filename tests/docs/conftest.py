"""The sample shop, filled once for all who only look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import shop, traffic
from spark_sb_mgmt.sample.shop import Day

DAY = Day(handled=200, waiting=300, late=5, scheduled=20)


@pytest.fixture(scope="session")
def filled() -> Iterator[Emulator]:
    """Whoever changes something here says so and leaves the counts of `DAY` as they are."""
    with Emulator.start(shop.CONFIG) as emulator:
        traffic.fill(emulator.connection_string, DAY)
        yield emulator
