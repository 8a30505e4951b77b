"""The emulator, driven by the official JavaScript SDK, @azure/service-bus, through its public API.

The one rule: each scenario in `scenarios/` is one test, with an emulator and clients of its own; its clock stands still until the scenario
moves it. One Node.js process runs them all, since the SDK takes long to load. No Node.js, or no package (`make peers`), is a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from spark_sb_mgmt.emulator import Emulator, Fault, ManualClock

HERE = Path(__file__).parent
# A scenario is a method with a name in quotes. That the SDK's side sees the same ones is a test below.
SCENARIOS = [name for file in sorted(HERE.glob("scenarios/*.js")) for name in re.findall(r'^  async "(.+)"\(', file.read_text(), re.M)]


class Node:
    """The process that runs scenarios: see runner.js."""

    def __init__(self, ca_file: Path) -> None:
        self._process = subprocess.Popen(
            ["node", "runner.js"],
            cwd=HERE,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(ca_file)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "Node.js ended: what it said stands in the captured output (is the package there? `make peers`)"
        heard: Mapping[str, Any] = json.loads(line)
        return heard

    def run(self, scenario: str, given: Mapping[str, Any], answer: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self.say({"run": scenario, **given})
        while "ask" in (heard := self.hear()):
            self.say({"answer": answer(heard["ask"], heard["arguments"])})
        assert "passed" in heard, heard["failed"]

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.kill()
        self._process.wait()


class NodeKeeper:
    """A process that failed a scenario may still be busy with it: the next scenario gets another."""

    def __init__(self, ca_file: Path) -> None:
        self._ca_file = ca_file
        self._node: Node | None = None

    def run(self, scenario: str, given: Mapping[str, Any], answer: Callable[[str, Mapping[str, Any]], Any]) -> None:
        node = self.get()
        try:
            node.run(scenario, given, answer)
        except BaseException:
            self.end()
            raise

    def get(self) -> Node:
        if self._node is None:
            self._node = Node(self._ca_file)
        return self._node

    def end(self) -> None:
        if self._node is not None:
            self._node.end()
            self._node = None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    place = tmp_path_factory.mktemp("certificate")
    files = {"ca": place / "ca.pem", "cert": place / "cert.pem", "key": place / "key.pem"}
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(files["ca"])
    own.cert_chain_pems[0].write_to_path(files["cert"])
    own.private_key_pem.write_to_path(files["key"])
    return files


@pytest.fixture(scope="module")
def node(certificate: Mapping[str, Path]) -> Iterator[NodeKeeper]:
    keeper = NodeKeeper(certificate["ca"])
    yield keeper
    keeper.end()


def test_the_scenarios_are_those_that_the_runner_has(node: NodeKeeper) -> None:
    node.get().say({"list": True})
    assert sorted(node.get().hear()["list"]) == sorted(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_javascript_sdk(scenario: str, node: NodeKeeper, certificate: Mapping[str, Path]) -> None:
    # The client's own clock goes on, so the service starts at the same time.
    clock = ManualClock(time.time_ns() // 1_000_000)
    with Emulator.start(
        HERE / "emulator.json", clock=clock, tls_port=0, websocket_port=0, cert=certificate["cert"], key=certificate["key"]
    ) as emulator:

        def answer(command: str, arguments: Mapping[str, Any]) -> Any:
            match command:
                case "advance":
                    return emulator.advance(arguments["seconds"])
                case "now":
                    return clock()
                case "counts":
                    return emulator.counts(arguments["entity"])
                case "requests":
                    return emulator.requests
                case "fault":
                    return emulator.faults.add(Fault(**arguments))
            raise AssertionError(f"a scenario asked for {command!r}")

        given = {
            "connectionString": emulator.connection_string,
            "port": emulator.port,
            "tlsPort": emulator.tls_port,
            "webSocketPort": emulator.websocket_port,
        }
        node.run(scenario, given, answer)
