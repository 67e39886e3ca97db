"""Pieces as one view are what they are put together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.io.spool import Gathered, gathered
from wtxtgit.io.view import Windowed, mapped

LARGE = 1 << 40


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1), st.data())
def test_every_part_is_that_of_the_whole(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    view = Windowed(Gathered(pieces))
    assert len(view) == len(whole)
    assert view == whole
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    assert bytes(view[start:end]) == whole[start:end]
    assert mapped(view[start:end]).readonly


def test_a_part_of_one_piece_is_no_copy() -> None:
    pieces = [bytes(10), b"0123456789"]
    view = Gathered(pieces)
    assert view.window(12, 15).obj is pieces[1]
    assert view.window(10, 20).obj is pieces[1]
    assert view.window(0, 10).obj is pieces[0]


def test_short_pieces_take_no_memory_of_their_own() -> None:
    pieces = [b"", *[b"ab"] * 1_000_000, bytes(70_000), b"c"]
    view = gathered(pieces, in_memory=LARGE)
    assert isinstance(view, Windowed)
    assert view == b"".join(pieces)
    assert len({id(mapped(view[at : at + 1]).obj) for at in range(0, len(view), 9_999)}) < 6


@pytest.mark.parametrize("pieces", [[], [b""], [b"a"], [bytes(100_000)]])
def test_one_piece_is_its_own_view(pieces: list[bytes]) -> None:
    view = gathered(pieces, in_memory=LARGE)
    assert bytes(view) == b"".join(pieces)


def test_more_than_memory_may_take_goes_to_a_file(tmp_path: Path) -> None:
    asked: list[int] = []

    def folder() -> Path:
        asked.append(1)
        return tmp_path

    pieces = [seeded(number).randbytes(100_000) for number in range(9)]
    for in_memory in (900_000, 899_999, 0):
        view = gathered(pieces, folder, in_memory=in_memory)
        assert bytes(view) == b"".join(pieces)
        assert isinstance(view, Windowed) == (in_memory == 900_000)
    assert len(asked) == 2
