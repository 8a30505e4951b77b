"""The compiled parts (_native.c, _native_sender.c), where they were built.

The one rule: they are an option of speed, never of meaning. Where a C compiler was at hand when the package was installed, they are used;
where the package is shipped as plain Python they are not there, and numpy and Python do the same jobs. `SBMGMT_NATIVE=0` in the
environment turns them off.
"""

from __future__ import annotations

import os
from types import ModuleType

_native: ModuleType | None
try:
    from spark_sb_mgmt.amqp import _native  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native = None

_native_sender: ModuleType | None
try:
    from spark_sb_mgmt.amqp import _native_sender  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native_sender = None


def native_module() -> ModuleType | None:
    """The compiled column decoder, or None where it is not there or was turned off."""
    return None if os.environ.get("SBMGMT_NATIVE") == "0" else _native


def native_sender() -> ModuleType | None:
    """The compiled reader of what senders give, or None where it is not there or was turned off."""
    return None if os.environ.get("SBMGMT_NATIVE") == "0" else _native_sender
