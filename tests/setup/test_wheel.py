"""The wheel: what is in it, and that it works where the checkout is not.

The virtual environment is new; what the package needs from others it borrows from the one that runs the tests, because building proton
again would take minutes. The checkout itself is on no path there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NATIVE = ROOT / "spark_sb_mgmt" / "amqp"
# Beside the package, so that it shows if something finds its way into the wheel that does not belong there.
NOT_PACKAGED = ("conf", "notebooks", "scripts", "tests/setup")

SMOKE = """
import json, sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import SparkSession
import spark_sb_mgmt
from spark_sb_mgmt.amqp.native import native_encoder, native_module, native_sender
from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator

with Emulator.start({"UserConfig": {"Namespaces": [{"Name": "smoke", "Queues": [{"Name": "orders"}]}]}}) as emulator:
    with ServiceBusClient.from_connection_string(emulator.connection_string) as sdk, sdk.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(f"order {number}") for number in range(3)])
    with ManagementClient.from_connection_string(emulator.connection_string) as client, client.entity("orders") as orders:
        numbers = [message.sequence_number for message in orders.peek_message()]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    # Not registered: PySpark finds it by itself where the wheel is installed.
    frame = spark.read.format("sbmgmt").option("connectionString", emulator.connection_string).option("queue", "orders").load()
    rows = [bytes(row.body).decode() for row in frame.orderBy("sequence_number").collect()]
    spark.stop()
compiled = None not in (native_module(), native_encoder(), native_sender())
print(json.dumps({"from": spark_sb_mgmt.__file__, "compiled": compiled, "numbers": numbers, "rows": rows}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("spark_sb_mgmt", "pyspark_sbmgmt", *NOT_PACKAGED):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, source], cwd=source)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment where only the wheel was installed."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home)
    python = home / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel], cwd=home)
    # A path in a .pth file is not searched for .pth files itself, so the editable install of the checkout is not seen.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin"


def run(command: list[object], cwd: Path, **environ: str) -> str:
    """What it printed. Nothing of the checkout is in its environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_CONF_DIR")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**kept, **environ}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_holds_the_packages_their_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    info = next(name.split("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert {name.split("/")[0] for name in names} == {"spark_sb_mgmt", "pyspark_sbmgmt", info}
    assert f"{info}/licenses/LICENSE" in names
    packaged = {name for name in names if not name.startswith(info)}
    in_checkout = {
        path.relative_to(ROOT).as_posix()
        for package in ("spark_sb_mgmt", "pyspark_sbmgmt")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".lark", ".typed")
    }
    compiled = {name for name in packaged if name.endswith(".so")}
    assert packaged - compiled == in_checkout
    assert {name.split(".")[0] for name in compiled} == {f"spark_sb_mgmt/amqp/{path.stem}" for path in NATIVE.glob("_native*.c")}


def test_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    said = Parser().parsestr(metadata)
    assert (said["Name"], said["License-Expression"], said["Requires-Python"]) == ("sbmgmt", "MIT", ">=3.10")
    assert set(said.get_all("Provides-Extra", [])) == {"entra", "websocket", "notebooks", "dev"}
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    needed = [line for line in requires("sbmgmt") or [] if "extra ==" not in line]
    assert {line.split("<")[0].split(">")[0] for line in needed} == {"lark", "numpy", "pyarrow", "pyspark", "python-qpid-proton"}


def test_changelog_has_the_version_of_the_package_or_what_is_unreleased(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line.startswith("## "))
    assert first == ("## Unreleased" if ".dev" in version else f"## {version}")


def test_installed_wheel_serves_peeks_and_is_found_by_spark_outside_the_checkout(clean: Path, tmp_path: Path) -> None:
    script = tmp_path / "smoke.py"
    script.write_text(SMOKE, encoding="utf-8")
    found = json.loads(run([clean / "python", script], tmp_path, PYSPARK_PYTHON=str(clean / "python")).splitlines()[-1])
    assert Path(found["from"]).is_relative_to(clean.parent)
    assert found["compiled"]
    assert found["numbers"] == [1, 2, 3]
    assert found["rows"] == ["order 0", "order 1", "order 2"]


SHIPPED = """
import json, os, spark_sb_mgmt, pyspark_sbmgmt
from spark_sb_mgmt.amqp.native import native_encoder, native_module, native_sender
from spark_sb_mgmt.emulator import Emulator
from spark_sb_mgmt.sample import shop

with Emulator.start(shop.CONFIG):
    compiled = [part is not None for part in (native_module(), native_encoder(), native_sender())]
    print(json.dumps([spark_sb_mgmt.__file__, compiled, os.listdir(os.environ["TMPDIR"])]))
"""


def shipped(archive: Path, clean: Path, tmp_path: Path) -> list[object]:
    """What a process says that has the package from an archive: where it is from, which parts are compiled, what it leaves behind."""
    script, temporary = tmp_path / "shipped.py", tmp_path / "temporary"
    script.write_text(SHIPPED, encoding="utf-8")
    temporary.mkdir()
    said = run([clean / "python", script], tmp_path, PYTHONPATH=str(archive), TMPDIR=str(temporary))
    return list(json.loads(said))


def test_wheel_named_zip_can_be_shipped_to_a_cluster(wheel: Path, clean: Path, tmp_path: Path) -> None:
    """As the README says: Spark ignores a .whl and puts a .zip on the executors' path. The rule language's grammar and the compiled parts
    are beside the code, and have to be read from within the zip too."""
    archive = Path(shutil.copy(wheel, tmp_path / "sbmgmt.zip"))
    assert shipped(archive, clean, tmp_path) == [f"{archive}/spark_sb_mgmt/__init__.py", [True, True, True], []]


@pytest.mark.parametrize("content", [None, b"built for another machine"], ids=["without compiled parts", "with unusable ones"])
def test_zip_for_another_machine_works_too(wheel: Path, clean: Path, tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "sbmgmt.zip"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(archive, "w") as target:
        for name in source.namelist():
            if not name.endswith(".so") or content is not None:
                target.writestr(name, content if content is not None and name.endswith(".so") else source.read(name))
    assert shipped(archive, clean, tmp_path) == [f"{archive}/spark_sb_mgmt/__init__.py", [False, False, False], []]


def test_installed_wheel_brings_its_command(clean: Path, tmp_path: Path) -> None:
    assert "emulator" in run([clean / "sbmgmt", "--help"], tmp_path)
