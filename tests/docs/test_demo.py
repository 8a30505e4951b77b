"""`make demo`: its numbers cannot be wrong unseen. The whole of it is run by `make fresh`, from a clone, in CI."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wrong_number_is_shown_and_fails_the_command(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    checks = demo.Checks()
    checks.add("messages by state", {"active": 5}, {"active": 5})
    checks.add("dead letters", 3, 4)
    assert checks.report() == 1
    said = capsys.readouterr().out
    assert "WRONG dead letters" in said
    assert "must be 4" in said
    assert "1 of 2 numbers are right." in said


def test_what_it_expects_is_not_what_it_does_nothing_for(demo: ModuleType) -> None:
    """Were nothing scheduled, cancelled or recovered, its numbers would be wrong."""
    assert demo.expected_states() != demo.DAY.states
    assert 0 < len(demo.american()) < demo.DAY.waiting
    assert 0 < len(demo.paid_orders()) < demo.DAY.states["deferred"]
