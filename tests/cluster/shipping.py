"""What the tests on real clusters share: the package as a zip, and drivers in processes of their own.

The package of the checkout is installed where executors run too, so a test must look at where they imported it from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

ROOT = Path(__file__).parents[2]
# How a driver on the standalone cluster starts: two executors of one core, and a copy of every task that is slower than half of them.
ON_THE_CLUSTER = """
import json, sys
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
builder = (
    SparkSession.builder.master(given["master"])
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.cores.max", "2")
    .config("spark.executor.cores", "1")
    .config("spark.executor.memory", "512m")
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.speculation", "true")
    .config("spark.speculation.interval", "100ms")
    .config("spark.speculation.quantile", "0.5")
    .config("spark.speculation.minTaskRuntime", "0ms")
)
"""


def package_zip(directory: Path) -> Path:
    """The package as a zip, as the README says to ship it: .whl files are ignored by Spark, without a word."""
    target = directory / "sbmgmt.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in ("spark_sb_mgmt", "pyspark_sbmgmt"):
            for source in sorted((ROOT / package).rglob("*.py")):
                archive.write(source, source.relative_to(ROOT))
    return target


def environment(**more: str) -> dict[str, str]:
    """For a process that is Spark's: its own settings, and Python workers by the interpreter of the tests."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_REMOTE", "PYTHONPATH")}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf"), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def finished_driver(script: str, arguments: Mapping[str, Any], directory: Path, timeout: float = 100.0) -> CompletedProcess[str]:
    """Run a driver, which must succeed."""
    path = directory / "driver.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, str(path), json.dumps(arguments)],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def last_line(done: CompletedProcess[str]) -> Any:
    """What a driver printed last, as JSON."""
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_driver(script: str, arguments: Mapping[str, Any], directory: Path) -> Any:
    """Run a driver; what it printed last, as JSON."""
    return last_line(finished_driver(script, arguments, directory))
