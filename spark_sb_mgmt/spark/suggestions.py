"""What a person who wrote a name wrongly may have meant.

The one rule: a name is compared without case, `_` and `-`, so that `session_id`, `sessionId` and `SessionID` are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if any is like it."""
    spelled = {_plain(one): one for one in known}
    plain = _plain(name)
    # `peek` is far from `peek-message` by its letters, but it is its beginning.
    begun = [one for one in spelled if len(plain) > 2 and one.startswith(plain)]
    found = begun if len(begun) == 1 else get_close_matches(plain, spelled, n=1, cutoff=0.6)
    return spelled[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """For the middle of an error message: `, did you mean x`, or nothing."""
    found = closest(name, known)
    return f", did you mean {found}" if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
