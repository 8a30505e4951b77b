"""One number of a benchmark."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """`target` is what the figure has to reach, where something was promised."""

    case: str
    name: str
    value: float
    target: float | None = None

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def as_row(self) -> str:
        verdict = "" if self.target is None else f"   to reach {self.target:g}: {'yes' if self.value >= self.target else 'NO'}"
        return f"{self.case:26} {self.name:36} {self.value:10.3f}{verdict}"
