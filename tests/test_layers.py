"""One direction of imports: each part of the package knows only the parts before it (DESIGN section 1)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import spark_sb_mgmt

PACKAGE = "spark_sb_mgmt"

# What each part may import of ours, besides itself. The package's own __init__ gathers public names and is checked apart.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "amqp": {"errors", "model"},
    "operations": {"errors", "model", "amqp"},
    "connection": {"errors", "model", "amqp", "operations"},
    "client": {"errors", "model", "amqp", "operations", "connection"},
    "spark": {"errors", "model", "amqp", "operations", "connection", "client"},
    "emulator": {"errors", "model", "amqp", "operations"},
    "cli": {"errors", "model", "amqp", "client", "emulator"},
    "sample": {"emulator"},
    "__main__": {"cli"},
}
# Within `spark`, what these parts may not know: options know no work, and reading knows nothing of writing.
MAY_NOT_IMPORT: dict[str, tuple[str, ...]] = {
    "spark.options": ("spark.reading", "spark.writing"),
    "spark.reading": ("spark.writing",),
}
# Outside libraries that only some parts may know.
ONLY_IN: dict[str, set[str]] = {
    "pyspark": {"spark"},
    "proton": {"connection", "emulator"},
    "ssl": {"connection", "emulator"},
    "socket": {"connection", "emulator"},
}


def imported(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that a source imports, at any depth of it, as absolute names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") if is_package else module.split(".")[:-1]
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, node.module] if node.module else parts)
            # `from package import part` imports the part.
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def wrong_edges(root: Path) -> list[str]:
    wrong = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).with_suffix("").parts
        if inside == ("__init__",):
            continue
        part = inside[0]
        if part not in MAY_IMPORT:
            wrong.append(f"{'.'.join(inside)}: no layer is called {part!r}")
            continue
        module = ".".join([PACKAGE, *[name for name in inside if name != "__init__"]])
        for name in sorted(imported(path.read_text(encoding="utf-8"), module, inside[-1] == "__init__")):
            top, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if top == PACKAGE and other != part and other not in MAY_IMPORT[part]:
                wrong.append(f"{'.'.join(inside)} imports {name}")
            if top == PACKAGE and rest.startswith(MAY_NOT_IMPORT.get(".".join(inside[:2]), ("-",))):
                wrong.append(f"{'.'.join(inside)} imports {name}")
            if part not in ONLY_IN.get(top, {part}):
                wrong.append(f"{'.'.join(inside)} imports {name}")
    return wrong


def test_every_import_goes_one_way() -> None:
    assert wrong_edges(Path(spark_sb_mgmt.__file__).parent) == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        (
            "amqp/decode.py",
            "from spark_sb_mgmt.client import ManagementClient",
            "amqp.decode imports spark_sb_mgmt.client.ManagementClient",
        ),
        ("amqp/decode.py", "from ..spark import schema", "amqp.decode imports spark_sb_mgmt.spark.schema"),
        ("amqp/__init__.py", "from .. import client", "amqp.__init__ imports spark_sb_mgmt.client"),
        ("amqp/decode.py", "def f():\n    import spark_sb_mgmt.emulator.server", "amqp.decode imports spark_sb_mgmt.emulator.server"),
        ("emulator/server.py", "from spark_sb_mgmt import client", "emulator.server imports spark_sb_mgmt.client"),
        ("client.py", "import pyspark.sql", "client imports pyspark.sql"),
        ("amqp/decode.py", "import proton", "amqp.decode imports proton"),
        (
            "spark/reading/plan.py",
            "from spark_sb_mgmt.spark.writing.writer import ManagementWriter",
            "spark.reading.plan imports spark_sb_mgmt.spark.writing.writer.ManagementWriter",
        ),
        ("helpers.py", "", "helpers: no layer is called 'helpers'"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, path: str, source: str, expected: str) -> None:
    place = tmp_path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source, encoding="utf-8")
    assert wrong_edges(tmp_path) == [expected]


def test_a_right_import_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "amqp").mkdir()
    (tmp_path / "amqp" / "decode.py").write_text("from .types import Int\nfrom spark_sb_mgmt.errors import DecodeError", encoding="utf-8")
    assert wrong_edges(tmp_path) == []
