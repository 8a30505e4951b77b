"""Receipts in an object store: moto's server speaks S3 to Arrow's own client of it."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from spark_sb_mgmt.errors import InvalidArgumentError
from spark_sb_mgmt.spark.options import table
from spark_sb_mgmt.spark.writing.receipts import ReceiptsDirectory
from spark_sb_mgmt.spark.writing.write_operation import Receipt, TaskAttempt
from spark_sb_mgmt.spark.writing.write_schema import WriteColumns

COLUMNS = WriteColumns(table.CANCEL, ("sequence_number",))
ROWS = pa.RecordBatch.from_pydict({"sequence_number": pa.array([1, 2, 3])})
ATTEMPTS = [TaskAttempt(partition=partition, id=f"attempt-{partition}") for partition in range(2)]
SECRET = "c2VjcmV0"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(number)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", number)) != 0:
                assert process.poll() is None, "the object store ended"
                assert time.monotonic() < deadline, "the object store did not open its port"
                # Refused at once: give the machine to it.
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.1)
        yield number
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def uri(port: int, request: pytest.FixtureRequest) -> str:
    """A directory of a bucket that is there."""
    text = f"s3://key:{SECRET}@receipts/{request.node.name}?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    files, _ = fs.FileSystem.from_uri(f"{text}&allow_bucket_creation=true")
    files.create_dir("receipts")
    return text


def standing(uri: str) -> list[str]:
    files, base = fs.FileSystem.from_uri(uri)
    return sorted(
        found.path.removeprefix(f"{base}/")
        for found in files.get_file_info(fs.FileSelector(base, recursive=True))
        if found.type is fs.FileType.File
    )


def written(uri: str, job: str) -> ReceiptsDirectory:
    """Parts of two attempts that count, and one that failed; the directory is pickled, as it is on its way to a task."""
    directory: ReceiptsDirectory = pickle.loads(pickle.dumps(ReceiptsDirectory.of(uri, job)))
    for attempt in ATTEMPTS:
        with directory.writer(attempt, COLUMNS) as writer:
            writer.add(Receipt(ROWS))
    with suppress(RuntimeError), directory.writer(TaskAttempt(id="failed"), COLUMNS) as writer:
        writer.add(Receipt(ROWS))
        raise RuntimeError
    return directory


def test_receipts_are_seen_when_they_are_published_and_not_before(uri: str) -> None:
    directory = written(uri, "job")
    assert standing(uri) == ["_sbmgmt-job/part-00000-attempt-0.parquet", "_sbmgmt-job/part-00001-attempt-1.parquet"]
    directory.publish(ATTEMPTS)
    assert standing(uri) == ["part-00000-job.parquet", "part-00001-job.parquet"]
    files, base = fs.FileSystem.from_uri(uri)
    assert pq.read_table(base, filesystem=files).column("sequence_number").to_pylist() == [1, 2, 3, 1, 2, 3]


def test_a_job_that_is_aborted_leaves_the_receipts_of_others(uri: str) -> None:
    written(uri, "one").publish(ATTEMPTS)
    written(uri, "two").discard(ATTEMPTS)
    assert standing(uri) == ["part-00000-one.parquet", "part-00001-one.parquet"]


def test_a_bucket_that_is_not_there_is_told_without_the_key(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"option receiptsPath is 's3:\.\.\.', and no directory can be made there") as raised:
        ReceiptsDirectory.of(uri.replace("@receipts/", "@nowhere/"), "job")
    assert SECRET not in str(raised.value)
