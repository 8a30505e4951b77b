"""Directories that cannot be used, and disks that fail: one clear error each, nothing harmed, and nothing acknowledged afterwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import copyfile, rmtree
from tempfile import mkdtemp

import pytest

from spark_sb_mgmt.amqp.encode import encode_value
from spark_sb_mgmt.amqp.types import Described, Symbol, Timestamp
from spark_sb_mgmt.emulator.storage import StorageError, Store
from spark_sb_mgmt.emulator.storage.database import FILE_NAME, FORMAT
from spark_sb_mgmt.errors import SbMgmtError
from spark_sb_mgmt.model import Rule
from tests.emulator.entities.broker import START, subscription, topic
from tests.emulator.entities.broker import Rule as RuleWithoutDescription
from tests.emulator.storage_world import OPERATIONS, DescribedRule, World
from tests.emulator.storage_world import rule as described_rule
from tests.emulator.test_storage import running

ROOT = Path(__file__).parents[2]


def open_store(data_dir: Path) -> Store:
    return Store.open(data_dir, compile_rule=DescribedRule)


def run(program: str, *arguments: object) -> list[str]:
    """The lines that a Python program of its own process prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def filled(data_dir: Path, steps: int = 300) -> World:
    """A directory with something of everything in it, committed."""
    world, chance = World(data_dir), Random(1)
    for _ in range(steps):
        world.step(chance.choice(sorted(OPERATIONS)), chance.randrange(1000), chance.randrange(1000))
    world.store.commit()
    return world


# One emulator has the directory


OPEN = """
import sys
from pathlib import Path
from spark_sb_mgmt.emulator.storage import StorageError, Store
def compile_rule(rule): return rule
def attempt():
    try:
        return Store.open(Path(sys.argv[1]), compile_rule=compile_rule)
    except StorageError as error:
        print(error, flush=True)
"""


def test_a_second_emulator_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        broker.send("a")
        broker.store.commit()
        expected = f"the data directory {tmp_path} is in use by another emulator: stop it, or choose another directory."
        assert run(OPEN + "attempt()", tmp_path) == [expected]
        with pytest.raises(StorageError, match="in use by another emulator"):
            open_store(tmp_path)
        broker.send("b")
    with running(tmp_path) as broker:
        assert broker.q.counts().active == 2


def test_a_directory_is_free_at_once_when_its_emulator_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN + "store = attempt(); print('open', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match="in use by another emulator"):
            open_store(tmp_path)
        program.kill()
        program.wait()
        open_store(tmp_path).close()


# What stands there is not ours


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE holiday_pictures (picture BLOB)")
    connection.close()


def text_file(path: Path) -> None:
    path.write_text("Dear diary, today I wrote a file that is no database at all.\n" * 100)


def newer_format(path: Path) -> None:
    set_version(path, FORMAT + 1)


def no_format(path: Path) -> None:
    set_version(path, 0)


def set_version(path: Path, version: int) -> None:
    open_store(path.parent).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (foreign_database, "is the database of another program; choose another data directory"),
        (text_file, "is not a database: remove it if nothing in it is needed, or choose another"),
        (newer_format, f"has format {FORMAT + 1}, and this version of the emulator knows formats up to {FORMAT}: use the newer version"),
        (no_format, "has format 0, which no version of the emulator has written"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_stays_as_it_was(tmp_path: Path, make: object, told: str) -> None:
    path = tmp_path / FILE_NAME
    assert callable(make)
    make(path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=told) as raised:
        open_store(tmp_path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_data_directory_that_is_a_file_or_whose_file_is_a_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StorageError, match=f"the data directory {file} cannot be made: File exists"):
        open_store(file)
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StorageError, match=f"{FILE_NAME} cannot be opened for writing: unable to open database file"):
        open_store(tmp_path)


# Nobody may do everything: a superuser becomes somebody else first.
AS_NOBODY = """
import os
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
attempt()
"""


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that others may look into, as pytest's own may not."""
    path = Path(mkdtemp())
    path.chmod(0o755)
    yield path
    rmtree(path)


def test_a_directory_that_may_not_be_written_is_refused(public_path: Path) -> None:
    made = public_path / "made"
    made.mkdir()
    made.chmod(0o555)
    (told,) = run(OPEN + AS_NOBODY, made)
    assert told.startswith(f"{made / FILE_NAME} cannot be opened for writing: unable to open database file. Choose a data directory")
    (told,) = run(OPEN + AS_NOBODY, made / "new")
    assert told == f"the data directory {made / 'new'} cannot be made: Permission denied."
    made.chmod(0o000)
    (told,) = run(OPEN + AS_NOBODY, made / "new")
    assert told == f"the data directory {made / 'new'} cannot be made: Permission denied."
    made.chmod(0o755)


def test_a_file_that_may_not_be_written_is_refused(public_path: Path) -> None:
    filled(public_path).store.close()
    (public_path / FILE_NAME).chmod(0o444)
    public_path.chmod(0o777)
    (told,) = run(OPEN + AS_NOBODY, public_path)
    assert told == f"{public_path / FILE_NAME} is read-only: make it writable for this user, or choose another data directory."


# What stands there is damaged


