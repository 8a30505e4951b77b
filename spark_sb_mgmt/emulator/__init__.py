"""An embedded Azure Service Bus: queues, topics and `$management` over real AMQP, with no cloud and no Docker.

    with Emulator.start("conf/emulator.json") as emulator:
        print(emulator.connection_string)

or, as a program: `python -m spark_sb_mgmt.emulator --config conf/emulator.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.clock import Clock, ManualClock
    from spark_sb_mgmt.emulator.control import EmulatorControl
    from spark_sb_mgmt.emulator.embedded import Emulator
    from spark_sb_mgmt.emulator.fault_script import Fault

__all__ = ["Clock", "Emulator", "EmulatorControl", "Fault", "ManualClock"]

_HOMES = {
    "Clock": "clock",
    "Emulator": "embedded",
    "EmulatorControl": "control",
    "Fault": "fault_script",
    "ManualClock": "clock",
}


def __getattr__(name: str) -> Any:
    # Not at the top: the parts of the emulator import this package too, and most of them need no AMQP engine.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
