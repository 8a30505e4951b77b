"""The README says what is so: its programs run and print what it shows, its tables are those of the code, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sb_mgmt.amqp.columns import COLUMNS
from spark_sb_mgmt.cli.main import parser
from spark_sb_mgmt.emulator.__main__ import _parser as emulator_parser
from tests.docs.readme import blocks, outputs, program
from tests.docs.tables import MEANINGS, README, filled

ROOT = README.parent
TEXT = README.read_text(encoding="utf-8")
# A user who sees one of these looks for it here, so it must be what is really said: these tests provoke them.
PROVOKED = "".join(
    (ROOT / "tests" / path).read_text(encoding="utf-8") for path in ("docs/test_mistakes.py", "spark_pure/test_write_schema.py")
)


@pytest.mark.timeout(240)
def test_its_programs_run_and_print_what_it_shows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wrong = []
    with program(tmp_path) as running:
        for block, shown, printed in outputs(TEXT, running.run):
            if shown is None:
                assert printed.strip() == "", f"line {block.line} prints, and nothing below it says what"
            elif shown.text != printed:
                wrong.append(f"line {shown.line} shows\n{shown.text}and it is\n{printed}")
    assert wrong == [], "make docs writes it anew:\n" + "\n".join(wrong)


def test_its_tables_are_those_of_the_code() -> None:
    assert filled(TEXT) == TEXT, "make docs writes them anew"
    assert set(MEANINGS) == set(COLUMNS)


def test_every_fence_has_a_language_that_is_looked_at() -> None:
    assert {block.language for block in blocks(TEXT)} == {"python", "text", "mermaid", ""}
    assert TEXT.count("```") == 2 * len(blocks(TEXT))


def test_its_commands_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = [line for block in blocks(TEXT) if block.language == "" for line in block.text.splitlines()]
    named = re.findall(r"`(make [a-z-]+)`", TEXT)
    assert commands
    assert named
    for command in (*commands, *named):
        words = shlex.split(command)
        if words[0] == "make":
            assert words[1] in targets, command
        else:
            assert words[:3] == ["python", "-m", "spark_sb_mgmt"], command
            if words[3] == "emulator":
                emulator_parser().parse_args(words[4:])
            else:
                parser().parse_args(words[3:])


def test_its_links_lead_somewhere() -> None:
    headings = [line.lstrip("# ").lower() for line in TEXT.splitlines() if line.startswith("#")]
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (ROOT / target).exists(), target


def test_errors_of_its_troubleshooting_are_what_is_said() -> None:
    table = TEXT.partition("## Troubleshooting")[2].partition("\n## ")[0]
    quoted = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert len(quoted) >= 10
    assert [text for text in quoted if text not in PROVOKED and text.replace('"', '\\"') not in PROVOKED] == []


def test_layers_in_it_are_those_of_the_package() -> None:
    table = TEXT.partition("The package in layers")[2]
    named = re.findall(r"^\| (`[a-z]+`(?:, `[a-z]+`)*) \|", table, re.MULTILINE)
    layers = {name.strip("` ") for cell in named for name in cell.split(",")}
    assert layers == {path.parent.name for path in (ROOT / "spark_sb_mgmt").glob("*/__init__.py")}


def test_its_lines_are_no_wider_than_those_of_the_code() -> None:
    code = "".join(block.text for block in blocks(TEXT) if block.language == "python")
    assert [line for line in code.splitlines() if len(line) > 140] == []
