"""When scheduled messages are due, against a plain set of times and numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.emulator.entities.schedule import Schedule

TIMES, NUMBERS = st.integers(0, 5), st.lists(st.integers(0, 20), max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "pop"]), TIMES, NUMBERS), max_size=50))
def test_it_is_a_set_of_times_and_numbers(steps: list[tuple[str, int, list[int]]]) -> None:
    schedule = Schedule()
    model: set[tuple[int, int]] = set()
    for step, time, numbers in steps:
        if step == "add" and numbers:
            schedule.add({time: numbers, time + 1: numbers})
            model |= {(due, number) for due in (time, time + 1) for number in numbers}
        elif step == "discard":
            schedule.discard({time: numbers, time + 1: numbers})
            model -= {(due, number) for due in (time, time + 1) for number in numbers}
        elif step == "pop":
            for expected in sorted(model):
                assert schedule.next_due() == expected[0]
                if expected[0] > time:
                    break
                assert schedule.pop_due(time) == expected[1]
                model.remove(expected)
            assert schedule.pop_due(time) is None
        assert schedule.next_due() == min((due for due, _ in model), default=None)
