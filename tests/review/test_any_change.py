"""Any further change beside that of a tensor is told: each byte that is none of a tensor's.

A review tells what the comparison says, and what the check says of the head and not of the base.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers import aero_files as aero
from tests.containers import fold_files as fold
from tests.data import FIXTURES
from tests.review.test_hidden import Made, fold_file, mjsn, mlcp_shards, of_aero, other_noise
from wtxtgit.checkpoint.contents import open_side
from wtxtgit.comparison.compare import compare
from wtxtgit.containers import any_format
from wtxtgit.errors import InputError
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.tensor import ReadOptions

pytestmark = pytest.mark.slow


def rows_of(name: str) -> Made:
    """An index of tars, with its first row for another tar."""
    data = (FIXTURES / "taridx" / name / "train.taridx").read_bytes()
    (rows,) = struct.unpack_from("<Q", data, 48)
    return lambda other: aero.changed(data, rows + 10, "B", data[rows + 10] ^ other)


FILES: dict[str, Made] = {
    "index and shard": of_aero(),
    "sealed, with metadata": of_aero(
        mjsn(b'{"a": 1, "b": [2]}'), aero.manifest(format="aero", model={"name": "m"}), ihsh=True
    ),
    "chunks": lambda other: fold_file(other_noise(other)),
    "parity": lambda other: fold.built(
        ("model", b"NPZ0", other_noise(other)), ("notes", b"JSON", b'{"a":1}'), ecc=16
    ),
    "shards": mlcp_shards(b"ab", b"c"),
    "rows": rows_of("one_shard_a"),
    "crash stems": rows_of("collisions_a"),
}
"""Files of the four formats, with other weights if so asked."""


def no_member(path: str) -> ByteView:
    raise InputError(path)


def told(before: bytes, after: bytes) -> object:
    """All that a review of a change has to say, and a diff without the check's problems."""
    options, pages = ReadOptions(), Pages()
    found = any_format.check(memoryview(after), options)
    problems = [str(one) for one in (*found.errors, *found.warnings)]
    with ExitStack() as until:
        try:
            sides = [
                open_side("it", memoryview(data), no_member, pages, 1, until)
                for data in (before, after)
            ]
            report = compare(sides[0], sides[1], options, pages, 1).report
        except InputError as error:
            return error.message
        return report.as_dict(), problems


@cache
def first_change(name: str) -> tuple[bytes, bytes, object]:
    before, after = FILES[name](False), FILES[name](True)
    return before, after, told(before, after)


def rehashed(data: bytes) -> bytes:
    """An AERO file whose chunks have the hashes of their bytes: who hides something does that."""
    raw = bytearray(data)
    count, *_ = struct.unpack_from(aero.TOC_HEADER, raw, 96)
    for place in range(aero.TOC, aero.TOC + 80 * count, 80):
        offset, length = struct.unpack_from("<QQ", raw, place + 8)
        raw[place + 48 : place + 80] = aero.digest(bytes(raw[offset : offset + length]))
    return bytes(raw)


def of_tensors(data: bytes) -> set[int]:
    """The positions of bytes of tensors and rows, whose change is told as theirs."""
    ranges = any_format.read(memoryview(data)).ranges()
    values = (one for one in ranges if one.dtype is not None or one.row_bytes is not None)
    return {n for one in values for n in range(one.start, one.end)}


@given(
    name=st.sampled_from(sorted(FILES)),
    place=st.integers(0, 10_000),
    mask=st.sampled_from([1, 0x20, 0x80]),
    hashes=st.sampled_from([bytes, rehashed]),
)
def test_no_byte_changes_unseen(
    name: str, place: int, mask: int, hashes: Callable[[bytes], bytes]
) -> None:
    before, after, usual = first_change(name)
    place %= len(after)
    if place in of_tensors(after):
        return
    changed = bytearray(after)
    changed[place] ^= mask
    is_aero = bytes(changed[:4]) == b"AERO" and changed[96:100] == after[96:100]
    hidden = hashes(bytes(changed)) if is_aero else bytes(changed)
    if hidden != after:
        assert told(before, hidden) != usual


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("more", [b"\0", bytes(64), b"x"])
def test_nothing_is_appended_unseen(name: str, more: bytes) -> None:
    before, after, usual = first_change(name)
    assert told(before, after + more) != usual
