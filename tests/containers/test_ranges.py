"""Ranges become extents by one rule, whatever the format."""

from __future__ import annotations

import time

import pytest

from tests.containers.samples import check_cut, spelled
from wtxtgit.containers import ranges
from wtxtgit.containers.ranges import Range, Stored
from wtxtgit.errors import FormatError
from wtxtgit.model.array import Cut


def cut(data: bytes, *given: Range) -> Cut:
    result = ranges.cut("fold", memoryview(data), given)
    check_cut(result, data)
    return result


def tensor(
    name: str,
    start: int,
    end: int,
    shape: tuple[int, ...],
    element: str | None = "u8",
) -> Range:
    return ranges.tensor(Stored(name, "X", shape, start, end, element))


def test_gaps_become_zeros_hex_or_arrays() -> None:
    data = b"ab" + bytes(5) + b"cd" + b"\1" * 64 + b"ef" + b"\2" * 65
    result = cut(data, ranges.part(73, 75, "c"), ranges.part(0, 2, "a"), ranges.part(7, 9, "b"))
    assert spelled(result) == ["a", "zeros:5", "b", "hex:" + "01" * 64, "c", "_gap"]


def test_the_longest_run_of_zeros() -> None:
    assert spelled(cut(bytes(65_536))) == ["zeros:65536"]
    assert spelled(cut(bytes(65_537))) == ["_gap"]


def test_zeros_beyond_the_allowance_are_all_arrays() -> None:
    step = 65_537
    runs = 257
    data = (b"\7" + bytes(65_536)) * runs + b"\7\0"
    parts = [ranges.part(n * step, n * step + 1, "p") for n in range(runs + 1)]
    words = spelled(cut(data, *parts))
    assert not any(word.startswith(("zeros", "hex")) for word in words)
    assert words[-1] == f"_gap__{runs + 1}"
    fewer = (b"\7" + bytes(65_536)) * 256
    assert spelled(cut(fewer, *parts[:256]))[1::2] == ["zeros:65536"] * 256


def test_a_range_that_loses_a_byte_is_gap_and_takes_none() -> None:
    data = bytes(range(1, 31))
    words = spelled(
        cut(
            data,
            ranges.part(0, 10, "a"),
            ranges.part(9, 21, "loser"),
            ranges.part(20, 30, "b"),
        )
    )
    assert words == ["a", "hex:" + data[10:20].hex(), "b"]


def test_of_equal_starts_the_longer_then_the_smaller_name_wins() -> None:
    data = bytes(range(1, 21))
    assert spelled(cut(data, ranges.part(0, 10, "a"), ranges.part(0, 20, "z"))) == ["z"]
    assert spelled(cut(data, ranges.part(0, 20, "b"), ranges.part(0, 20, "a"))) == ["a"]
    same = (ranges.payload(0, 20, "\U0001f600"), ranges.payload(0, 20, "\uffff"))
    assert cut(data, *same).layout.extents[0].name == "\uffff"
    assert spelled(cut(data, ranges.part(0, 20, "a"), ranges.literal(0, 20))) == [
        "hex:" + data.hex()
    ]


def test_empty_ranges_are_no_extents_wherever_they_point() -> None:
    assert spelled(cut(b"ab", ranges.part(1, 1, "x"), ranges.part(99, 99, "y"))) == ["hex:6162"]
    assert cut(b"").layout.extents == ()


def test_names() -> None:
    given = ["a", "a", "a__2", "a", "", "_x", "é.b", "t_x"]
    data = bytes(range(1, len(given) + 1))
    pieces = [tensor(name, n, n + 1, (1,)) for n, name in enumerate(given)]
    words = spelled(cut(data, *pieces))
    assert words == ["a", "a__2", "a__2__2", "a__3", "t", "t_x", "t__b", "t_x__2"]


