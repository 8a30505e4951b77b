"""LIKE: `%` is any text, also none; `_` is any one character; the character after the escape character is itself.

The one rule: time is bounded by text length times pattern length, whatever the pattern. A regular expression made of `%a%a%a%...`
would try every way to share out the text; here each part between two `%` takes the first place where it fits, which is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Matcher = Callable[[str], bool]


def _parts(pattern: str, escape: str | None) -> list[str]:
    """What stands between the `%`, each as a regular expression of fixed width."""
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(f"the LIKE pattern {pattern!r:.80} ends with its escape character, after which one more must stand")
            parts[-1] += re.escape(escaped)
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    return parts


# Patterns are mostly constants; one that is a property is likely to come again.
@lru_cache(maxsize=256)
def like(pattern: str, escape: str | None = None) -> Matcher:
    """What tells whether a text is like the pattern; ValueError for a pattern or escape character that is none."""
    if escape is not None and len(escape) != 1:
        raise ValueError(f"ESCAPE takes a string of one character, not {escape!r:.80}")
    first, *others = (re.compile(part, re.DOTALL) for part in _parts(pattern, escape))
    if not others:
        return lambda text: first.fullmatch(text) is not None
    middle, last = [part for part in others[:-1] if part.pattern], others[-1]
    width = _width(last)

    def matches(text: str) -> bool:
        found = first.match(text)
        for part in middle:
            if found is None:
                return False
            found = part.search(text, found.end())
        end = len(text) - width
        return found is not None and found.end() <= end and last.match(text, end) is not None

    return matches


def _width(part: re.Pattern[str]) -> int:
    return len(re.sub(r"(?s)\\(.)", r"\1", part.pattern))
