"""Runs notebooks from top to bottom; `python -m tests.notebooks.execute` (make docs) keeps what they show.

The one rule: what is kept is what came out of this run, without what would differ on another machine for no reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DEADLINE_S = 100
# Without Spark's own progress and remarks: what is kept is what the notebook says.
SPARK = "--conf spark.ui.showConsoleProgress=false --conf spark.ui.enabled=false --conf spark.log.level=ERROR pyspark-shell"
JAVAS_OWN = "WARNING: Using incubator modules: jdk.incubator.vector"


def all_notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs. It runs in a directory of its own, as on a machine where only the package is installed."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=DEADLINE_S, record_timing=False, resources={"metadata": {"path": folder}})
        # Sockets of files, not of the network, where everybody on the machine could listen.
        manager = client.create_kernel_manager()
        manager.transport, manager.ip = "ipc", str(Path(folder, "kernel"))
        client.execute(env=environment())
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("text", "").strip() != JAVAS_OWN]
    # The kernel adds the version of Python it had.
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def environment() -> dict[str, str]:
    """Without a connection string of whoever runs this, so that the emulator is used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SBMGMT_")}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": SPARK, "SPARK_LOCAL_IP": "127.0.0.1"}


def main(arguments: Sequence[str]) -> None:
    """Run the notebooks of these names, or all, and write them to a directory: their own, unless `--into` names another."""
    parser = argparse.ArgumentParser(prog="tests.notebooks.execute")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--into", type=Path, default=NOTEBOOKS)
    given = parser.parse_args(arguments)
    for path in all_notebooks():
        if not given.names or path.name in given.names:
            print(path.name, flush=True)
            nbformat.write(execute(path), given.into / path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
