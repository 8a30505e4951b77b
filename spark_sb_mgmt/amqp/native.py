"""The compiled parts, where they were built: _native.c reads columns, _native_encode.c writes rows, _native_sender.c reads what is sent.

The one rule: they are an option of speed, never of meaning. Where a C compiler was at hand when the package was installed, they are used;
where the package is shipped as plain Python they are not there, and numpy and Python do the same jobs. `SBMGMT_NATIVE=0` in the
environment turns them off.
"""

from __future__ import annotations

import os
from types import ModuleType

_native: ModuleType | None
_native_encode: ModuleType | None
_native_sender: ModuleType | None
try:
    from spark_sb_mgmt.amqp import _native  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native = None
try:
    from spark_sb_mgmt.amqp import _native_encode  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native_encode = None
try:
    from spark_sb_mgmt.amqp import _native_sender  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native_sender = None


def native_module() -> ModuleType | None:
    """The compiled column decoder, or None where it is not there or was turned off."""
    return _native if _is_on() else None


def native_encoder() -> ModuleType | None:
    """The compiled encoder of rows, likewise."""
    return _native_encode if _is_on() else None


def native_sender() -> ModuleType | None:
    """The compiled reader of what senders give, likewise."""
    return _native_sender if _is_on() else None


def _is_on() -> bool:
    return os.environ.get("SBMGMT_NATIVE") != "0"
