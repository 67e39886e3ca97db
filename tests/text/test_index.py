"""Indexing line by line and many lines at a time: the same index, the same faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from unittest.mock import patch

import pytest

from tests.data import Case, cases, seeded
from tests.fuzz.mutations import text_mutant
from wtxtgit.model.array import ITEM_SIZE, Array, Meta, Rows, Snapshot
from wtxtgit.text import grammar
from wtxtgit.text import index as indexing
from wtxtgit.text.grammar import CAP
from wtxtgit.text.index import TextIndex, index
from wtxtgit.text.write import dumps

NEVER = re.compile(rb"(?!)")
MUTANTS = 150


def array(name: str, dtype: str, shape: tuple[int, ...], rows: Rows | None) -> Array:
    raw = seeded(name).randbytes(ITEM_SIZE[dtype] * prod(shape))
    return Array(name, dtype, shape, memoryview(raw), rows)


def text_of(*arrays: Array) -> bytes:
    return dumps(Snapshot(Meta(), arrays, CAP, audit="a=1"))


USUAL = (
    array("A", "f32", (2, 16), Rows(16, 64)),
    array("B", "f32", (2, 16), Rows(16, 64)),
    array("C", "u8", (0,), Rows(1, 1)),
    array("D", "i64", (), None),
    array("E", "u8", (100,), Rows(25, 4, blocking=False)),
    array("F", "u8", (57,), Rows(57, 1)),
)
LONG = array("M", "u8", (250,), Rows(50, 1))
UNUSUAL = (
    array("N" * 5000, "u8", (3,), Rows(1, 65_536)),
    array("O", "u8", (1,) * 150, Rows(1, 1)),
)
TEXT = text_of(*USUAL, LONG, *UNUSUAL, array("P", "u8", (4,), Rows(1, 4)))


def line_by_line(text: bytes) -> TextIndex:
    with patch.multiple(grammar, ARRAY_FRAME=NEVER, CHUNK_FRAME=NEVER):
        return index(memoryview(text))


@contextmanager
def counted(method: str) -> Iterator[list[str]]:
    """What a step that takes a line at a time is called for."""
    called: list[str] = []
    step = getattr(indexing._TextIndexer, method)

    def counting(reader: object, *given: object) -> None:
        called.append(method)
        step(reader, *given)

    with patch.object(indexing._TextIndexer, method, counting):
        yield called


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.file)
def test_a_text_is_indexed_as_line_by_line(case: Case) -> None:
    assert index(memoryview(case.text)) == line_by_line(case.text)


@pytest.mark.parametrize("text", [text_of(*USUAL), text_of(LONG), TEXT], ids=["A-F", "M", "all"])
def test_a_text_with_a_change_is_indexed_as_line_by_line(text: bytes) -> None:
    assert index(memoryview(text)).stop is None
    rng = seeded("changes")
    for _ in range(MUTANTS):
        mutant = text_mutant(text, rng)
        assert index(memoryview(mutant)) == line_by_line(mutant)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"shape=2,16", b"shape=2,17"),
        (b"shape=2,16", b"shape=02,16"),
        (b"shape=2,16", b"shape=2,,16"),
        (b"shape=scalar", b"shape=scalars"),
        (b"dtype=f32", b"dtype=f16"),
        (b"bytes=128", b"bytes=0128"),
        (b"bytes=128", b"bytes=99999999999999999999"),
        (b"rows_per_chunk=16 ", b"rows_per_chunk=0 "),
        (b"rows_per_chunk=16 ", b"rows_per_chunk=016 "),
        (b"rows_per_chunk=16 ", b"rows_per_chunk=1 "),
        (b"row_size=64", b"row_size=63"),
        (b"row_blocking=on", b"row_blocking=no"),
        (b"ch ix=000000", b"ch ix=000001"),
        (b"off=000000000000", b"off=000000000001"),
        (b"len=128", b"len=127"),
        (b"len=128", b"len=0128"),
        (b"lines=3", b"lines=4"),
        (b"lines=3", b"lines=03"),
        (b"name=B", b"name=A"),
        (b"name=B", b"name=0"),
        (b"endch\nendarr", b"endarr\nendch"),
        (b"endch\nendarr", b"endch\nch ix="),
        (b"\nch ix=000003 off=000000000150", b"\nch ix=000003 off=000000000151"),
        (b"\nch ix=000003", b"\nch ix=000004"),
        (b"len=50", b"len=51"),
    ],
)
def test_every_field_of_short_and_long_arrays_is_checked(old: bytes, new: bytes) -> None:
    assert old in TEXT
    changed = TEXT.replace(old, new, 1)
    found = index(memoryview(changed))
    assert found.stop is not None
    assert found == line_by_line(changed)


def test_arrays_of_one_chunk_are_read_many_at_a_time() -> None:
    with counted("_read_array") as called:
        assert len(index(memoryview(text_of(*USUAL))).arrays) == len(USUAL)
    assert called == []


def test_names_and_shapes_of_unusual_length_are_read_line_by_line() -> None:
    # A long name is nothing unusual where it is at hand.
    with counted("_read_array") as called:
        assert len(index(memoryview(text_of(*UNUSUAL))).arrays) == len(UNUSUAL)
    assert len(called) == 1


def test_only_the_last_chunk_of_a_long_array_is_read_line_by_line() -> None:
    whole, tail = text_of(LONG), text_of(array("M", "u8", (251,), Rows(50, 1)))
    for text, singly in ((whole, 0), (tail, 1)):
        with counted("_read_chunk") as called:
            assert index(memoryview(text)).stop is None
        assert len(called) == singly


def test_progress_counts_the_same_bytes_of_lines() -> None:
    fast: list[int] = []
    slow: list[int] = []
    index(memoryview(TEXT), fast.append)
    with patch.multiple(grammar, ARRAY_FRAME=NEVER, CHUNK_FRAME=NEVER):
        index(memoryview(TEXT), slow.append)
    assert fast == slow
