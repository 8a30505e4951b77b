"""`python -m tests.bench [name ...]`: every bench_*.py here, or the named ones; a table, then one JSON line per figure."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(wanted: list[str]) -> None:
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")
    figures = []
    for name in wanted or known:
        for figure in importlib.import_module(f"tests.bench.bench_{name}").run():
            figures.append(figure)
            print(figure.as_row(), flush=True)
    for figure in figures:
        print(figure.as_json())


if __name__ == "__main__":
    main(sys.argv[1:])
