"""Set-up on machines that lack something, made up from fake tools: each need is met, installed, or one line says what to install."""

from __future__ import annotations

import importlib.util
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "prerequisites.py"
DEBIAN, FEDORA = 'NAME="Debian"\nID=debian\n', "ID=fedora\n"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prerequisites", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prerequisites"] = module
    spec.loader.exec_module(module)
    return module


prerequisites = _load()


def tool(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def java_home(place: Path, version: str, status: int = 0) -> Path:
    """A Java that tells its version the way the real one does, on stderr."""
    settings = f"    java.home = {place}\n    java.specification.version = {version}"
    tool(place / "bin" / "java", f"cat >&2 <<'END'\n{settings}\nEND\nexit {status}")
    return place


class FakeMachine:
    """A machine with nothing on its PATH but what a test puts there; apt-get writes down what it was asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "apt.log"
        for needed in ("cat", "sh", "mkdir", "chmod", "cp", "echo"):
            for folder in ("/bin", "/usr/bin"):
                if (Path(folder) / needed).exists():
                    (self.bin / needed).symlink_to(Path(folder) / needed)
                    break
        self.environ = {"PATH": str(self.bin)}
        self.c_compiler = ["cc"]

    def apt(self, installs: str = "", status: int = 0) -> None:
        tool(self.bin / "apt-get", f'echo "$@" >> {self.log}\n{installs}\nexit {status}')

    def apt_calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def machine(self, *, root: bool = True, os_release: str = DEBIAN):  # type: ignore[no-untyped-def]
        return prerequisites.Machine(
            environ=self.environ,
            is_root=root,
            os_release=os_release,
            java_places=[str(self.root / "jvm" / "*")],
            python=sys.executable,
            python_version=(3, 11),
            python_include=str(self.root / "include"),
            c_compiler=self.c_compiler,
        )


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def run(fake: FakeMachine, capsys: pytest.CaptureFixture[str], *arguments: str, **how: object) -> tuple[int, str, list[str]]:
    status = prerequisites.main(arguments, fake.machine(**how))
    out, err = capsys.readouterr()
    return status, out.strip(), err.strip().splitlines()


@pytest.mark.parametrize("where", ["JAVA_HOME", "PATH", "usual place"])
def test_java_is_found_where_it_may_be(fake: FakeMachine, capsys: pytest.CaptureFixture[str], where: str) -> None:
    home = java_home(fake.root / ("jvm" if where == "usual place" else "elsewhere") / "jdk", "17")
    if where == "JAVA_HOME":
        fake.environ["JAVA_HOME"] = str(home)
    elif where == "PATH":
        (fake.bin / "java").symlink_to(home / "bin" / "java")
    assert run(fake, capsys, "java") == (0, str(home), [])


def test_a_java_that_is_too_old_or_cannot_start_spark_is_passed_over(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    fake.environ["JAVA_HOME"] = str(java_home(fake.root / "old", "1.8"))
    java_home(fake.root / "jvm" / "a-trimmed", "17", status=1)
    newer = java_home(fake.root / "jvm" / "b-good", "21")
    status, out, err = run(fake, capsys, "java")
    assert (status, out) == (0, str(newer))
    assert len(err) == 1
    assert "is not Java 17 or newer" in err[0]


def test_a_java_newer_than_the_oldest_spark_runs_on_is_passed_over(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    java_home(fake.root / "jvm" / "a", "25")
    right = java_home(fake.root / "jvm" / "b", "21")
    assert run(fake, capsys, "java", "--newest", "21") == (0, str(right), [])


def test_missing_java_is_installed_as_root_on_debian(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    ready = java_home(fake.root / "package", "17")
    jvm = fake.root / "jvm"
    fake.apt(installs=f'case "$*" in *openjdk-17*) mkdir -p {jvm}; cp -r {ready} {jvm}/java-17;; esac')
    status, out, err = run(fake, capsys, "java")
    assert (status, out) == (0, str(ready))
    assert fake.apt_calls() == ["update", "install --yes --no-install-recommends openjdk-17-jre-headless"]
    assert err == ["sbmgmt set-up: installing openjdk-17-jre-headless with apt-get"]


@pytest.mark.parametrize(("root", "os_release"), [(False, DEBIAN), (True, FEDORA), (True, "")])
def test_elsewhere_missing_java_is_one_line_that_says_what_to_install(
    fake: FakeMachine, capsys: pytest.CaptureFixture[str], root: bool, os_release: str
) -> None:
    fake.apt()
    status, out, err = run(fake, capsys, "java", root=root, os_release=os_release)
    assert (status, out, len(err)) == (1, "", 1)
    assert "Java 17 or newer is needed by Spark" in err[0]
    assert "apt-get install openjdk-17-jre-headless" in err[0]
    assert fake.apt_calls() == []


def test_an_installation_that_fails_is_told(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    fake.apt(installs="echo 'E: no network'", status=100)
    status, out, err = run(fake, capsys, "java")
    assert (status, out) == (1, "")
    assert "`apt-get update` failed: E: no network" in err[-1]


def test_each_package_that_could_not_be_installed_is_told_with_its_reason(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    fake.apt(installs='case "$*" in *17*) echo "E: held back"; exit 100;; *21*) echo "E: no candidate"; exit 100;; esac')
    status, out, err = run(fake, capsys, "java")
    assert (status, out) == (1, "")
    assert "openjdk-17-jre-headless` failed: E: held back" in err[-1]
    assert "openjdk-21-jre-headless` failed: E: no candidate" in err[-1]


def test_a_missing_compiler_is_installed_as_root_on_debian(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    fake.apt(installs=f'case "$*" in *gcc*) printf "#!/bin/sh\\nexit 0\\n" > {fake.bin}/cc; chmod +x {fake.bin}/cc;; esac')
    (fake.bin / "printf").symlink_to("/usr/bin/printf")
    status, _, err = run(fake, capsys, "build")
    assert status == 0
    assert fake.apt_calls()[-1] == "install --yes --no-install-recommends gcc libc6-dev python3.11-dev"
    assert err == ["sbmgmt set-up: installing gcc libc6-dev python3.11-dev with apt-get"]


def test_elsewhere_a_missing_compiler_is_one_line_that_says_what_to_install(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(fake, capsys, "build", root=False)
    assert (status, out, len(err)) == (1, "", 1)
    assert "a C compiler and the headers of python3.11 are needed to build python-qpid-proton" in err[0]
    assert "apt-get install gcc libc6-dev" in err[0]


@pytest.mark.parametrize("version", [None, "v12.1.0"])
def test_missing_or_old_node_is_one_line(fake: FakeMachine, capsys: pytest.CaptureFixture[str], version: str | None) -> None:
    if version:
        tool(fake.bin / "node", f"echo {version}")
    status, _, err = run(fake, capsys, "node")
    assert (status, len(err)) == (1, 1)
    assert "Node.js 18 or newer with npm is needed" in err[0]
