"""SIGKILL at any moment: what was acknowledged is there, and nothing that was not done.

A program (`storage_world`) works on a directory and says before and after each commit what the state then is. It is killed, over and over,
on the same directory, which nobody closes in between.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree
from typing import NamedTuple

import pytest

from tests.emulator.entities.broker import START
from tests.emulator.storage_world import World

ROOT = Path(__file__).parents[2]
LIVES = 8


class Said(NamedTuple):
    """One line of the program."""

    word: str
    now: int
    digest: str


def said(line: str) -> Said:
    word, now, digest = line.split()
    return Said(word, int(now), digest)


def live(data_dir: Path, chance: Random, start: int) -> list[Said]:
    """Let the program work on a directory and kill it; all that it said."""
    command = [sys.executable, "-m", "tests.emulator.storage_world", str(data_dir), str(chance.random()), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        # Odd: it has just said `try`, and the commit is under way. Even: it has just said `done`, and works on.
        lines = [program.stdout.readline() for _ in range(1 + chance.randrange(60))]
        program.kill()
        lines += program.stdout.readlines()
    assert program.returncode == -9, f"the program ended by itself: {lines[-3:]}"
    return [said(line) for line in lines]


@pytest.mark.parametrize("seed", range(3))
def test_after_a_kill_the_state_is_that_of_the_last_commit_which_was_acknowledged_or_of_the_one_under_way(
    tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    data_dir = tmp_path / "data"
    copies = (tmp_path / f"copy{number}" for number in count())

    def found(expected: Said) -> bool:
        # In a copy, so that the next life meets the directory as the kill left it.
        copy = next(copies)
        copytree(data_dir, copy)
        world = World(copy, expected.now)
        world.store.close()
        return world.digest() == expected.digest

    now, digest = START, None
    for _ in range(LIVES):
        history = live(data_dir, chance, now)
        assert digest in (None, history[0].digest), "the program did not find what was there after the kill"
        acknowledged = next(each for each in reversed(history) if each.word != "try")
        possible = [acknowledged] if history[-1] is acknowledged else [acknowledged, history[-1]]
        state = next((each for each in possible if found(each)), None)
        assert state is not None, f"after {len(history)} lines the state is none of {possible}"
        now, digest = state.now, state.digest