def test_damage_to_any_page_is_a_storage_error_or_does_not_matter(tmp_path: Path) -> None:
    good = tmp_path / "good"
    world = filled(good)
    whole = len(list(world.store.read()))
    world.store.close()
    bad = tmp_path / "bad"
    bad.mkdir()
    page_size = 4096
    errors: list[str] = []
    for page in range((good / FILE_NAME).stat().st_size // page_size):
        copyfile(good / FILE_NAME, bad / FILE_NAME)
        with (bad / FILE_NAME).open("r+b") as file:
            file.seek(page * page_size)
            file.write(b"\xa5" * page_size)
        try:
            with open_store(bad) as store:
                # A page that is free, or one within the bytes of a message: nothing is missing.
                assert len(list(store.read())) == whole
        except StorageError as error:
            errors.append(str(error))
    assert len(errors) > 10
    assert all(str(bad / FILE_NAME) in error for error in errors)


# Made at a time that no datetime holds.
RULE_AT_NO_TIME = encode_value(("r", Described(Symbol("true-filter"), ()), None, Timestamp(2**62)))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE messages SET state = 9",
        "UPDATE messages SET session_id = 5",
        "UPDATE messages SET header = x'ff'",
        "UPDATE messages SET header = x'41'",
        "UPDATE messages SET entity = entity + 999",
        "UPDATE rules SET description = x''",
        "UPDATE rules SET description = x'41'",
        f"UPDATE rules SET description = x'{RULE_AT_NO_TIME.hex()}'",
        "UPDATE rules SET entity = entity + 999",
        "UPDATE entities SET path = id",
        "DROP TABLE numbers",
        "DROP TABLE entities",
    ],
)
def test_a_value_that_nobody_wrote_is_a_storage_error(tmp_path: Path, damage: str) -> None:
    filled(tmp_path).store.close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute(damage).connection.commit()
    connection.close()
    with (
        pytest.raises(StorageError, match=r"cannot be read: .* Restore it from a copy, or choose another data directory\."),
        open_store(tmp_path) as store,
    ):
        list(store.read())


def test_a_rule_that_is_no_longer_understood_is_named(tmp_path: Path) -> None:
    def refuse(description: Rule) -> DescribedRule:
        raise SbMgmtError("this SQL is not understood at position 3")

    topics = {"t": topic(subscription("s"))}
    with running(tmp_path, topics=topics) as broker:
        broker.subscription("t", "s").add_rule(described_rule("late"))
    with (
        Store.open(tmp_path, compile_rule=refuse) as store,
        pytest.raises(StorageError, match=r"rule '\$Default' of 't/subscriptions/s' cannot be used: this SQL is not understood"),
    ):
        list(store.read())


# The disk fails


def test_after_a_full_disk_nothing_is_committed_any_more_and_what_was_before_is_there(tmp_path: Path) -> None:
    world = filled(tmp_path)
    committed, now = world.durable_state(), world.now
    connection = world.store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    for number in range(100):
        world.send(number, 6)
    with pytest.raises(StorageError, match=f"{FILE_NAME} cannot be written: database or disk is full. What was not acknowledged"):
        world.store.commit()
    connection.execute("PRAGMA max_page_count=1000000")
    with pytest.raises(StorageError, match="database or disk is full"):
        world.store.commit()
    world.restart(now)
    assert world.durable_state() == committed
    world.send(0, 0)
    world.store.commit()
    world.store.close()


# A file that may not grow is the disk that is full, as the operating system tells it.
UNTIL_THE_DISK_IS_FULL = """
import resource, sys
from tests.emulator import storage_world
from spark_sb_mgmt.emulator.storage import StorageError, Store
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
stores = []
open_store = Store.open
storage_world.Store.open = lambda *given, **named: stores.append(open_store(*given, **named)) or stores[0]
try:
    storage_world.main(*sys.argv[1:])
except StorageError as error:
    print(error)
try:
    stores[0].commit()
except StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_before_a_write_failed_is_there(tmp_path: Path, seed: int) -> None:
    *lines, first, second = run(UNTIL_THE_DISK_IS_FULL, tmp_path, seed, START)
    assert first == second
    assert first.startswith(f"{tmp_path / FILE_NAME} cannot be written: ")
    word, _, _ = lines[-1].split()
    assert word == "try", "a commit that failed was acknowledged"
    _, now, digest = lines[-2].split()
    world = World(tmp_path, int(now))
    world.store.close()
    assert world.digest() == digest


def test_a_change_that_cannot_be_kept_stops_the_store(tmp_path: Path) -> None:
    with running(tmp_path, commit_at_end=False, topics={"t": topic(subscription("s"))}) as broker:
        broker.send("a")
        with pytest.raises(StorageError, match=r"a change of 't/Subscriptions/s' cannot be kept in .*: rule 'r' has a NoneType"):
            broker.subscription("t", "s").add_rule(RuleWithoutDescription("r"))
        with pytest.raises(StorageError, match="rule 'r' has a NoneType"):
            broker.store.commit()
    with running(tmp_path) as broker:
        assert broker.q.counts().active == 0


def test_a_closed_store_commits_nothing(tmp_path: Path) -> None:
    with running(tmp_path, commit_at_end=False) as broker:
        broker.send("a")
        broker.store.close()
        with pytest.raises(StorageError, match="cannot be written: Cannot operate on a closed database"):
            broker.store.commit()
