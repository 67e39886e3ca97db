"""A file that is written beside its text's verification is the one that follows it."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import FIXTURES, cases, fixture, seeded
from wtxtgit.checkpoint.restore import restore
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge, smudge_into
from wtxtgit.model.array import LAYOUT_ARRAY, Array, Extent, Layout, Meta, Rows, Snapshot
from wtxtgit.text import write
from wtxtgit.text.file import assumed_layout, file_pieces
from wtxtgit.text.grammar import CAP, CAP_LAYOUT
from wtxtgit.text.index import index
from wtxtgit.text.layout import format_layout, schema_of, with_layout
from wtxtgit.text.restoring import verify_into
from wtxtgit.text.verify import verify
from wtxtgit.text.write import dumps

KIND = "safetensors"
META = Meta(schema=schema_of(KIND))


def array(name: str, size: int, chunk: int = 1000) -> Array:
    raw = memoryview(seeded(name).randbytes(size))
    return Array(name, "u8", (size,), raw, Rows(1, chunk))


def text_of(layout: Layout, *arrays: Array) -> bytes:
    return dumps(with_layout(layout, arrays, META))


def lying(layout: Layout, *arrays: Array) -> bytes:
    """A text that is right but for its layout, which no writer of ours would write."""
    raw = memoryview(format_layout(layout))
    every = sorted((*arrays, Array(LAYOUT_ARRAY, "u8", (len(raw),), raw)), key=lambda a: a.name)
    return dumps(Snapshot(META, tuple(every), (*CAP, CAP_LAYOUT), layout=layout))


# In the text the arrays stand in another order, one of them before the layout.
ARRAYS = array("Z", 70_500), array("b", 2_500), array("a", 300_000, 2_000), array("none", 0)
EXTENTS = (
    Extent(hex=b"head"),
    Extent("b"),
    Extent("Z"),
    Extent(zeros=70),
    Extent("none"),
    Extent(hex=b"\1\2"),
    Extent("a"),
    Extent(zeros=3),
)
LAYOUT = Layout(KIND, 4 + 2_500 + 70_500 + 70 + 2 + 300_000 + 3, EXTENTS)
TEXT = text_of(LAYOUT, *ARRAYS)
BYTES = {array.name: bytes(array.data) for array in ARRAYS}
FILE = b"head" + BYTES["b"] + BYTES["Z"] + bytes(70) + b"\1\2" + BYTES["a"] + bytes(3)


@contextmanager
def empty() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 30, 0)


def smudged(text: bytes, threads: int = 2) -> tuple[bytes, str | None]:
    with empty() as descriptor:
        warning = smudge_into(descriptor, memoryview(text), threads=threads).warning
        return content(descriptor), warning


def placed(text: bytes, layout: Layout | None = None, threads: int = 2) -> tuple[bool, bytes]:
    view = memoryview(text)
    indexed = index(view)
    assumed = layout or assumed_layout(view, indexed)
    assert assumed is not None
    with empty() as descriptor:
        _, is_whole = verify_into(descriptor, view, indexed, assumed, threads=threads)
        return is_whole, content(descriptor)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_arrays_and_literals_get_their_places(threads: int) -> None:
    assert placed(TEXT, threads=threads) == (True, FILE)
    assert smudged(TEXT, threads) == (FILE, None)


@given(st.lists(st.one_of(st.integers(0, 200_000), st.integers(0, 40)), max_size=8), st.randoms())
def test_any_layout_is_the_file_that_its_pieces_make(sizes: list[int], rng: random.Random) -> None:
    arrays = [array(f"n{number}", size, rng.choice((900, 70_000)))
              for number, size in enumerate(sizes)]  # fmt: skip
    extents = [Extent(one.name) for one in arrays]
    extents += [Extent(hex=rng.randbytes(rng.randint(1, 64))) for _ in range(rng.randint(0, 4))]
    extents += [Extent(zeros=rng.randint(1, 65_536)) for _ in range(rng.randint(0, 3))]
    rng.shuffle(extents)
    size = sum(sizes) + sum(len(one.hex or b"") + (one.zeros or 0) for one in extents)
    text = text_of(Layout(KIND, size, tuple(extents)), *arrays)
    report = verify(memoryview(text))
    assert report.layout is not None
    wanted = b"".join(file_pieces(memoryview(text), report.index, report.layout))
    assert placed(text) == (True, wanted)


def _fixture_names() -> list[str]:
    found = sorted(
        path.relative_to(FIXTURES).as_posix()
        for path in FIXTURES.rglob("*")
        if path.is_file() and path.stat().st_size < 200_000
    )
    assert found
    return found


FIXTURE_NAMES = _fixture_names()


def test_every_real_file_comes_back() -> None:
    for name in FIXTURE_NAMES:
        text = b"".join(map(bytes, clean(memoryview(fixture(name))).pieces()))
        assert smudged(text) == (fixture(name), None), name


def test_every_vector_is_smudged_as_in_a_pipe() -> None:
    for case in cases():
        made = smudge(memoryview(case.text))
        assert smudged(case.text) == (b"".join(map(bytes, made.pieces())), made.warning), case.file


def replaced(text: bytes, old: bytes, new: bytes) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


def with_claim(text: bytes, at: bytes) -> bytes:
    """The text with another digit in the claim that follows `at`."""
    place = text.index(at) + len(at)
    return text[:place] + (b"1" if text[place : place + 1] == b"0" else b"0") + text[place + 1 :]


DAMAGED = {
    "a name": replaced(TEXT, b"\narr name=b ", b"\narr name=c "),
    "a byte": TEXT[:-400] + bytes([TEXT[-400] ^ 1]) + TEXT[-399:],
    "a chunk's sha256": with_claim(TEXT, b"\nch ix=000001 off=000000001000 len=1000 sha256="),
    "a chunk's crc32c": with_claim(TEXT, b" crc32c="),
    "an array's sha256": with_claim(TEXT, b" shape=300000 order=C bytes=300000 sha256="),
    "the root": with_claim(TEXT, b"sha256_all="),
    "the end is missing": TEXT[:-1],
    "half is missing": TEXT[: len(TEXT) // 2],
    "more than there is": TEXT + b"\n",
}  # fmt: skip


@pytest.mark.parametrize("place", DAMAGED)
def test_a_damaged_text_leaves_nothing_of_the_file(place: str, tmp_path: Path) -> None:
    text = DAMAGED[place]
    assert text != TEXT
    made = smudge(memoryview(text))
    assert made.warning is not None
    assert smudged(text) == (text, made.warning)
    path, out = tmp_path / "m.wtxt", tmp_path / "out"
    path.write_bytes(text)
    for before in (None, b"kept"):
        if before is not None:
            out.write_bytes(before)
        with pytest.raises(CheckError):
            restore(str(path), out)
        assert sorted(tmp_path.iterdir()) == sorted([path] if before is None else [path, out])
    assert out.read_bytes() == b"kept"


LYING = (
    EXTENTS[:-1],
    (*EXTENTS, Extent("a")),
    (*EXTENTS, Extent("nosuch")),
    (*EXTENTS, Extent(LAYOUT_ARRAY)),
    (*EXTENTS[:1], *EXTENTS[2:]),
    (*EXTENTS, *(Extent(zeros=65_536),) * 2_000),
)


@pytest.mark.parametrize("extents", LYING)
def test_a_layout_that_lies_is_not_assumed(
    extents: tuple[Extent, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_check", lambda _snapshot: None)
    for size in (LAYOUT.size, 0, 10**18):
        text = lying(Layout(KIND, size, extents), *ARRAYS)
        view = memoryview(text)
        assert assumed_layout(view, index(view)) is None
        found, warning = smudged(text)
        assert found == text
        assert warning is not None
        assert "_layout" in warning


def test_no_layout_but_the_verified_one_makes_a_file() -> None:
    swapped = (*EXTENTS[:1], EXTENTS[2], EXTENTS[1], *EXTENTS[3:])
    assert placed(TEXT, replace(LAYOUT, extents=swapped)) == (False, b"")
    assert placed(TEXT, replace(LAYOUT, format="npy")) == (False, b"")


def test_what_is_not_a_container_has_no_layout_to_assume() -> None:
    native = dumps(Snapshot(Meta(), (ARRAYS[0],), CAP))
    for text in (native, b"", b"WTXT 1\n", TEXT[: len(TEXT) // 2]):
        view = memoryview(text)
        assert assumed_layout(view, index(view)) is None
        assert smudged(text)[0] == text


def test_a_file_that_is_a_text_itself_stays_text() -> None:
    inner = array("t", 100)
    raw = b"WTXT 1\n" + bytes(inner.data)
    text = text_of(
        Layout(KIND, len(raw), (Extent("t"),)),
        replace(inner, shape=(len(raw),), data=memoryview(raw)),
    )
    found, warning = smudged(text)
    assert found == text
    assert warning is not None
    assert "another text" in warning


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            smudge_into(full, memoryview(TEXT), threads=2)
    finally:
        os.close(full)
    path = tmp_path / "m.wtxt"
    path.write_bytes(TEXT)
    with pytest.raises(EnvironmentFailure):
        restore(str(path), tmp_path / "nosuch" / "out")
    assert list(tmp_path.iterdir()) == [path]


def test_restore_counts_every_byte_once(tmp_path: Path) -> None:
    counts: list[int] = []
    path = tmp_path / "m.wtxt"
    path.write_bytes(TEXT)
    restore(str(path), tmp_path / "out", progress=counts.append)
    assert (tmp_path / "out").read_bytes() == FILE
    assert sum(counts) == sum(map(len, BYTES.values())) + len(format_layout(LAYOUT))
