"""The compiled part (_native.c), where it was built.

The one rule: it is an option of speed, never of meaning. Where a C compiler was at hand when the package was installed, it is used;
where the package is shipped as plain Python it is not there, and numpy does the same job. `SBMGMT_NATIVE=0` in the environment turns
it off.
"""

from __future__ import annotations

import os
from types import ModuleType

_native: ModuleType | None
try:
    from spark_sb_mgmt.amqp import _native  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native = None


def native_module() -> ModuleType | None:
    """The compiled module, or None where it is not there or was turned off."""
    return None if os.environ.get("SBMGMT_NATIVE") == "0" else _native
