"""What is in conf/: examples that people copy. Spark takes the settings, the log hides secrets, and every path of the Databricks bundle is
there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_sb_mgmt.emulator import Emulator

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
BUNDLE = CONF / "databricks"

# Prints what a Spark that was started with a properties file took from it, and logs what must not be seen.
LOOK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
log = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("com.example.Somebody")
for text in json.loads(sys.argv[1]):
    log.error(text)
log.error("an exception", spark._jvm.java.lang.IllegalStateException("ClientSecret=exception-secret"))
log.error("nothing to hide: session order-7, signal=1, design: x")
session = [row.key for row in spark.sql("SET").collect()]
print(json.dumps({"context": dict(spark.sparkContext.getConf().getAll()), "session": session,
                  "known": [row.key for row in spark.sql("SET -v").collect()]}))
spark.stop()
"""
SECRETS = (
    "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=secret-1=;EntityPath=orders",
    '{"clientSecret": "secret-2", "tenantId": "shown-tenant"}',
    "SharedAccessSignature sr=sb%3A%2F%2Fx&sig=secret-3%3D&se=1&skn=root",
    "option sharedaccesskey : secret-4",
    "connectionString -> Endpoint=sb://x/;SharedAccessSignature=SharedAccessSignature sr=x&sig=secret-5&se=9",
)


def settings() -> dict[str, str]:
    lines = (CONF / "cluster" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    given = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    # Java's properties: two backslashes are one.
    return {name: value.strip().replace("\\\\", "\\") for name, value in given}


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What a Spark with our settings and our log configuration said, and its log."""
    home = tmp_path_factory.mktemp("conf")
    script = home / "look.py"
    script.write_text(LOOK, encoding="utf-8")
    submit = Path(sys.executable).parent / "spark-submit"
    command = [
        submit,
        "--master",
        "local[1]",
        "--conf",
        "spark.ui.enabled=false",
        "--properties-file",
        CONF / "cluster/spark-defaults.conf",
    ]
    environment = {**os.environ, "SPARK_CONF_DIR": str(CONF), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(part) for part in (*command, script, json.dumps(SECRETS))],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_spark_takes_every_setting_for_a_cluster(looked: tuple[dict[str, Any], str]) -> None:
    said, _ = looked
    given = settings()
    assert given
    assert {name: value for name, value in said["context"].items() if name in given} == given
    # A misspelt spark.sql.* is taken too, and does nothing: those there are, are listed.
    assert [name for name in given if name.startswith("spark.sql.") and name not in said["known"]] == []


def test_redaction_of_spark_covers_what_a_job_may_show() -> None:
    """The patterns are Java's, and mean the same here."""
    names = re.compile(settings()["spark.redaction.regex"])
    for name in ("SBMGMT_CONNECTION_STRING", "spark.executorEnv.SBMGMT_CONNECTION_STRING", "clientSecret", "sharedAccessKey"):
        assert names.search(name), name
    texts = re.compile(settings()["spark.sql.redaction.string.regex"])
    assert "secret-1" not in texts.sub("***", SECRETS[0])
    assert "secret-3" not in texts.sub("***", SECRETS[2])


def test_log_hides_what_looks_like_a_secret_and_nothing_else(looked: tuple[dict[str, Any], str]) -> None:
    _, log = looked
    assert log.count("Somebody:") == len(SECRETS) + 2
    assert re.findall(r"secret-\d|exception-secret", log) == []
    # What stands beside a secret is still there to find the mistake by.
    for shown in (
        "SharedAccessKeyName=root;SharedAccessKey=***;EntityPath=orders",
        "shown-tenant",
        "sig=***&se=1",
        "IllegalStateException",
    ):
        assert shown in log
    assert "nothing to hide: session order-7, signal=1, design: x" in log


def test_log_is_silent_about_what_is_always_so(looked: tuple[dict[str, Any], str]) -> None:
    _, log = looked
    assert "NativeCodeLoader" not in log
    assert " INFO " not in log


def test_the_emulator_takes_its_example() -> None:
    with Emulator.start(CONF / "emulator.json") as emulator:
        assert emulator.counts("orders")["active"] == 0


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    return dict(yaml.safe_load((BUNDLE / "databricks.yml").read_text(encoding="utf-8")))


def test_bundle_has_its_parts_and_uses_only_variables_that_it_declares(bundle: dict[str, Any]) -> None:
    assert set(bundle) == {"bundle", "variables", "sync", "artifacts", "resources", "targets"}
    text = (BUNDLE / "databricks.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == set(bundle["variables"])
    assert set(re.findall(r"\$\{(workspace\.\w+)\}", text)) <= {"workspace.file_path"}


def test_every_path_of_the_bundle_is_there(bundle: dict[str, Any]) -> None:
    for path in bundle["sync"]["paths"]:
        assert (BUNDLE / path).is_dir(), path
    wheel = bundle["artifacts"]["sbmgmt"]
    assert (BUNDLE / wheel["path"] / "pyproject.toml").is_file()
    [job] = bundle["resources"]["jobs"].values()
    [cluster] = job["job_clusters"]
    for script in cluster["new_cluster"]["init_scripts"]:
        # Where the synced files are, their paths are those of the checkout.
        place = script["workspace"]["destination"].removeprefix("${workspace.file_path}/")
        assert (ROOT / place).is_file(), place
    for task in job["tasks"]:
        assert task["job_cluster_key"] == cluster["job_cluster_key"]
        built = [BUNDLE / library["whl"] for library in task["libraries"]]
        assert [path.parent.resolve() for path in built] == [(BUNDLE / wheel["path"]).resolve() / "dist"]


def test_bundle_has_a_spark_that_the_package_runs_on_and_no_secret(bundle: dict[str, Any]) -> None:
    [job] = bundle["resources"]["jobs"].values()
    cluster = job["job_clusters"][0]["new_cluster"]
    assert int(cluster["spark_version"].split(".")[0]) >= 17, "runtime 17 is the first with Spark 4"
    assert cluster["spark_env_vars"]["SBMGMT_CONNECTION_STRING"] == "{{secrets/sbmgmt/connection-string}}"


def test_init_script_is_sh() -> None:
    for script in BUNDLE.glob("*.sh"):
        subprocess.run(["sh", "-n", str(script)], check=True, timeout=10)
