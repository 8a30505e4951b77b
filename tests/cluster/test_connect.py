"""Reading over Spark Connect: the client sends the package to the server as an artifact."""

from __future__ import annotations

from pathlib import Path

from spark_sb_mgmt.emulator import Emulator
from tests.cluster.conftest import COUNT
from tests.cluster.shipping import package_zip, run_driver

DRIVER = """
import json, sys
from pyspark.sql import SparkSession, functions as F

given = json.loads(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.addArtifacts(given["zip"], pyfile=True)
sys.path.insert(0, given["zip"])
import spark_sb_mgmt
spark_sb_mgmt.register(spark)

def read(**options):
    return spark.read.format("sbmgmt").options(connectionString=given["connection_string"], **options).load()

df = read(queue="orders", numPartitions=3)
found = df.agg(F.count("*"), F.countDistinct("sequence_number"), F.max("sequence_number")).first()
try:
    read(queue="nowhere").count()
    refused = ""
except Exception as error:
    refused = str(error)
print(json.dumps({
    "connect": "connect" in type(spark).__module__,
    "found": list(found),
    "first": bytes(df.orderBy("sequence_number").first().body).decode(),
    "refused": "There is no entity 'nowhere'" in refused,
}))
spark.stop()
"""


def test_a_queue_is_read_over_spark_connect(emulator: Emulator, tmp_path: Path) -> None:
    given = {"zip": str(package_zip(tmp_path)), "connection_string": emulator.connection_string}
    assert run_driver(DRIVER, given, tmp_path) == {"connect": True, "found": [COUNT] * 3, "first": "body 0", "refused": True}
