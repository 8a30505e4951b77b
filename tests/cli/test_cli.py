"""The command line as a user types it: a process of its own, against the emulator, with traffic of the official SDK."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from spark_sb_mgmt.cli.progress import Progress
from spark_sb_mgmt.cli.tables import table
from spark_sb_mgmt.emulator import Emulator, Fault

CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "ns",
                "Queues": [{"Name": "orders"}, {"Name": "empty"}, {"Name": "by-session", "Properties": {"RequiresSession": True}}],
                "Topics": [
                    {
                        "Name": "events",
                        "Subscriptions": [
                            {
                                "Name": "large",
                                "Rules": [
                                    {
                                        "Name": "only-large",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "amount > 100"},
                                            "Action": {"SqlExpression": "SET seen = 1"},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "eu",
                                "Rules": [
                                    {
                                        "Name": "json-of-eu",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"ContentType": "application/json", "Properties": {"region": "eu"}},
                                        },
                                    }
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    }
}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator.start(CONFIG) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage(f"order {number}", message_id=f"id-{number}") for number in range(300)])
            with client.get_queue_sender("by-session") as sender:
                for session in ("a", "b"):
                    sender.send_messages(ServiceBusMessage(session, session_id=session))
            with client.get_queue_receiver("by-session", session_id="a") as receiver:
                receiver.session.set_state(b"seen")
        yield running


def run(emulator: Emulator | None, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SBMGMT_CONNECTION_STRING"}
    if emulator is not None:
        environment["SBMGMT_CONNECTION_STRING"] = emulator.connection_string
    return subprocess.run(
        [sys.executable, "-m", "spark_sb_mgmt", *arguments], env=environment, input=answer, capture_output=True, text=True, timeout=60
    )


def test_peek_shows_the_first_messages_as_a_table(emulator: Emulator) -> None:
    done = run(emulator, "peek", "orders", "--max", "3", "--columns", "sequence_number,message_id,body")
    assert done.returncode == 0, done.stderr
    assert [line.split(None, 2) for line in done.stdout.splitlines()[2:]] == [
        ["1", "id-0", "order 0"],
        ["2", "id-1", "order 1"],
        ["3", "id-2", "order 2"],
    ]


def test_peek_without_a_limit_shows_a_screen_and_from_a_number(emulator: Emulator) -> None:
    done = run(emulator, "peek", "orders", "--from", "201")
    assert len(done.stdout.splitlines()) == 2 + 25
    assert "order 200" in done.stdout
    assert "order 199" not in done.stdout
    assert done.stderr == "the first 25: --max N shows more, --to FILE.parquet takes all\n"


def test_peek_writes_every_message_with_all_columns_to_parquet(emulator: Emulator, tmp_path: Path) -> None:
    target = tmp_path / "orders.parquet"
    done = run(emulator, "peek", "orders", "--to", str(target))
    assert done.returncode == 0, done.stderr
    written = pq.read_table(target)
    assert sorted(written["body"].to_pylist()) == sorted(f"order {number}".encode() for number in range(300))
    assert "application_properties" in written.column_names
    assert "300 messages" in done.stderr
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_could_not_be_completed_is_not_left_behind(emulator: Emulator, tmp_path: Path) -> None:
    before = emulator.requests["peek-message"]
    assert run(emulator, "peek", "orders", "--to", str(tmp_path / "whole.parquet")).returncode == 0
    (tmp_path / "whole.parquet").unlink()
    asked = emulator.requests["peek-message"] - before
    key = emulator.faults.add(Fault("fail", operation="peek-message", skip=asked - 1, status=400, condition="amqp:not-allowed"))
    done = run(emulator, "peek", "orders", "--to", str(tmp_path / "orders.parquet"))
    emulator.faults.remove(key)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("sbmgmt: ")
    assert list(tmp_path.iterdir()) == []


def test_peek_into_head_ends_without_a_complaint(emulator: Emulator) -> None:
    command = [sys.executable, "-m", "spark_sb_mgmt", "peek", "orders", "--max", "300"]
    environment = {**os.environ, "SBMGMT_CONNECTION_STRING": emulator.connection_string}
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as closed_pipe:
        done = subprocess.run(command, env=environment, stdout=closed_pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


def test_peek_of_an_empty_queue_is_an_empty_table(emulator: Emulator) -> None:
    done = run(emulator, "peek", "empty")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


def test_sessions_with_their_states(emulator: Emulator) -> None:
    assert run(emulator, "sessions", "by-session").stdout.split() == ["session_id", "----------", "a", "b"]
    with_states = run(emulator, "sessions", "by-session", "--state").stdout
    assert re.search(r"^a +seen$", with_states, re.MULTILINE)


def test_rules_of_a_subscription(emulator: Emulator) -> None:
    done = run(emulator, "rules", "events/Subscriptions/large")
    assert re.search(r"^only-large +amount > 100 +SET seen = 1$", done.stdout, re.MULTILINE), done.stdout + done.stderr
    correlation = run(emulator, "rules", "events/Subscriptions/eu").stdout
    assert "json-of-eu  content_type = 'application/json', region = 'eu'" in correlation


def test_purge_asks_and_takes_only_the_name_for_yes(emulator: Emulator) -> None:
    with ServiceBusClient.from_connection_string(emulator.connection_string) as client, client.get_queue_sender("empty") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(5)])
    refused = run(emulator, "purge", "empty", answer="yes\n")
    assert (refused.returncode, emulator.counts("empty")["active"]) == (1, 5)
    assert "Delete every message of empty enqueued before" in refused.stderr
    assert "There are 5 at most" in refused.stderr
    assert "nothing was deleted" in refused.stderr
    assert refused.stdout == ""
    assert run(emulator, "purge", "empty").returncode == 1
    done = run(emulator, "purge", "empty", answer="empty\n")
    assert (done.returncode, done.stdout, emulator.counts("empty")["active"]) == (0, "5\n", 0)


def test_purge_of_what_is_old_only(emulator: Emulator) -> None:
    done = run(emulator, "purge", "orders", "--yes", "--before", "2020-01-01T00:00:00Z")
    assert (done.returncode, done.stdout.strip(), emulator.counts("orders")["active"]) == (0, "0", 300)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("peek", "nowhere"), "nowhere"),
        (("peek", "orders", "--columns", "sequence_number,colour"), "has no colour; there are "),
        (("peek", "orders", "--to", "/nowhere/orders.parquet"), "/nowhere/orders.parquet"),
        (("rules", "orders"), "orders"),
    ],
)
def test_what_cannot_be_done_is_one_line(emulator: Emulator, arguments: tuple[str, ...], said: str) -> None:
    done = run(emulator, *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.startswith("sbmgmt: ")
    assert len(done.stderr.splitlines()) == 1
    assert "SAS_KEY_VALUE" not in done.stderr


def test_without_a_connection_string_the_environment_is_named() -> None:
    done = run(None, "peek", "orders")
    assert done.returncode == 2
    assert "SBMGMT_CONNECTION_STRING" in done.stderr


def test_the_emulator_is_a_command_too() -> None:
    done = run(None, "emulator", "--help")
    assert done.returncode == 0
    assert "--data-dir" in done.stdout


def test_a_table_shows_cuts_and_keeps_control_characters_from_the_terminal() -> None:
    text = table(["a", "body"], [[None, b"\x1b[31mred"], [1, "x" * 60]])
    assert "\x1b" not in text
    assert text.splitlines()[3].endswith("x\N{HORIZONTAL ELLIPSIS}")


def test_progress_draws_over_its_line_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    times = iter(float(second) for second in range(10))
    terminal = Terminal()
    with Progress("messages", 4, to=terminal, clock=lambda: next(times)) as progress:
        progress.add(1)
        progress.add(3)
    lines = terminal.getvalue().split("\r")
    assert lines[1].startswith("[########......................]  25%  1 messages")
    assert "100%" in lines[-1]
    plain = io.StringIO()
    with Progress("messages", to=plain) as progress:
        progress.add(7)
    assert plain.getvalue().startswith("7 messages, ")
    assert "\r" not in plain.getvalue()
