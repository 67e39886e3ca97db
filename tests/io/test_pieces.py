"""Bytes in the pieces that they come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.pieces import PieceWindows, view_of_pieces
from wtxtgit.io.view import Windowed, mapped

LARGE = 1 << 40


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1), st.data())
def test_every_part_is_that_of_the_whole(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    view = Windowed(PieceWindows(pieces, len(whole)))
    assert len(view) == len(whole)
    assert view == whole
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    assert bytes(view[start:end]) == whole[start:end]
    assert mapped(view[start:end]).readonly


def test_a_part_of_one_piece_is_no_copy() -> None:
    pieces = [bytes(10), b"0123456789"]
    view = PieceWindows(pieces, 20)
    assert view.window(12, 15).obj is pieces[1]
    assert view.window(10, 20).obj is pieces[1]
    assert view.window(0, 10).obj is pieces[0]


def test_short_pieces_take_no_memory_of_their_own() -> None:
    pieces = [b"", *[b"ab"] * 1_000_000, bytes(70_000), b"c"]
    view = view_of_pieces(pieces, in_memory=LARGE)
    assert isinstance(view, Windowed)
    assert view == b"".join(pieces)
    assert len({id(mapped(view[at : at + 1]).obj) for at in range(0, len(view), 9_999)}) < 6


@pytest.mark.parametrize("pieces", [[], [b""], [b"a"], [bytes(100_000)]])
def test_one_piece_is_its_own_view(pieces: list[bytes]) -> None:
    view = view_of_pieces(pieces, in_memory=LARGE)
    assert bytes(view) == b"".join(pieces)


def test_more_than_memory_may_take_goes_to_a_file(tmp_path: Path) -> None:
    asked: list[int] = []

    def folder() -> Path:
        asked.append(1)
        return tmp_path

    pieces = [seeded(number).randbytes(100_000) for number in range(9)]
    for in_memory in (900_000, 899_999, 0):
        view = view_of_pieces(pieces, folder, in_memory=in_memory)
        assert bytes(view) == b"".join(pieces)
        assert isinstance(view, Windowed) == (in_memory == 900_000)
    assert len(asked) == 2


def test_pieces_are_taken_when_they_are_asked_for() -> None:
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(5):
            taken.append(number)
            yield b"%d" % number * 10

    view = PieceWindows(pieces(), 50)
    assert taken == []
    assert view.window(5, 15) == b"0" * 5 + b"1" * 5
    assert taken == [0, 1]
    assert view.window(3, 20) == b"0" * 7 + b"1" * 10
    assert taken == [0, 1]
    view.end()
    assert taken == [0, 1, 2, 3, 4]
    assert view.arrived == 50


def test_what_is_given_up_is_never_mistaken_for_other_bytes() -> None:
    view = PieceWindows([b"%d" % number * 10 for number in range(6)], 60)
    assert view.window(0, 60)
    # Of a piece that is given up in part all is kept.
    view.give_up(5, 35)
    for start, end in ((0, 10), (30, 60), (35, 41)):
        assert view.window(start, end) == b"".join(b"%d" % n * 10 for n in range(6))[start:end]
    for start, end in ((0, 11), (9, 31), (10, 20), (15, 16), (29, 30), (29, 60), (0, 60)):
        with pytest.raises(ValueError, match="given up"):
            view.window(start, end)
    view.give_up(0, 60)
    view.give_up(0, 60)
    with pytest.raises(ValueError, match="given up"):
        view.window(59, 60)


def test_passing_keeps_one_piece_or_two() -> None:
    pieces = [seeded(number).randbytes(700_000) for number in range(9)]
    view = PieceWindows(pieces, 6_300_000)
    given: list[bytes] = []
    for piece in view.passing():
        given.append(bytes(piece))
        assert len(view._pieces) <= 3
    assert b"".join(given) == b"".join(pieces)


@pytest.mark.parametrize("nbytes", [0, 9, 19, 21, 1 << 60])
def test_another_number_of_bytes_is_told(nbytes: int) -> None:
    with pytest.raises(EnvironmentFailure, match="0 bytes came, not"):
        list(PieceWindows([bytes(10), bytes(10)], nbytes).passing())
