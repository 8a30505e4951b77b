"""The compiled parts, where they were built: _native.c reads columns, _native_encode.c writes rows, _native_sender.c reads what is sent.

The one rule: they are an option of speed, never of meaning. Where a C compiler was at hand when the package was built, they are used; where
it is shipped as plain Python, or to another Python than it was built for, they are not there, and numpy and Python do the same jobs.
`SBMGMT_NATIVE=0` in the environment turns them off.

Python imports nothing compiled from within a zip, and a zip is how the package comes to a cluster where nothing can be installed: from
there they are written to a file for as long as it takes to load them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.resources import as_file, files
from importlib.util import module_from_spec
from types import ModuleType
from typing import Final


def _compiled(name: str) -> ModuleType | None:
    """One of them, as it is where this file is; None if it is not."""
    try:
        return import_module(f"{__package__}.{name}")
    except ImportError:
        return _from_archive(name)


def _from_archive(name: str) -> ModuleType | None:
    for suffix in EXTENSION_SUFFIXES:
        resource = files(__package__).joinpath(f"{name}{suffix}")
        if resource.is_file():
            try:
                with as_file(resource) as path:
                    return _loaded(f"{__package__}.{name}", str(path))
            except (ImportError, OSError):
                # Built for another system, or no file can be written or run here: as where it is not there.
                return None
    return None


def _loaded(name: str, path: str) -> ModuleType:
    loader = ExtensionFileLoader(name, path)
    module = module_from_spec(ModuleSpec(name, loader, origin=path))
    loader.exec_module(module)
    sys.modules[name] = module
    return module


_NATIVE: Final = _compiled("_native")
_NATIVE_ENCODE: Final = _compiled("_native_encode")
_NATIVE_SENDER: Final = _compiled("_native_sender")


def native_module() -> ModuleType | None:
    """The compiled column decoder, or None where it is not there or was turned off."""
    return _NATIVE if _is_on() else None


def native_encoder() -> ModuleType | None:
    """The compiled encoder of rows, likewise."""
    return _NATIVE_ENCODE if _is_on() else None


def native_sender() -> ModuleType | None:
    """The compiled reader of what senders give, likewise."""
    return _NATIVE_SENDER if _is_on() else None


def _is_on() -> bool:
    return os.environ.get("SBMGMT_NATIVE") != "0"
