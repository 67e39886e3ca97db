from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from tests.kit import safetensors, text_of
from wtxtgit.errors import CheckError
from wtxtgit.filter.clean import text_of as emitted
from wtxtgit.io.view import Pages
from wtxtgit.text.file import _IN_MEMORY, TextFile

SMALL = 1000
LARGE = _IN_MEMORY // 4
"""Numbers of four bytes: with its header the file is larger than what stays in memory."""


@pytest.fixture
def until() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def file_of(count: int) -> bytes:
    return safetensors(*np.random.default_rng(count).standard_normal(count).tolist())


def opened(text: bytes, until: ExitStack) -> TextFile:
    return TextFile("x", memoryview(text), Pages(), 1, until)


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_arrays_come_when_they_are_asked_for(until: ExitStack, count: int) -> None:
    content = file_of(count)
    file = opened(text_of(content), until)
    start = len(content) - 4 * count
    assert file.size == len(content)
    assert (file._file is None) == (count == SMALL)
    assert bytes(file.view[start:]) == bytes(4 * count)
    file.fill_range(start + 5, 1)
    there = bytes(file.view[start:])
    # A chunk has 64 KiB: of the large file no other one came.
    assert there == content[start : start + 65_536].ljust(4 * count, b"\0")
    file.fill_all()
    assert bytes(file.view) == content


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_damaged_chunk_is_refused_where_it_is_asked_for(until: ExitStack, count: int) -> None:
    text = bytearray(text_of(file_of(count)))
    line = text.rindex(b"\nendarr") - 200
    text[line] ^= 1
    file = opened(bytes(text), until)
    with pytest.raises(CheckError, match="x: "):
        file.fill_all()


def test_an_empty_file(until: ExitStack) -> None:
    file = opened(b"".join(emitted(memoryview(b"")).pieces()), until)
    file.fill_all()
    assert file.size == 0
    assert bytes(file.view) == b""
