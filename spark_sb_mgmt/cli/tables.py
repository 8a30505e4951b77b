"""Rows as a table of text.

The one rule: what is shown is cut to fit, and a cut shows; control characters of a message do nothing to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

_WIDEST: Final = 48


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[column]) for row in cells)]) for column, name in enumerate(names)]
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="milliseconds")
    elif isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode("utf-8", "replace")
    elif isinstance(value, list):
        # A map, as pyarrow gives it.
        text = ", ".join(f"{key}={one}" for key, one in value)
    else:
        text = str(value)
    text = "".join(character if character.isprintable() else "\N{MIDDLE DOT}" for character in text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}\N{HORIZONTAL ELLIPSIS}"
