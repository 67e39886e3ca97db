"""A file that is written while its text arrives is that which a look at the whole text gives."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data import cases, fixture
from tests.text.test_restoring import (
    ARRAYS,
    DAMAGED,
    FILE,
    FIXTURE_NAMES,
    KIND,
    LAYOUT,
    LYING,
    TEXT,
    array,
    content,
    empty,
    lying,
    smudged,
    text_of,
)
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge, smudge_arriving
from wtxtgit.io import view
from wtxtgit.io.pieces import PieceWindows
from wtxtgit.io.view import Buffer
from wtxtgit.model.array import Array, Extent, Layout, Meta, Snapshot
from wtxtgit.text import index as indexes
from wtxtgit.text import restoring, write
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import dumps

NEAR = 8192


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with arrays of many MiB is done with those of some KiB."""
    monkeypatch.setattr(indexes, "NEAR", NEAR)
    monkeypatch.setattr(restoring, "_SMALL", 1000)
    monkeypatch.setattr(restoring, "_KEPT", 2000)


def cut(text: bytes, size: int) -> Iterator[bytes]:
    return (text[start : start + size] for start in range(0, len(text), size))


def arrived(text: bytes, threads: int = 2, size: int = 3001) -> tuple[bool, bytes]:
    """Whether a text is a file while it arrives in pieces of `size` bytes, and what was written."""
    with empty() as descriptor:
        windows = PieceWindows(cut(text, size), len(text))
        is_whole = smudge_arriving(descriptor, windows, threads=threads)
        return is_whole, content(descriptor)


def file_of(*names: str, literals: bool = True) -> tuple[bytes, bytes]:
    """The file of arrays in this order, and its text, which has them by name."""
    sizes = (20_000, 300, 0, 9_000, 2_500)
    arrays = [array(name, sizes[n % len(sizes)], 900) for n, name in enumerate(names)]
    extents: list[Extent] = []
    raw = b""
    for one in arrays:
        if literals:
            extents += [Extent(hex=b"ab"), Extent(zeros=700)]
            raw += b"ab" + bytes(700)
        extents.append(Extent(one.name))
        raw += bytes(one.data)
    return raw, text_of(Layout(KIND, len(raw), tuple(extents)), *arrays)


