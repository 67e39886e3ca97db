"""What a training holds, as named arrays and words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wtxtgit.errors import UsageError
from wtxtgit.stream.buffers import SharedBuffer, arrays_in, plan_buffer
from wtxtgit.tensors.program_arrays import training_state


def copied(state: dict[Any, Any]) -> dict[str, np.ndarray]:
    """A state's arrays as a worker sees them."""
    arrays = training_state(state).arrays
    place = plan_buffer(arrays)
    buffer = SharedBuffer(1, place.size + len(place.table))
    buffer.fill(arrays, place)
    import mmap

    memory = mmap.mmap(buffer.descriptor, buffer.size)
    result = {
        array.name: np.frombuffer(bytes(array.data), array.dtype.descr).reshape(array.shape)
        for array in arrays_in(memoryview(memory), place.size, len(place.table))
    }
    buffer.close()
    return result


def test_names_are_joined_with_dots() -> None:
    state = {"a": {0: np.zeros(1), "b": [np.ones(2), {"c": np.ones(3)}]}, "z": np.int8([1])}
    assert list(copied(state)) == ["a.0", "a.b.0", "a.b.1.c", "z"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="<f4").reshape(3, 4),
        np.arange(12, dtype=">f8").reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype="<i2").reshape(3, 4)),
        np.arange(24, dtype="<u4").reshape(4, 6)[::2, ::-3],
        np.array(7, dtype="<i8"),
        np.zeros((0, 3), dtype="<f4"),
        np.array([True, False]),
        np.array([1 + 2j], dtype="<c16"),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_a_copy_has_the_values(array: np.ndarray) -> None:
    (copy,) = copied({"w": array}).values()
    assert copy.shape == array.shape
    assert copy.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(copy, array)


def test_a_copy_of_big_endian_times_without_a_unit_has_the_values() -> None:
    numbers = np.arange(3, dtype=">i8")
    (copy,) = copied({"w": numbers.view(">M8")}).values()
    assert copy.dtype == np.dtype("<M8")
    assert np.array_equal(copy.view("<i8"), numbers)


def test_memory_that_is_shared_is_copied_once() -> None:
    weights = np.arange(1000, dtype="<f4")
    state = {"embed": weights, "head": weights, "other": weights.copy(), "part": weights[:10]}
    place = plan_buffer(training_state(state).arrays)
    assert place.offsets[0] == place.offsets[1]
    assert len(set(place.offsets)) == 3
    copies = copied(state)
    assert np.array_equal(copies["head"], weights)
    assert np.array_equal(copies["part"], weights[:10])


def test_what_is_no_array_is_a_word() -> None:
    state = {"step": 5, "lr": 0.1, "on": True, "note": "a b", "x": np.float32(0.5), "empty": ""}
    assert dict(training_state(state).words) == {
        "step": "5",
        "lr": "0.1",
        "on": "True",
        "note": '"a b"',
        "x": "0.5",
        "empty": '""',
    }


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": {"f": print}}, '"a.f" is a builtin_function_or_method'),
        ({"a": None}, '"a" is a NoneType, not an array'),
        ({"a": {1.5: np.zeros(1)}}, 'a key of "a" is a float'),
        ({True: np.zeros(1)}, "is a bool"),
        ({"a.b": np.zeros(1), "a": {"b": np.zeros(1)}}, 'two values are named "a.b"'),
        ({1: np.zeros(1), "1": np.zeros(1)}, 'two values are named "1"'),
        ({"o": np.array([None])}, "objects and records"),
        ({"note": 'say "x"'}, "can't be written in the audit line"),
        ({"a b": 3}, "can't be written in the audit line"),
        ({"line": "a\nb"}, "can't be written in the audit line"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:30],
)
def test_what_is_refused_is_named(state: dict[Any, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        training_state(state)
    assert words in str(caught.value)


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {"w": np.zeros(1)}
    state["self"] = state
    with pytest.raises(UsageError, match="nested more than 64 deep"):
        training_state(state)


class FromDlpack:
    """What offers its memory by DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class AsArray(FromDlpack):
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


@pytest.mark.parametrize("kind", [FromDlpack, AsArray])
def test_arrays_of_other_frameworks(kind: type[FromDlpack]) -> None:
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    assert np.array_equal(copied({"w": kind(array)})["w"], array)


def test_a_model_that_breaks_off_is_named() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise RuntimeError("deleted")

    with pytest.raises(
        UsageError, match=r'"w" is a .*Broken, which does not convert to an array: deleted'
    ):
        training_state({"w": Broken()})
