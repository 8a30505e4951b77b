"""The sorted map of messages, against a plain dict that is sorted each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sb_mgmt.emulator.entities import index as index_module
from spark_sb_mgmt.emulator.entities.index import SequenceIndex

NUMBERS = st.integers(0, 60)


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=200), NUMBERS)
def test_it_is_a_sorted_dict(steps: list[tuple[bool, int]], start: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Chunks so short that they split, empty and vanish all the time.
        patch.setattr(index_module, "CHUNK", 2)
        index: SequenceIndex[str] = SequenceIndex()
        model: dict[int, str] = {}
        for add, number in steps:
            if add and number not in model:
                model[number] = str(number)
                index.add(number, str(number))
            elif not add and number in model:
                assert index.pop(number) == model.pop(number)
            assert len(index) == len(model)
            assert list(index.values()) == [model[key] for key in sorted(model)]
        assert list(index.values_from(start)) == [model[key] for key in sorted(model) if key >= start]
        assert all((number in index) == (number in model) for number in range(61))


@given(st.lists(st.tuples(st.booleans(), st.lists(NUMBERS, unique=True, max_size=12)), max_size=40), st.booleans())
def test_many_at_once_are_as_one_by_one(steps: list[tuple[bool, list[int]]], ascending: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "CHUNK", 3)
        index: SequenceIndex[str] = SequenceIndex()
        model: dict[int, str] = {}
        for add, given_numbers in steps:
            numbers = sorted(given_numbers) if ascending else given_numbers
            if add:
                new = {number: str(number) for number in numbers if number not in model}
                index.add_all(new)
                model.update(new)
            else:
                there = [number for number in numbers if number in model]
                assert index.pop_all(there) == [model.pop(number) for number in there]
            assert list(index.values()) == [model[key] for key in sorted(model)]
            assert index.first() == min(model, default=None)
            assert index.find(range(61)) == [model.get(number) for number in range(61)]


@pytest.mark.parametrize("numbers", [[1], [1, 2], [2, 1]])
def test_many_are_added_once(numbers: list[int]) -> None:
    index: SequenceIndex[str] = SequenceIndex()
    index.add(1, "a")
    with pytest.raises(ValueError, match="there already"):
        index.add_all(dict.fromkeys(numbers, "b"))


def test_a_number_is_added_once() -> None:
    index: SequenceIndex[str] = SequenceIndex()
    index.add(1, "a")
    with pytest.raises(ValueError, match="there already"):
        index.add(1, "b")