LAYERS = [f"blk_{number}_{what}" for number in range(12) for what in ("k", "norm", "v", "w")]
ORDERS = {
    "by name": sorted(LAYERS),
    "by number": LAYERS,
    "backwards": sorted(LAYERS, reverse=True),
    "all before the layout": [f"{number}_W" for number in range(12)],
    "one before the layout": ["b", "LARGE", "c"],
    "the first is missing until the end": ["z", *sorted(LAYERS)],
    "no array": [],
    "one": ["a"],
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("order", ORDERS)
def test_arrays_of_any_order_get_their_places(order: str, threads: int) -> None:
    for literals in (False, True):
        raw, text = file_of(*ORDERS[order], literals=literals)
        assert arrived(text, threads) == (True, raw)
        assert smudged(text) == (raw, None)


@pytest.mark.parametrize("size", [7, 79, 4096, 1 << 20])
def test_pieces_may_have_any_size(size: int) -> None:
    assert arrived(TEXT, size=size) == (True, FILE)


@pytest.mark.slow
@given(
    st.lists(st.one_of(st.integers(0, 60_000), st.integers(0, 40)), max_size=8),
    st.integers(1000, 40_000),
    st.randoms(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_layout_is_the_file_that_its_pieces_make(
    sizes: list[int], piece: int, rng: random.Random
) -> None:
    arrays = [array(f"{rng.choice('AZaz')}{number}", size, rng.choice((900, 20_000)))
              for number, size in enumerate(sizes)]  # fmt: skip
    extents = [(Extent(one.name), bytes(one.data)) for one in arrays]
    for _ in range(rng.randint(0, 4)):
        literal = rng.randbytes(rng.randint(1, 64))
        extents += [(Extent(hex=literal), literal), (Extent(zeros=9_000), bytes(9_000))]
    rng.shuffle(extents)
    raw = b"".join(own for _, own in extents)
    text = text_of(Layout(KIND, len(raw), tuple(extent for extent, _ in extents)), *arrays)
    assert arrived(text, size=piece) == (True, raw)


def test_what_came_before_its_place_was_known_was_put_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: list[int] = []

    def copied(_descriptor: int, start: int, _offset: int, nbytes: int) -> None:
        moved.append(nbytes)
        assert start >= len(raw)
        view.copy_within(_descriptor, start, _offset, nbytes)

    monkeypatch.setattr(restoring, "copy_within", copied)
    raw, text = file_of(*ORDERS["by number"])
    assert arrived(text) == (True, raw)
    # Layers 10 and 11 come before layer 1; small arrays of them wait in memory.
    assert moved == [20_000, 9_000, 2_500, 20_000]
    moved.clear()
    raw, text = file_of(*sorted(LAYERS))
    assert arrived(text) == (True, raw)
    assert moved == []


@pytest.mark.parametrize("how", ["missing", "refused", "nothing", "bit by bit"])
def test_moving_needs_nothing_of_the_system(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    def some(descriptor: int, other: int, nbytes: int, start: int, offset: int) -> int:
        return os.pwrite(other, os.pread(descriptor, min(nbytes, 999), start), offset)

    if how == "missing":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    else:
        call = {"refused": refused, "nothing": lambda *_: 0, "bit by bit": some}[how]
        monkeypatch.setattr(os, "copy_file_range", call, raising=False)
    raw, text = file_of(*ORDERS["by number"])
    assert arrived(text) == (True, raw)


def test_a_part_of_the_text_is_held_at_a_time() -> None:
    _, text = file_of(*ORDERS["by number"], *(f"w{number}" for number in range(100)))
    held: list[int] = []

    def pieces() -> Iterator[bytes]:
        for piece in cut(text, 4096):
            held.append(sum(map(len, windows._pieces)))
            yield piece

    windows = PieceWindows(pieces(), len(text))
    with empty() as descriptor:
        assert smudge_arriving(descriptor, windows, threads=1)
    # A job is of half a MiB of raw bytes at least.
    assert max(held) < 900_000 < len(text) // 1.4


def test_many_small_arrays_get_their_places() -> None:
    names = [f"n{number:04d}" for number in range(1_000)]
    arrays = [array(name, 1 + number % 90) for number, name in enumerate(names)]
    raw = b"".join(bytes(one.data) for one in reversed(arrays))
    layout = Layout(KIND, len(raw), tuple(Extent(name) for name in reversed(names)))
    assert arrived(text_of(layout, *arrays), size=70_000) == (True, raw)


def test_what_stands_around_the_arrays_may_be_long() -> None:
    raw, text = file_of(*ORDERS["by number"])
    head, meta, cap, root, rest = text.split(b"\n", 4)
    cap += b"," + b",".join(b"more%d" % number for number in range(5_000))
    # A signature of whoever: without keys it says nothing, but what it covers is looked at.
    sign = b"sign ed25519=" + b"A" * 86 + b"== keyid=0123456789abcdef"
    audit = b"audit " + b" ".join(b"key%d=1" % number for number in range(5_000))
    lines = b"\n".join((head, meta, cap, root, sign, rest))
    long = lines.replace(b"\nendwtxt\n", b"\n" + audit + b"\nendwtxt\n")
    assert len(long) > len(text) + 90_000
    assert smudged(long) == (raw, None)
    assert arrived(long) == (True, raw)
    assert arrived(long[:-1]) == (False, b"")


def every_damage() -> Iterator[bytes]:
    """A byte changed in each kind of line, at several places, and texts that are cut."""
    yield from DAMAGED.values()
    _, text = file_of("b", "L", "a", "c")
    for place in {
        *range(0, 600, 41),
        *range(0, len(text), len(text) // 30),
        *(text.index(b"\narr name=%b " % name) + 5 for name in (b"L", b"_layout", b"a", b"c")),
        *range(len(text) - 60, len(text), 7),
    }:
        yield text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        yield text[:place]


def test_damage_anywhere_leaves_nothing_of_the_file() -> None:
    damaged = 0
    for text in every_damage():
        if not text.startswith(b"WTXT "):
            continue
        made = smudge(memoryview(text))
        # No hash covers host and cuda.
        whole = None if made.layout is None else b"".join(map(bytes, made.pieces()))
        assert arrived(text) == ((False, b"") if whole is None else (True, whole))
        damaged += whole is None
    assert damaged > 90


def test_what_is_no_text_passes() -> None:
    for data in (b"", b"W", b"WTXT", b"WTXU 1\n", os.urandom(100_000)):
        assert arrived(data) == (True, data)


def test_texts_that_stay_texts_are_looked_at_as_a_whole() -> None:
    native = dumps(Snapshot(Meta(), (array("Z", 70_500),), CAP))
    pending = TEXT.replace(
        TEXT.split(b"\n")[3],
        b"root_pending sha256_all=" + b"0" * 64 + b' note="finalize with WSUM"',
    )
    assert smudge(memoryview(pending)).warning is None
    for text in (native, pending):
        assert arrived(text) == (False, b"")
        assert smudged(text) == (text, None)


def test_a_file_that_is_a_text_itself_is_none() -> None:
    raw = b"WTXT 1\n" + bytes(5_000)
    one = Array("t", "u8", (len(raw),), memoryview(raw))
    assert arrived(text_of(Layout(KIND, len(raw), (Extent("t"),)), one)) == (False, b"")


def test_every_vector_is_smudged_as_at_once() -> None:
    count = 0
    for case in cases():
        is_whole, found = arrived(case.text)
        made = smudge(memoryview(case.text))
        if is_whole:
            assert (found, made.warning) == (b"".join(map(bytes, made.pieces())), None), case.file
            count += 1
        else:
            assert found == b""
            assert made.layout is None, case.file
    assert count


@pytest.mark.slow
def test_every_real_file_comes_back() -> None:
    for name in FIXTURE_NAMES:
        cleaned = b"".join(map(bytes, clean(memoryview(fixture(name))).pieces()))
        assert arrived(cleaned) == (True, fixture(name)), name


@pytest.mark.parametrize("size", [LAYOUT.size, 0, 10**19])
@pytest.mark.parametrize("extents", LYING)
def test_a_layout_that_lies_makes_no_file(
    extents: tuple[Extent, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_check", lambda _snapshot: None)
    assert arrived(lying(Layout(KIND, size, extents), *ARRAYS)) == (False, b"")


def test_no_room_behind_the_file_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, text = file_of(*ORDERS["by number"])

    def written(descriptor: int, data: Buffer, offset: int) -> None:
        if offset >= len(raw):
            raise OSError(errno.ENOSPC, "full")
        view.write_at(descriptor, data, offset)

    monkeypatch.setattr(restoring, "write_at", written)
    assert arrived(text) == (False, b"")


@pytest.mark.parametrize("claimed", [len(TEXT) + 1, len(TEXT) + 10_000])
def test_pieces_that_end_too_soon_are_told(claimed: int) -> None:
    windows = PieceWindows(cut(TEXT, 3001), claimed)
    with empty() as descriptor:
        with pytest.raises(EnvironmentFailure, match="bytes came"):
            smudge_arriving(descriptor, windows)
        assert content(descriptor) == b""


def test_pieces_that_go_on_are_told() -> None:
    with empty() as descriptor:
        with pytest.raises(EnvironmentFailure, match="bytes came"):
            smudge_arriving(descriptor, PieceWindows(cut(bytes(9_000), 3001), 8_000))
        with pytest.raises(EnvironmentFailure, match="bytes came"):
            smudge_arriving(descriptor, PieceWindows(iter((TEXT, b"more")), len(TEXT)))


def test_a_source_that_fails_is_told() -> None:
    def pieces() -> Iterator[bytes]:
        yield from cut(TEXT[:200_000], 3001)
        raise EnvironmentFailure("blob can't be read")

    for threads in (1, 4):
        with empty() as descriptor:
            with pytest.raises(EnvironmentFailure, match="can't be read"):
                smudge_arriving(descriptor, PieceWindows(pieces(), len(TEXT)), threads=threads)
            assert content(descriptor) == b""
