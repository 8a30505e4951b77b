"""`python -m spark_sb_mgmt.emulator`: it says when it is ready, ends when it is told, and what it cannot do is one line."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from spark_sb_mgmt.emulator import Emulator, EmulatorControl, Fault
from spark_sb_mgmt.emulator.storage import StorageError
from tests.emulator.server.conftest import CONFIG
from tests.emulator.server.peer import EndedError, Outcome, Peer, message, peeked
from tests.emulator.server.program import ROOT, Program


def test_the_example_of_the_repository_is_served_and_the_line_that_says_so_is_the_connection_string(tmp_path: Path) -> None:
    with Program(ROOT / "conf/emulator.json", tmp_path) as program:
        program.ready()
        assert program.connection_string == (
            f"Endpoint=sb://127.0.0.1:{program.port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
            "UseDevelopmentEmulator=true;"
        )
        with program.peer() as peer:
            assert peer.send(peer.sender("orders"), message(b"a")) == Outcome("accepted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_though_clients_are_connected(tmp_path: Path, number: signal.Signals) -> None:
    with Program(CONFIG, tmp_path, "--data-dir", str(tmp_path / "data")) as program:
        program.ready()
        with program.peer() as peer, program.peer() as busy, socket.create_connection(("127.0.0.1", program.port)):
            peer.receiver("q", 10)
            busy.send(busy.sender("q"), message(b"a"))
            EmulatorControl.connect(program.connection_string).faults.add(Fault("delay", operation="send", seconds=60))
            busy.post(busy.sender("q"), message(b"b"))
            busy.flush()
            code, seconds = program.end(number)
            assert code == 0
            assert seconds < 5
            peer.until(lambda: peer.connection.state & peer.connection.REMOTE_CLOSED)
        assert program.failure()[1:] == ([], "")


def test_a_signal_in_the_moment_of_becoming_ready_is_not_lost(tmp_path: Path) -> None:
    for _ in range(3):
        with Program(CONFIG, tmp_path) as program:
            assert program.ready().end(signal.SIGTERM)[0] == 0


def test_the_given_port_is_used_and_one_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with Program(CONFIG, tmp_path) as first:
        first.ready()
        with Program(CONFIG, tmp_path, "--port", str(first.port)) as second:
            code, errors, output = second.failure()
            assert (code, output) == (1, "")
            (line,) = errors
            assert f"cannot listen on 127.0.0.1:{first.port}" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no JSON", "is not JSON"),
        ("{}", "UserConfig"),
        (json.dumps({"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Propertys": {}}]}]}}), "Propertys"),
        (
            json.dumps({"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Properties": {"LockDuration": "PT1H"}}]}]}}),
            "LockDuration",
        ),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_configuration_is_one_line_with_the_place(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "given.json"
    if text is not None:
        path.write_text(text)
    with Program(path, tmp_path) as program:
        code, errors, output = program.failure()
    assert (code, output) == (1, "")
    (line,) = errors
    assert line.startswith("sbmgmt emulator: ")
    assert expected in line


@pytest.mark.parametrize("arguments", [("--tls-port", "0"), ("--host", "no.such.host.invalid"), ("--data-dir", "/proc/nowhere")])
def test_what_cannot_be_served_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Program(CONFIG, tmp_path, *arguments) as program:
        code, errors, output = program.failure()
    assert (code, len(errors), output) == (1, 1, "")


@pytest.mark.parametrize("arguments", [("--port", "many"), ("--port", "70000"), ("--websocket-port", "-1")])
def test_a_port_that_is_none_is_refused_before_anything_is_done(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Program(CONFIG, tmp_path, *arguments) as program:
        code, errors, _ = program.failure()
    assert code == 2
    assert arguments[0] in errors[-1]


# The data directory


def test_a_second_emulator_on_the_same_directory_is_one_line_and_the_first_goes_on(tmp_path: Path) -> None:
    with Program(CONFIG, tmp_path, "--data-dir", str(tmp_path / "data")) as first:
        first.ready()
        with Program(CONFIG, tmp_path, "--data-dir", str(tmp_path / "data")) as second:
            code, errors, output = second.failure()
        assert (code, output) == (1, "")
        (line,) = errors
        assert "in use by another emulator" in line
        with first.peer() as peer:
            assert peer.send(peer.sender("q"), message(b"a")) == Outcome("accepted")


def send_until_it_ends(peer: Peer) -> int:
    """How many messages were acknowledged."""
    sender = peer.sender("q")
    for number in range(1000):
        try:
            assert peer.send(sender, message(b"%06d" % number + bytes(20_000))) == Outcome("accepted")
        except EndedError:
            return number
    raise AssertionError("it went on though no file could grow")


def test_a_disk_that_is_full_ends_it_with_one_line_and_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path / "data"))
    with Program(CONFIG, tmp_path, *arguments, limit_kb=600) as program:
        with program.ready().peer() as peer:
            acknowledged = send_until_it_ends(peer)
        code, errors, _ = program.failure()
        assert code == 1
        (line,) = errors
        assert "cannot be written" in line
    assert acknowledged > 3
    with Program(CONFIG, tmp_path, *arguments) as again, again.ready().peer() as peer:
        found = [body[:6] for body in peeked(peer, "q", 250)]
        assert found == [b"%06d" % number for number in range(len(found))]
        assert len(found) == acknowledged


def test_a_commit_that_fails_ends_an_embedded_emulator_too(tmp_path: Path) -> None:
    emulator = Emulator.start(CONFIG, data_dir=tmp_path)
    with Peer.connect(emulator) as peer:
        sender = peer.sender("q")
        assert peer.send(sender, message(b"kept")) == Outcome("accepted")
        store: Any = emulator._server._store
        emulator._server.loop.run_in_loop(lambda: store._connection.execute("PRAGMA max_page_count=1"))
        delivery = peer.post(sender, message(bytes(200_000)))
        with pytest.raises(EndedError):
            peer.outcome(delivery)
        assert not delivery.remote_state
    with pytest.raises(StorageError, match="cannot be written"):
        emulator.stop()
    with Emulator.start(CONFIG, data_dir=tmp_path) as again, Peer.connect(again) as peer:
        assert peeked(peer, "q") == [b"kept"]
