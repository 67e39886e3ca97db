from __future__ import annotations

import json
import math
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wtxtgit.cli.output import write_json

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
PLAIN = st.recursive(
    LEAVES | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def spelled(value: object) -> str:
    pieces: list[str] = []
    write_json(value, pieces.append)
    return "".join(pieces)


@settings(max_examples=50)
@given(PLAIN)
def test_it_is_what_the_standard_library_spells(value: object) -> None:
    assert spelled(value) == json.dumps(value, indent=2) + "\n"


def test_what_json_lacks() -> None:
    assert json.loads(spelled((math.inf, -math.inf, b"\xff", {1: ()}, "\ud800"))) == [
        "inf", "-inf", "ff", {"1": []}, "\ud800"
    ]  # fmt: skip
    assert spelled(math.nan) == '"nan"\n'


class Word(str):
    """A text that calls itself something else."""

    def __str__(self) -> str:
        return "other"


def test_a_type_is_spelled_as_its_base() -> None:
    value = [Word("w"), HTTPStatus.OK, {"k": HTTPStatus.OK, Word("w"): True}]
    assert spelled(value) == '[\n  "w",\n  200,\n  {\n    "k": 200,\n    "other": true\n  }\n]\n'
    assert spelled(HTTPStatus.OK) == "200\n"


def test_data_that_is_not_plain() -> None:
    with pytest.raises(TypeError, match="set is not plain data"):
        spelled([{1}])


def test_long_data_is_written_in_pieces() -> None:
    value = [{"n": n} for n in range(100_000)]
    pieces: list[str] = []
    write_json(value, pieces.append)
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == value
