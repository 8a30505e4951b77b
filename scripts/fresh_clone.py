#!/usr/bin/env python3
"""`make fresh`: what somebody gets who clones this and types the README's commands.

The one rule: only what is committed counts. A clone in a new folder, an empty home, none of the caller's settings but those for the
network; afterwards git must find nothing in the clone that is not ignored. pip's and npm's caches are the caller's: everything is resolved
and installed anew, but what was downloaded or built once is not again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The tests themselves ran already; what is tried here is that `make test` sets up what they need and starts them.
COMMANDS = (
    ("make", "demo"),
    ("make", "test", "TESTS=tests/test_layers.py", "COMPAT_TESTS=tests/spark/test_datasource.py"),
)
DEADLINE_S = 900
# The network's own settings, by any spelling.
KEPT = re.compile(
    r"(?i)PATH|LANG|JAVA_HOME|PIP_.*|npm_config_.*|.*_proxy|SSL_CERT_.*|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|SBMGMT_JAVA_PLACES"
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="fresh-") as folder:
        home, clone = Path(folder, "home"), Path(folder, "sbmgmt")
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth", "1", f"file://{ROOT}", clone], check=True)
        environment = fresh_environment(home)
        for command in COMMANDS:
            started = time.monotonic()
            print(f"fresh clone: {' '.join(command)}", flush=True)
            done = subprocess.run(command, cwd=clone, env=environment, timeout=DEADLINE_S, check=False)
            if done.returncode != 0:
                print(f"fresh clone: {' '.join(command)} failed with {done.returncode}", file=sys.stderr)
                return 1
            print(f"fresh clone: {' '.join(command)} took {time.monotonic() - started:.0f} s", flush=True)
        left = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True).stdout
        if left:
            print(f"fresh clone: these were left behind, or changed:\n{left}", file=sys.stderr)
            return 1
    return 0


def fresh_environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    caches = {
        "PIP_CACHE_DIR": cache_of("pip", sys.executable, "-m", "pip", "cache", "dir"),
        "npm_config_cache": cache_of("npm", "npm", "config", "get", "cache"),
    }
    return {**caches, **kept, "HOME": str(home)}


def cache_of(what: str, *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        sys.exit(f"fresh clone: {what} does not say where its cache is: {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
