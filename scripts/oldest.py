#!/usr/bin/env python3
"""The oldest releases that the package says it runs with, a requirement a line, for pip: of `pyspark>=4.0,<5` it is `pyspark==4.0.*`.

The one rule: pyproject.toml says what is supported, and what it says is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import requires

from packaging.requirements import Requirement


def oldest(requirements: Iterable[str]) -> Iterator[str]:
    """Of those that are needed here, without extras."""
    for text in requirements:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            [least] = [bound.version for bound in needed.specifier if bound.operator == ">="]
            yield f"{needed.name}=={least}.*"


if __name__ == "__main__":
    print("\n".join(oldest(requires("sbmgmt") or ())))
