"""The emulator as a program of its own, started as users start it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.emulator.server.peer import DEADLINE_S, Peer

ROOT = Path(__file__).parents[3]


class Program:
    """`python -m spark_sb_mgmt.emulator` on a free port; use it as a context, so that it ends with the test whatever happens."""

    def __init__(self, config: Mapping[str, Any] | Path, folder: Path, *arguments: str, limit_kb: int | None = None) -> None:
        if not isinstance(config, Path):
            path = folder / "config.json"
            path.write_text(json.dumps(config))
            config = path
        command = [sys.executable, "-m", "spark_sb_mgmt.emulator", "--config", str(config)]
        command += [*([] if "--port" in arguments else ["--port", "0"]), *arguments]
        if limit_kb is not None:
            # No file may grow beyond it: how a full disk looks to the program.
            command = ["bash", "-c", f'ulimit -f {limit_kb}; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.connection_string = ""

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ready(self) -> Program:
        """Wait for the line that says so."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], DEADLINE_S)[0], "it does not become ready"
        line = self.process.stdout.readline()
        word, _, self.connection_string = line.rstrip("\n").partition(" ")
        assert word == "ready", f"{line!r} {self.process.stderr.read() if self.process.stderr else ''}"
        return self

    @property
    def port(self) -> int:
        endpoint = self.connection_string.partition(";")[0].partition("=")[2]
        port = urlsplit(endpoint).port
        assert port is not None
        return port

    def peer(self) -> Peer:
        return Peer(socket.create_connection(("127.0.0.1", self.port), DEADLINE_S))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """The exit code after a signal, and how many seconds it took."""
        start = time.monotonic()
        os.kill(self.process.pid, number)
        return self.process.wait(DEADLINE_S), time.monotonic() - start

    def failure(self) -> tuple[int, list[str], str]:
        """Exit code, lines on standard error and standard output of a program that ends by itself."""
        output, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors.splitlines(), output
