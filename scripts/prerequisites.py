#!/usr/bin/env python3
"""Finds what pip cannot install: Java for Spark, a C compiler for python-qpid-proton, Node.js for the JavaScript peer tests.

The one rule: each need is met, installed (as root on Debian or Ubuntu), or answered with one line on stderr that says what to install
and exit status 1; nothing half-found is passed on. Only the home of the Java found goes to stdout, so a caller can write
`JAVA_HOME=$(python3 scripts/prerequisites.py java)`. Standard library only: this runs before anything is installed.

Set SBMGMT_JAVA_PLACES (colon-separated globs of Java homes) to search other places than the usual ones.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17
# In this order: Debian 13 no longer has 17.
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
OLDEST_NODE = 18

USUAL_JAVA_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
)

# The Python headers are part of what a build needs, and linking shows that the C library's development files are there too.
PROBE_SOURCE = "#include <Python.h>\n#include <stdlib.h>\nint sbmgmt_probe(void) { return EXIT_SUCCESS; }\n"

PROBE_DEADLINE_SECONDS = 60
APT_DEADLINE_SECONDS = 900


class MissingPrerequisiteError(Exception):
    """A need that could not be met; the text is the one line for the user."""


@dataclass(frozen=True)
class Machine:
    """What this script asks of the machine, in one place, so that a test can make one up."""

    environ: Mapping[str, str]
    is_root: bool
    os_release: str
    java_places: Sequence[str]
    python: str
    python_version: tuple[int, int]
    python_include: str
    c_compiler: Sequence[str]

    @classmethod
    def this_one(cls) -> Machine:
        os_release = Path("/etc/os-release")
        java_places = os.environ.get("SBMGMT_JAVA_PLACES")
        return cls(
            environ=os.environ,
            is_root=os.geteuid() == 0,
            os_release=os_release.read_text(encoding="utf-8") if os_release.exists() else "",
            java_places=USUAL_JAVA_PLACES if java_places is None else [p for p in java_places.split(":") if p],
            python=sys.executable,
            python_version=sys.version_info[:2],
            python_include=sysconfig.get_path("include"),
            c_compiler=shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"),
        )

    def which(self, tool: str) -> str | None:
        return shutil.which(tool, path=self.environ.get("PATH", ""))

    def run(self, command: Sequence[str], deadline_seconds: float = PROBE_DEADLINE_SECONDS, **environ: str) -> tuple[int, str]:
        """Exit status and everything printed; a command that cannot start or does not end has failed."""
        try:
            done = subprocess.run(
                command,
                env={**self.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=deadline_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, str(error)
        return done.returncode, done.stdout.decode(errors="replace")

    def has_apt(self) -> bool:
        distribution = re.search(r'^ID="?(\w+)', self.os_release, re.MULTILINE)
        return distribution is not None and distribution[1] in ("debian", "ubuntu") and self.is_root and self.which("apt-get") is not None


def tell(line: str) -> None:
    print(f"sbmgmt set-up: {line}", file=sys.stderr)


def apt_install(machine: Machine, packages: Sequence[str]) -> str | None:
    """None when the packages are installed, else why not."""
    tell(f"installing {' '.join(packages)} with apt-get")
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]):
        status, output = machine.run(command, APT_DEADLINE_SECONDS, DEBIAN_FRONTEND="noninteractive")
        if status != 0:
            lines = output.strip().splitlines() or ["no output"]
            return f"`{' '.join(command)}` failed: {lines[-1].strip()}"
    return None


# Java


def java_version(machine: Machine, home: str) -> tuple[int, str] | None:
    """The feature version and the real home of the Java in `home`, or None where it cannot run Spark.

    Java is started with the module Spark asks for: a trimmed runtime without it reports 17 and then cannot start Spark.
    """
    java = Path(home) / "bin" / "java"
    if not java.is_file():
        return None
    status, output = machine.run([str(java), "--add-modules", "jdk.incubator.vector", "-XshowSettings:properties", "-version"])
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    real_home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    if status != 0 or version is None or real_home is None:
        return None
    return int(version[1]), real_home[1].strip()


def java_homes(machine: Machine) -> Iterator[str]:
    if machine.environ.get("JAVA_HOME"):
        yield machine.environ["JAVA_HOME"]
    on_path = machine.which("java")
    if on_path is not None:
        # <home>/bin/java; a link or a launcher on PATH tells its real home itself.
        yield str(Path(on_path).parent.parent)
        yield str(Path(on_path).resolve().parent.parent)
    for place in machine.java_places:
        yield from sorted(glob.glob(os.path.expanduser(place)))


def find_java(machine: Machine, newest: int | None) -> str | None:
    tried: set[str] = set()
    for home in java_homes(machine):
        if home in tried:
            continue
        tried.add(home)
        found = java_version(machine, home)
        if found is not None and found[0] >= OLDEST_JAVA and (newest is None or found[0] <= newest):
            asked = machine.environ.get("JAVA_HOME")
            if asked and home != asked:
                tell(f"JAVA_HOME={asked} is not {java_wanted(newest)} that runs Spark; using {found[1]}")
            return found[1]
    return None


def java_wanted(newest: int | None) -> str:
    return f"Java {OLDEST_JAVA} or newer" if newest is None else f"Java {OLDEST_JAVA} to {newest}"


def need_java(machine: Machine, newest: int | None = None) -> str:
    home = find_java(machine, newest)
    if home is not None:
        return home
    problems = ["not found in JAVA_HOME, PATH or the usual places"]
    if machine.has_apt():
        for package in JAVA_PACKAGES:
            problem = apt_install(machine, [package])
            home = find_java(machine, newest) if problem is None else None
            if home is not None:
                return home
            problems.append(problem or f"not found even after installing {package}")
    raise MissingPrerequisiteError(
        f"{java_wanted(newest)} is needed by Spark ({'; '.join(dict.fromkeys(problems))}): "
        f"install it (Debian, Ubuntu: `apt-get install {JAVA_PACKAGES[0]}` as root) or set JAVA_HOME to it"
    )


# What it takes to make the virtual environment and to build python-qpid-proton in it


def compiler_problem(machine: Machine) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE_SOURCE, encoding="utf-8")
        command = [*machine.c_compiler, f"-I{machine.python_include}", "-shared", "-fPIC", str(source)]
        status, output = machine.run([*command, "-o", str(Path(folder) / "probe.so")])
    if status == 0:
        return None
    errors = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines() or ["no output"]
    return errors[0].replace(f"{source}:", "").strip()


def venv_problem(machine: Machine) -> str | None:
    status, output = machine.run([machine.python, "-c", "import ensurepip, venv"])
    return None if status == 0 else (output.strip().splitlines() or ["no output"])[-1]


def need_for_python(machine: Machine, what: str, problem_of: Callable[[Machine], str | None], packages: Sequence[str]) -> None:
    problem = problem_of(machine)
    if problem is not None and machine.has_apt():
        problem = apt_install(machine, packages) or problem_of(machine)
    if problem is not None:
        raise MissingPrerequisiteError(f"{what} ({problem}): install it (Debian, Ubuntu: `apt-get install {' '.join(packages)}` as root)")


def need_build_tools(machine: Machine) -> None:
    python = "python{}.{}".format(*machine.python_version)
    need_for_python(machine, f"{python}'s venv module is needed", venv_problem, [f"{python}-venv"])
    headers = [] if (Path(machine.python_include) / "Python.h").exists() else [f"{python}-dev"]
    need_for_python(
        machine,
        f"a C compiler and the headers of {python} are needed to build python-qpid-proton",
        compiler_problem,
        ["gcc", "libc6-dev", *headers],
    )


# Node.js


def need_node(machine: Machine) -> None:
    status, output = machine.run(["node", "--version"]) if machine.which("node") else (1, "")
    version = re.match(r"v(\d+)\.", output)
    if status != 0 or version is None or int(version[1]) < OLDEST_NODE or machine.which("npm") is None:
        found = f"found node {output.strip()}" if version else "node not found"
        npm = "" if machine.which("npm") else ", npm not found"
        raise MissingPrerequisiteError(
            f"Node.js {OLDEST_NODE} or newer with npm is needed to test the emulator with @azure/service-bus "
            f"({found}{npm}): install nodejs and npm"
        )


def main(arguments: Sequence[str], machine: Machine) -> int:
    parser = argparse.ArgumentParser(prog="prerequisites.py", description="Finds or installs what pip cannot.")
    needs = parser.add_subparsers(dest="need", required=True)
    java = needs.add_parser("java", help="print the home of a Java that runs Spark")
    java.add_argument("--newest", type=int, help="newest feature version accepted (default: any)")
    needs.add_parser("build", help="check Python's venv module, the C compiler and Python's headers")
    needs.add_parser("node", help="check Node.js and npm")
    asked = parser.parse_args(arguments)
    try:
        if asked.need == "java":
            print(need_java(machine, asked.newest))
        elif asked.need == "build":
            need_build_tools(machine)
        else:
            need_node(machine)
    except MissingPrerequisiteError as missing:
        tell(str(missing))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Machine.this_one()))
