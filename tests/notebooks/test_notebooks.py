"""The notebooks: they run from top to bottom, what they assert is so, and what people see without running them is what comes out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
from pyspark.sql import SparkSession

from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import shop, traffic
from spark_sb_mgmt.sample.shop import Day
from tests.notebooks.execute import all_notebooks

ROOT = Path(__file__).parents[2]
NAMES = [path.name for path in all_notebooks()]
# Each is a Python and a Java.
AT_ONCE = 2
KEPT = {path.name: nbformat.read(path, as_version=4) for path in all_notebooks()}


def test_there_are_the_four_in_the_order_a_user_meets_them() -> None:
    assert NAMES == ["1_peek_and_triage.ipynb", "2_deferred_recovery.ipynb", "3_schedule_and_cancel.ipynb", "4_sessions_and_rules.ipynb"]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


# --- as they are kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_kept_outputs_are_those_of_one_run_from_top_to_bottom(name: str) -> None:
    cells = code_cells(KEPT[name])
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    assert "stderr" not in {output.get("name") for cell in cells for output in cell.outputs}
    plots = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert plots, "people look before they read"


@pytest.mark.parametrize("name", NAMES)
def test_kept_notebooks_tell_nothing_of_the_machine_and_no_secret(name: str) -> None:
    text = "".join(texts(KEPT[name])) + json.dumps(KEPT[name].metadata)
    assert re.findall(r"(?:/work|/root|/home|/tmp|/usr|/opt|[A-Z]:\\)[\w./-]*|127\.0\.0\.1|SAS_KEY_VALUE|SharedAccessKey=", text) == []
    assert set(KEPT[name].metadata) == {"kernelspec", "language_info"}


# --- as they run --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What running each of them said, and the directory that they were written `into`."""
    into = tmp_path_factory.mktemp("executed")

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.notebooks.execute", name, "--into", into]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {"into": into, **dict(zip(NAMES, pool.map(run, NAMES), strict=True))}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_runs_on_the_emulator_and_shows_what_is_kept(name: str, executed: dict[str, Any]) -> None:
    done = executed[name]
    assert done.returncode == 0, done.stderr[-4000:]
    notebook = nbformat.read(executed["into"] / name, as_version=4)
    assert texts(notebook) == texts(KEPT[name]), "make docs keeps what it shows now"


def texts(notebook: Any) -> list[str]:
    """What its cells show, images aside: these differ with the version of matplotlib."""
    return [said(output) for cell in code_cells(notebook) for output in cell.outputs]


def said(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return "an image" if "image/png" in output.data else str(output.data["text/plain"])


# --- on a namespace of the user's ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def namespace() -> Iterator[Emulator]:
    """Stands in for a namespace of the user's: nothing tells the notebooks that it is an emulator."""
    with Emulator.start(shop.CONFIG) as emulator:
        traffic.fill(emulator.connection_string, Day(handled=60, waiting=30, late=3, scheduled=4))
        yield emulator


@pytest.mark.parametrize("name", NAMES)
def test_changes_nothing_that_is_not_its_own_on_a_namespace_of_the_users(
    name: str, namespace: Emulator, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBMGMT_CONNECTION_STRING", namespace.connection_string)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    before = everything(namespace)
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in code_cells(KEPT[name]):
        exec(compile(cell.source, name, "exec"), names)
    assert names["bus"].emulator is None
    assert everything(namespace) == before


def everything(namespace: Emulator) -> dict[str, dict[str, int]]:
    subscriptions = (f"{shop.EVENTS}/Subscriptions/{name}" for name in (shop.AUDIT, shop.LARGE, shop.EU))
    return {entity: namespace.counts(entity) for entity in (shop.ORDERS, shop.DEAD_LETTERS, shop.BASKETS, *subscriptions)}
