"""The README as a program: its Python runs from top to bottom, and what it prints is what stands below it.

The one rule: nothing in it is said to run that was not run. `python -m tests.docs.readme` (make docs) writes tables and outputs anew.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_sb_mgmt.emulator import Emulator
from tests.docs.tables import README, filled

_BLOCK: Final = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# Examples write where everybody may; here it is a directory of the run.
_SCRATCH: Final = '"/tmp/'


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is where it starts, for who has to find it."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    return [Block(one["language"], one["text"], text.count("\n", 0, one.start()) + 1) for one in _BLOCK.finditer(text)]


class Program:
    """The Python blocks, run in their order, each seeing what those before it made."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._names: dict[str, Any] = {"__name__": "readme"}
        self._emulators: list[Emulator] = []

    def run(self, block: Block) -> str:
        """What the block prints."""
        source = block.text.replace(_SCRATCH, f'"{self._scratch}/')
        # With its own line numbers, so that a traceback points into the README.
        code = compile("\n" * block.line + source, str(README), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self._names)
        emulator = self._names.get("emulator")
        if isinstance(emulator, Emulator) and emulator not in self._emulators:
            self._emulators.append(emulator)
        return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines()) + "\n"

    def close(self) -> None:
        for emulator in self._emulators:
            emulator.stop()


@contextlib.contextmanager
def program(scratch: Path) -> Iterator[Program]:
    running = Program(scratch)
    try:
        yield running
    finally:
        running.close()


def outputs(text: str, run: Callable[[Block], str]) -> Iterator[tuple[Block, Block | None, str]]:
    """Each Python block, the text block that says what it prints if one follows, and what it did print."""
    found = blocks(text)
    for at, block in enumerate(found):
        if block.language == "python":
            after = found[at + 1] if at + 1 < len(found) and found[at + 1].language == "text" else None
            yield block, after, run(block)


def main() -> None:
    text = filled(README.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, program(Path(folder)) as running:
        printed = []
        for block, after, output in outputs(text, running.run):
            print(f"line {block.line}", file=sys.stderr, flush=True)
            if after is not None:
                printed.append(output)
    # From the end, so that what is before keeps its place.
    for one in reversed([one for one in _BLOCK.finditer(text) if one["language"] == "text"]):
        text = f"{text[: one.start('text')]}{printed.pop()}{text[one.end('text') :]}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
