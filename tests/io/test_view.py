"""Views of files behave alike, mapped as a whole or a window at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.copies import Copies, windowed
from wtxtgit.io.view import PIECE, Windowed, mapped, pieces

places = st.one_of(st.none(), st.integers(-40, 40))


@given(st.binary(max_size=30), st.lists(st.tuples(places, places), max_size=3))
def test_slices_of_slices_are_those_of_bytes(
    content: bytes, cuts: list[tuple[int | None, int | None]]
) -> None:
    wanted, found = content, windowed(content)
    for start, end in cuts:
        wanted, found = wanted[start:end], found[start:end]
    assert isinstance(found, Windowed)
    assert bytes(found) == wanted
    assert (len(found), found.nbytes, bool(found)) == (len(wanted), len(wanted), bool(wanted))
    assert mapped(found) == wanted
    assert [found[n] for n in range(len(found))] == list(wanted)
    assert [found[-n] for n in range(1, len(found) + 1)] == list(reversed(wanted))


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_comparing_is_that_of_bytes(one: bytes, other: bytes) -> None:
    for second in (other, bytearray(other), memoryview(other), windowed(other)):
        assert (windowed(one) == second) is (one == other)
        assert (second == windowed(one)) is (one == other)
        assert (windowed(one) != second) is (one != other)
    assert windowed(one) != "words"


def test_long_views_are_compared_piece_by_piece() -> None:
    content = bytes(PIECE) * 2 + b"end"
    assert windowed(content, most=PIECE) == memoryview(content)
    assert windowed(content, most=PIECE) != memoryview(content[:-1] + b"!")


@given(st.binary(max_size=50), st.integers(1, 20))
def test_pieces_are_the_bytes_in_order(content: bytes, step: int) -> None:
    for view in (memoryview(content), windowed(content, most=step)):
        found = [bytes(piece) for piece in pieces(view, step)]
        assert b"".join(found) == content
        assert all(len(piece) == step for piece in found[:-1])


def test_a_part_starts_and_ends_where_it_is_said() -> None:
    part = Windowed(Copies(b"0123456789", 4), 3, 7)
    assert bytes(part) == b"3456"
    assert bytes(Windowed(Copies(b"0123", 4))) == b"0123"


def test_nothing_is_mapped_for_lengths_and_slices() -> None:
    view = windowed(b"content", most=0)
    assert len(view[2:][:3]) == 3
    assert bytes(view[4:4]) == b""
    assert view != b"longer than it"


@pytest.mark.parametrize("at", [3, -4])
def test_an_index_outside_is_refused(at: int) -> None:
    with pytest.raises(IndexError):
        windowed(b"abc")[at]


def test_what_it_can_not_do_is_refused() -> None:
    view = windowed(b"abc")
    with pytest.raises(NotImplementedError):
        view[::2]
    with pytest.raises(TypeError):
        hash(view)