def test_names_are_numbered_in_file_order_and_losers_take_none() -> None:
    data = bytes(range(1, 7))
    words = spelled(
        cut(data, tensor("w", 4, 6, (2,)), tensor("w", 0, 3, (3,)), tensor("w", 2, 4, (2,)))
    )
    assert words == ["w", "hex:04", "w__2"]


def test_many_equal_names_are_not_quadratic() -> None:
    count = 20_000
    data = b"\1" * count
    started = time.process_time()
    result = ranges.cut(
        "fold", memoryview(data), [tensor("w", n, n + 1, (1,)) for n in range(count)]
    )
    assert result.arrays[-1].name == f"w__{count}"
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("element", "shape", "length", "wanted"),
    [
        ("f32", (2, 3), 24, ("f32", (2, 3))),
        ("f32", (), 4, ("f32", ())),
        ("c64", (3,), 24, ("f32", (3, 2))),
        ("c128", (3,), 48, ("f64", (3, 2))),
        ("bf16", (3,), 6, ("u16", (3,))),
        ("bool", (3,), 3, ("u8", (3,))),
        ("f8_e4m3", (3,), 3, ("u8", (3,))),
        ("f32", (2, 3), 20, ("u8", (20,))),
        ("f32", (0, 3), 24, ("u8", (24,))),
        ("f32", (-2, -3), 24, ("u8", (24,))),
        ("u8", (2**63,) * 1000, 24, ("u8", (24,))),
        (None, (2, 3), 24, ("u8", (24,))),
    ],
)
def test_a_numeric_dtype_accounts_for_every_byte(
    element: str | None, shape: tuple[int, ...], length: int, wanted: tuple[str, tuple[int, ...]]
) -> None:
    result = cut(b"\1" * length, tensor("w", 0, length, shape, element))
    assert (result.arrays[0].dtype, result.arrays[0].shape) == wanted
    assert result.layout.extents[0].shape == shape


def test_big_endian_numbers_are_bytes() -> None:
    stored = Stored("w", ">f4", (2, 3), 0, 24, "f32", byteorder="big")
    result = cut(b"\1" * 24, ranges.tensor(stored))
    assert (result.arrays[0].dtype, result.arrays[0].shape) == ("u8", (24,))


def test_rows_of_packed_items_are_bytes() -> None:
    stored = Stored("w", "Q8_0", (64, 3), 0, 204, None, "reversed", row_bytes=68)
    result = cut(b"\1" * 204, ranges.tensor(stored))
    assert (result.arrays[0].dtype, result.arrays[0].shape) == ("u8", (3, 68))


@pytest.mark.parametrize("order", ["F", "reversed"])
def test_fortran_order_reverses_the_shape(order: str) -> None:
    stored = Stored("w", "<f4", (2, 3), 0, 24, "f32", order)
    result = cut(b"\1" * 24, ranges.tensor(stored))
    assert result.arrays[0].shape == (3, 2)
    assert result.layout.extents[0].shape == (2, 3)
    assert result.layout.extents[0].order == "F"


def test_arrays_are_views() -> None:
    data = bytearray(b"abcd")
    result = ranges.cut("fold", memoryview(data), [ranges.part(0, 4, "a")])
    data[0] = 0
    assert bytes(result.arrays[0].data) == b"\0bcd"


def test_an_array_of_too_many_chunks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_CHUNKS", 2)
    cut(bytes(2 * 65_536), ranges.part(0, 2 * 65_536, "a"))
    with pytest.raises(FormatError, match="chunks") as caught:
        cut(bytes(2 * 65_536 + 1), ranges.part(0, 2 * 65_536 + 1, "a"))
    assert caught.value.kind == "limit"


def test_opaque_is_cut_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIECE", 4)
    result = ranges.whole(memoryview(b"abcdefghi"), "because")
    check_cut(result, b"abcdefghi")
    assert spelled(result) == ["data", "data__2", "data__3"]
    assert result.reason == "because"
